"""Targets, on which candidates run: ``cuda`` (a GPU) or ``recorded`` (a file of measured times).

Others know targets only through :class:`Target` and :class:`GpuTarget`, and get one by
:func:`choose_target` or :func:`open_gpu`.
"""

from autogemm.targets.choose import (
    AttachedGpu,
    Chosen,
    attached_gpus,
    choose_target,
    is_file,
    names_several,
    open_gpu,
    several_gpus,
    why_no_gpu,
)
from autogemm.targets.target import (
    BenchCandidate,
    BenchTimes,
    ContestantTimes,
    GpuTarget,
    MeasureOptions,
    RecordedPlace,
    Target,
)

__all__ = [
    "AttachedGpu",
    "BenchCandidate",
    "BenchTimes",
    "Chosen",
    "ContestantTimes",
    "GpuTarget",
    "MeasureOptions",
    "RecordedPlace",
    "Target",
    "attached_gpus",
    "choose_target",
    "is_file",
    "names_several",
    "open_gpu",
    "several_gpus",
    "why_no_gpu",
]
