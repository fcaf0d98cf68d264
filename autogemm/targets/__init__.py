"""Where a candidate runs: ``cuda`` (a GPU) or ``recorded`` (a file of measured times).

The tuner knows targets only through :class:`Target`.
"""

from autogemm.targets.bench import BenchCandidate, BenchTimes, ContestantTimes
from autogemm.targets.target import MeasureOptions, Target

__all__ = [
    "BenchCandidate",
    "BenchTimes",
    "ContestantTimes",
    "MeasureOptions",
    "Target",
]
