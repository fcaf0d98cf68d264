"""Emitted CUDA run and checked on the CPU."""

from autogemm.targets.emulator.analysis import AccessLine
from autogemm.targets.emulator.emulator import Emulator, RunOptions
from autogemm.targets.emulator.findings import EmulatorReport, Finding, FindingKind
from autogemm.targets.emulator.inputs import Data
from autogemm.targets.emulator.problems import (
    HARD_PROBLEMS,
    HARD_SHAPES,
    hard_problems,
    reduced,
    rounds_of,
)
from autogemm.targets.emulator.toolchain import Mode

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
