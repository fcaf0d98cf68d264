"""The targets by name, and the one that ``--gpu`` names. Their modules are imported when asked for.

docs/extending.md says how to add another kind of GPU: a folder beside ``cuda`` and a row below.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.support.errors import DeviceError, NotFoundError, UsageError
from autogemm.targets.target import GpuTarget, RecordedPlace, Target

# ``module:class``.
GPU_TARGETS = {"cuda": "autogemm.targets.cuda:CudaTarget"}
# ``module:function`` that opens a file or folder of recorded times.
RECORDINGS = "autogemm.targets.recorded:open_recorded"
RECORDED = "recorded"
# ``--gpu all``: every attached GPU.
ALL = "all"


@dataclass(frozen=True, slots=True)
class AttachedGpu:
    """A GPU of this machine: ``number`` among those of its row in `GPU_TARGETS`."""

    device: Device
    target: str
    number: int


def attached_gpus() -> list[AttachedGpu]:
    """The GPUs that can be used now, those of one kind side by side. Never raises."""
    return [
        AttachedGpu(device, name, number)
        for name in GPU_TARGETS
        for number, device in enumerate(_module(GPU_TARGETS[name]).attached_devices())
    ]


def why_no_gpu() -> str:
    """One line that says why there is no usable GPU; empty when there is one."""
    if attached_gpus():
        return ""
    reasons = (_module(place).why_no_device() for place in GPU_TARGETS.values())
    return "; ".join(dict.fromkeys(reasons))


def open_gpu(gpu: AttachedGpu | None = None) -> GpuTarget:
    """The target of an attached GPU, by default of the first. Raises DeviceError without one."""
    if gpu is None:
        attached = attached_gpus()
        if not attached:
            raise DeviceError(f"no GPU: {why_no_gpu()}")
        gpu = attached[0]
    target: GpuTarget = _loaded(GPU_TARGETS[gpu.target])(gpu.number)
    return target


def open_recording(
    place: Path | None, families: Collection[str], problem: Problem | None = None
) -> RecordedPlace:
    """The target that replays a recording; by default those that ship, of these families, and of
    these the one of the problem.

    Raises NotFoundError where there is none, RecordingError for a file that holds none.
    """
    target: RecordedPlace = _loaded(RECORDINGS)(place, families, problem)
    return target


def _module(place: str) -> Any:
    return import_module(place.partition(":")[0])


def _loaded(place: str) -> Any:
    return getattr(_module(place), place.partition(":")[2])


def is_file(gpu: str) -> bool:
    """Whether ``--gpu`` names a recording's file, which may be of a family of its own."""
    kind, _, place = gpu.partition(":")
    return kind == RECORDED and bool(place)


def names_several(gpu: str) -> bool:
    """Whether ``--gpu`` names several GPUs: ``all``, or numbers with commas between them."""
    return gpu == ALL or "," in gpu


def several_gpus(gpu: str) -> tuple[AttachedGpu, ...]:
    """Return the attached GPUs that ``all`` or ``0,2`` names, each once.

    Raises DeviceError where there is no GPU, NotFoundError for a number that none has.
    """
    attached = attached_gpus()
    if not attached:
        raise DeviceError(f"no GPU: {why_no_gpu()}")
    if gpu == ALL:
        return tuple(attached)
    numbers = tuple(dict.fromkeys(text.strip() for text in gpu.split(",") if text.strip()))
    for number in numbers:
        if not number.isdecimal() or int(number) >= len(attached):
            raise NotFoundError(
                f"--gpu {gpu}: no attached GPU has the number {number!r}; attached: "
                f"{_listed(attached)}"
            )
    if not numbers:
        raise UsageError(f"--gpu {gpu!r} does not name a GPU: write numbers, as in 0,2, or {ALL}")
    return tuple(attached[int(number)] for number in numbers)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A target and the remark that the choice needs (empty if none)."""

    target: Target
    notice: str = ""


def choose_target(
    gpu: str,
    families: Collection[str],
    require_gpu: bool = False,
    problem: Problem | None = None,
) -> Chosen:
    """The target that ``gpu`` names, for that problem where it is known.

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
        target = open_recording(Path(place).expanduser() if place else None, families, problem)
        notice = _recorded_notice("", target, bool(place))
        return Chosen(target, notice)
    attached = attached_gpus()
    if gpu == "auto":
        return (
            Chosen(open_gpu(attached[0]))
            if attached
            else _without_gpu(families, require_gpu, problem)
        )
    return Chosen(open_gpu(_named(gpu, attached)))


def _without_gpu(families: Collection[str], require_gpu: bool, problem: Problem | None) -> Chosen:
    why = why_no_gpu()
    if require_gpu:
        raise DeviceError(f"no GPU: {why}; --gpu recorded replays a recording instead")
    try:
        target = open_recording(None, families, problem)
    except (NotFoundError, FileNotFoundError) as error:
        raise DeviceError(f"no GPU: {why}; and {error}") from error
    return Chosen(target, _recorded_notice(f"no GPU: {why}; ", target, False))


def _recorded_notice(why: str, target: RecordedPlace, is_named: bool) -> str:
    which = f"{target.path.name}, " if is_named else ""
    return (
        f"{why}using the recording of {which}{target.gpu_names}: every time below is recorded, "
        f"not measured here{target.remark}"
    )


def _named(gpu: str, attached: list[AttachedGpu]) -> AttachedGpu:
    """The attached GPU with that number, or the first whose name contains the text."""
    if gpu.isdecimal():
        if int(gpu) < len(attached):
            return attached[int(gpu)]
    elif gpu.strip():
        for one in attached:
            if gpu.strip().lower() in one.device.name.lower():
                return one
    names = _listed(attached)
    hint = "" if attached else f" ({why_no_gpu()}; `--gpu {RECORDED}` replays a recording)"
    raise NotFoundError(f"no attached GPU is {gpu!r}; attached: {names}{hint}")


def _listed(attached: list[AttachedGpu]) -> str:
    names = (f"{index} {one.device.name}" for index, one in enumerate(attached))
    return ", ".join(names) or "none"
