"""Chooses the target that ``--gpu`` names."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autogemm.support.errors import DeviceError, NotFoundError, UsageError
from autogemm.targets.registry import (
    AttachedGpu,
    attached_gpus,
    open_gpu,
    open_recording,
    why_no_gpu,
)
from autogemm.targets.target import RecordedPlace, Target

if TYPE_CHECKING:
    from autogemm.space import Family

RECORDED = "recorded"


def is_file(gpu: str) -> bool:
    """Whether ``--gpu`` names a recording's file, which may be of a family of its own."""
    kind, _, place = gpu.partition(":")
    return kind == RECORDED and bool(place)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A target and the remark that the choice needs (empty if none).

    A target that brings its own has the family to be tuned, and the size ``MxNxK`` if it says that.
    """

    target: Target
    notice: str = ""
    family: "Family | None" = None
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
        target = open_recording(Path(place).expanduser() if place else None, families)
        notice = _recorded_notice("", target, bool(place))
        return Chosen(target, notice, target.own_family, target.own_size)
    attached = attached_gpus()
    if gpu == "auto":
        return Chosen(open_gpu(attached[0])) if attached else _without_gpu(families, require_gpu)
    return Chosen(open_gpu(_named(gpu, attached)))


def _without_gpu(families: Collection[str], require_gpu: bool) -> Chosen:
    why = why_no_gpu()
    if require_gpu:
        raise DeviceError(f"no GPU: {why}; --gpu recorded replays a recording in place of one")
    try:
        target = open_recording(None, families)
    except (NotFoundError, FileNotFoundError) as error:
        raise DeviceError(f"no GPU: {why}; and {error}") from error
    return Chosen(target, _recorded_notice(f"no GPU: {why}; ", target, False))


def _recorded_notice(why: str, target: RecordedPlace, is_named: bool) -> str:
    which = f"{target.path.name}, " if is_named else ""
    return (
        f"{why}using the recording of {which}{target.device.name}: every time below is recorded, "
        "not measured here"
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
    names = ", ".join(f"{index} {one.device.name}" for index, one in enumerate(attached)) or "none"
    hint = "" if attached else f" ({why_no_gpu()}; `--gpu {RECORDED}` replays a recording)"
    raise NotFoundError(f"no attached GPU is {gpu!r}; attached: {names}{hint}")
