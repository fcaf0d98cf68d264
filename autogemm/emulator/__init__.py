"""Emitted CUDA run and checked on the CPU."""

from autogemm.emulator.analysis import AccessLine
from autogemm.emulator.emulator import Emulator, RunOptions
from autogemm.emulator.findings import EmulatorReport, Finding, FindingKind
from autogemm.emulator.inputs import Data
from autogemm.emulator.toolchain import Mode
from autogemm.verify.edge_cases import (
    HARD_PROBLEMS,
    HARD_SHAPES,
    hard_problems,
    reduced,
    rounds_of,
)

__all__ = [
    "HARD_PROBLEMS",
    "HARD_SHAPES",
    "AccessLine",
    "Data",
    "Emulator",
    "EmulatorReport",
    "Finding",
    "FindingKind",
    "Mode",
    "RunOptions",
    "hard_problems",
    "reduced",
    "rounds_of",
]
