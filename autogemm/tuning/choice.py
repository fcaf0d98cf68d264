"""Which target ``--gpu`` means."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from autogemm.space import Family
from autogemm.support.errors import DeviceError, NotFoundError, UsageError
from autogemm.targets import Target
from autogemm.targets.cuda import CudaTarget, attached_devices, why_no_device
from autogemm.targets.recorded import ListedTarget, RecordedTarget, is_listed

RECORDED = "recorded"


def is_file(gpu: str) -> bool:
    """Whether ``--gpu`` names a recording's file, which may be of a family of its own."""
    kind, _, place = gpu.partition(":")
    return kind == RECORDED and bool(place)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A target, what must be said about the choice (empty if nothing), and where the target brings
    its own the family to be tuned, and the size ``MxNxK`` if it says that.
    """

    target: Target
    notice: str = ""
    family: Family | None = None
    size: str = ""


def choose_target(gpu: str, families: Collection[str], require_gpu: bool = False) -> Chosen:
    """The target that ``gpu`` names.

    ``auto`` is the first attached GPU, and where there is none the shipped recordings of the
    families; a number or a part of a name is an attached GPU; ``recorded`` and ``recorded:FILE``
    replay a recording, the project's own, a cache of Kernel Tuner or a T4 file.

    Raises NotFoundError for a GPU or file that is not there, DeviceError when there is no GPU and
    no recording either, or ``require_gpu`` forbids it.
    """
    kind, _, place = gpu.partition(":")
    if kind == RECORDED:
        if require_gpu:
            raise UsageError(f"--require-gpu and --gpu {gpu} exclude each other")
        path = Path(place).expanduser() if place else None
        if path is not None and path.is_file() and is_listed(path):
            listed = ListedTarget(path)
            notice = _recorded_notice("", listed, True)
            return Chosen(listed, notice, listed.family, listed.size)
        target = RecordedTarget(path, families)
        return Chosen(target, _recorded_notice("", target, bool(place)))
    names = [device.name for device in attached_devices()]
    if gpu == "auto":
        return Chosen(CudaTarget(0)) if names else _without_gpu(families, require_gpu)
    return Chosen(CudaTarget(_index_of(gpu, names)))


def _without_gpu(families: Collection[str], require_gpu: bool) -> Chosen:
    why = why_no_device()
    if require_gpu:
        raise DeviceError(f"no GPU: {why}; --gpu recorded replays a recording in place of one")
    try:
        target = RecordedTarget(None, families)
    except (NotFoundError, FileNotFoundError) as error:
        raise DeviceError(f"no GPU: {why}; and {error}") from error
    return Chosen(target, _recorded_notice(f"no GPU: {why}; ", target, False))


def _recorded_notice(why: str, target: RecordedTarget | ListedTarget, is_named: bool) -> str:
    which = f"{target.path.name}, " if is_named else ""
    return (
        f"{why}using the recording of {which}{target.device.name}: every time below is recorded, "
        "not measured here"
    )


def _index_of(gpu: str, names: list[str]) -> int:
    """Of the attached GPU with that number, or the first whose name contains the text."""
    attached = ", ".join(f"{index} {name}" for index, name in enumerate(names)) or "none"
    if gpu.isdecimal():
        if int(gpu) < len(names):
            return int(gpu)
    elif gpu.strip():
        for index, name in enumerate(names):
            if gpu.strip().lower() in name.lower():
                return index
    hint = "" if names else f" ({why_no_device()}; `--gpu {RECORDED}` replays a recording)"
    raise NotFoundError(f"no attached GPU is {gpu!r}; attached: {attached}{hint}")
