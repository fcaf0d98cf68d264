"""Kernels of the ladder, of the database and of libraries, timed side by side over sizes."""

from autogemm.contest.entrants import (
    Entrant,
    NotForThisError,
    entrants,
    names_of,
    prepared,
)
from autogemm.contest.presets import kernels_of
from autogemm.contest.running import BenchRequest, Listener, SizeDone, run_bench
from autogemm.contest.sizes import parse_sizes

__all__ = [
    "BenchRequest",
    "Entrant",
    "Listener",
    "NotForThisError",
    "SizeDone",
    "entrants",
    "kernels_of",
    "names_of",
    "parse_sizes",
    "prepared",
    "run_bench",
]
