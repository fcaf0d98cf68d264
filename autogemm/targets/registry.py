"""The targets by name. Their modules are imported when they are asked for.

Another kind of GPU is a folder beside ``cuda``, whose face has `attached_devices`, `why_no_device`
and a class of targets that takes a GPU's number, and a row in `GPU_TARGETS`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from autogemm.model.hardware.device import Device
from autogemm.support.errors import DeviceError
from autogemm.targets.target import GpuTarget, RecordedPlace

# ``module:class``.
GPU_TARGETS = {"cuda": "autogemm.targets.cuda:CudaTarget"}
# ``module:function`` that opens a file or folder of recorded times.
RECORDINGS = "autogemm.targets.recorded:open_recorded"


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
    target: GpuTarget = _named(GPU_TARGETS[gpu.target])(gpu.number)
    return target


def open_recording(place: Path | None, families: Collection[str]) -> RecordedPlace:
    """The target that replays a recording; by default those that ship, of these families.

    Raises NotFoundError where there is none, RecordingError for a file that holds none.
    """
    target: RecordedPlace = _named(RECORDINGS)(place, families)
    return target


def _module(place: str) -> Any:
    return import_module(place.partition(":")[0])


def _named(place: str) -> Any:
    return getattr(_module(place), place.partition(":")[2])
