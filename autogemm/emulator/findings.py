"""Findings of a run on the emulator: kinds of error, their place in the source, the report."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt


class FindingKind(StrEnum):
    """Errors of a kernel, in the order of `Kind` in shim/protocol.h; values are for messages."""

    RACE = "data race"
    UNINITIALISED = "read of uninitialised memory"
    OUT_OF_BOUNDS = "out of bounds"
    MISALIGNED = "misaligned access"
    INPUT_WRITTEN = "write to an input"
    READS_C = "C read although beta = 0"
    BARRIER_DIVERGENCE = "barrier divergence"
    WARP_DIVERGENCE = "warp divergence"
    IN_FLIGHT = "use of data in flight"
    NEVER_WRITTEN = "elements never written"
    BAD_COPY = "bad asynchronous copy"
    BAD_BARRIER = "bad use of a barrier"
    BAD_RANK = "no such block in the cluster"
    ENDED_BLOCK = "use of an ended block's shared memory"
    DEADLOCK = "deadlock"
    LOST_COPY = "copy that nothing waits for"
    NO_PROXY_FENCE = "no proxy fence before a bulk copy"
    NO_REGISTER_FENCE = "no wgmma_fence before a product"
    WRITTEN_TWICE = "element of the second output written twice"
    BEFORE_WAIT = "global memory used before wait_for_kernels_before()"
    # Found outside the emulator process.
    WRONG_VALUE = "wrong value"
    INEXACT = "inexact sums"
    OTHER_VALUE = "another value at the second call"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of error at one line of the emitted source.

    ``line`` is 1-based, 0 where no line is to blame. ``called_from`` are the lines of the calls
    that were inlined around it, innermost first. ``where`` names what was accessed at the first
    occurrence (``smem float 513``, ``A[3,7]``), ``detail`` says the rest. ``count`` counts words,
    elements or threads, as the kind has it.
    """

    kind: FindingKind
    line: int
    text: str
    where: str
    detail: str
    count: int
    called_from: tuple[int, ...] = ()
    other_line: int | None = None

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        calls = f" [called from line {', '.join(map(str, self.called_from))}]"
        source = f" | {self.text}{calls if self.called_from else ''}" if self.text else ""
        times = f" ({self.count}x)" if self.count > 1 else ""
        parts = " ".join(part for part in (self.where, self.detail) if part)
        return f"{place}{self.kind.value}: {parts}{times}{source}"


@dataclass(frozen=True, slots=True)
class EmulatorReport:
    """Results of one or more runs of one kernel on one problem.

    ``max_error_ratio`` is the largest |C - reference| / bound (at most 1 passes; inf for a NaN),
    0 for runs on integers that were exact. ``trace`` has the accesses of the block that was traced
    (``exchange.TRACE_RECORD``), ``counts`` what gcov makes lines of (Mode.LINES).
    ``other_beta`` is the beta of the run where it is not that of the problem.
    """

    findings: tuple[Finding, ...]
    max_error_ratio: float
    wrong_elements: int
    num_accesses: int
    compile_seconds: float
    seconds: float
    trace: npt.NDArray[np.void] | None = field(default=None, repr=False, compare=False)
    counts: bytes = field(default=b"", repr=False, compare=False)
    other_beta: float | None = None

    @property
    def ok(self) -> bool:
        """Nothing found and every element right."""
        return not self.findings and self.wrong_elements == 0

    @property
    def message(self) -> str:
        """The first finding on one line, and how many more there are; empty when all is well."""
        if self.ok:
            return ""
        more = len(self.findings) - 1
        run = "" if self.other_beta is None else f"with beta = {self.other_beta:g}: "
        others = f" (and {more} more findings)" if more else ""
        return f"{run}{self.findings[0]}{others}"


Lines = tuple[int, ...]


def source_lines(executable: Path, source: Path, pcs: Iterable[int]) -> dict[int, Lines]:
    """For each return address the lines in ``source``, innermost inlined call first.

    An address that lies in none of the source's lines, or a machine without addr2line, gives ().
    """
    wanted = sorted({pc for pc in pcs if pc})
    addr2line = shutil.which("addr2line")
    if not wanted or addr2line is None:
        return dict.fromkeys(wanted, ())
    # The call is before its return address.
    addresses = [hex(pc - 1) for pc in wanted]
    answer = subprocess.run(
        [addr2line, "-a", "-i", "-e", str(executable), *addresses],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[int, Lines] = {}
    address = 0
    for row in answer.stdout.splitlines():
        if row.startswith("0x"):
            address = int(row, 16) + 1
            found[address] = ()
            continue
        match = re.match(r"(.*):(\d+)(?: \(.*)?$", row)
        if match and Path(match.group(1)).name == source.name:
            found[address] += (int(match.group(2)),)
    return {pc: found.get(pc, ()) for pc in wanted}
