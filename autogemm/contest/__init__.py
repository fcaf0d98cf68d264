"""Kernels of the ladder, of the database and of libraries, timed side by side over sizes."""

from autogemm.contest.entrants import Entrant, entrants
from autogemm.contest.presets import PRESETS, Preset
from autogemm.contest.running import BenchRequest, Listener, SizeDone, run_bench
from autogemm.contest.sizes import parse_sizes

__all__ = [
    "PRESETS",
    "BenchRequest",
    "Entrant",
    "Listener",
    "Preset",
    "SizeDone",
    "entrants",
    "parse_sizes",
    "run_bench",
]
