"""Kernels of the ladder, of the database and of libraries, timed side by side over sizes."""

from autogemm.bench.kernels.names import (
    NotForThisError,
    kernels_of,
    named_kernels,
    names_of,
    render_named,
)
from autogemm.bench.kernels.run import DEADLINE_S, BenchRequest, Listener, SizeDone, run_bench
from autogemm.bench.kernels.sizes import parse_sizes

__all__ = [
    "DEADLINE_S",
    "BenchRequest",
    "Listener",
    "NotForThisError",
    "SizeDone",
    "kernels_of",
    "named_kernels",
    "names_of",
    "parse_sizes",
    "render_named",
    "run_bench",
]
