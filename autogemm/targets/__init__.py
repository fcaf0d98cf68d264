"""Where a candidate runs: ``cuda`` (a GPU) or ``recorded`` (a file of measured times).

The tuner knows targets only through :class:`Target`.
"""

from autogemm.targets.racing import Raced, Racer
from autogemm.targets.target import MeasureOptions, Target

__all__ = [
    "MeasureOptions",
    "Raced",
    "Racer",
    "Target",
]
