"""Kernels of the ladder, of the database and of libraries, timed side by side over sizes."""

from autogemm.bench.kernels.entrants import (
    Entrant,
    NotForThisError,
    entrants,
    names_of,
    prepared,
)
from autogemm.bench.kernels.presets import kernels_of
from autogemm.bench.kernels.running import DEADLINE_S, BenchRequest, Listener, SizeDone, run_bench
from autogemm.bench.kernels.sizes import parse_sizes

__all__ = [
    "DEADLINE_S",
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
