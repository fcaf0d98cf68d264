"""Emitted CUDA run and checked on the CPU."""

from autogemm.emulator.analysis import AccessLine
from autogemm.emulator.counting import LineCount, added
from autogemm.emulator.emulator import Emulator, RunOptions
from autogemm.emulator.findings import EmulatorReport, Finding, FindingKind
from autogemm.emulator.toolchain import Mode
from autogemm.reference import Data

__all__ = [
    "AccessLine",
    "Data",
    "Emulator",
    "EmulatorReport",
    "Finding",
    "FindingKind",
    "LineCount",
    "Mode",
    "RunOptions",
    "added",
]
