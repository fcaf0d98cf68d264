"""Where a candidate runs: ``cuda`` (a GPU) or ``recorded`` (a file of measured times).

Others know targets only through :class:`Target` and :class:`GpuTarget`, and get one by
:func:`choose_target` or :func:`open_gpu`.
"""

from autogemm.targets.bench import BenchCandidate, BenchTimes, ContestantTimes
from autogemm.targets.choose import Chosen, choose_target, is_file
from autogemm.targets.registry import AttachedGpu, attached_gpus, open_gpu, why_no_gpu
from autogemm.targets.target import GpuTarget, MeasureOptions, RecordedPlace, Target

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
    "open_gpu",
    "why_no_gpu",
]
