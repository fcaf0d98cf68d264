"""Turns addresses and offsets into words: the line, the element, and the error."""

import signal
from dataclasses import replace

from autogemm.emulator.exchange import MAX_MEMORY_BYTES, RawFinding, RawResult, Region, State
from autogemm.emulator.findings import Finding, FindingKind, Lines, source_lines
from autogemm.emulator.toolchain import Build
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import ArgumentKind
from autogemm.reference import Changed, Comparison

# In the order of `Kind` in shim/protocol.h.
KINDS = tuple(FindingKind)

# In the order of `Misuse` there.
MISUSES = (
    "no mbarrier was initialised here",
    "it was not fenced after its initialisation",
    "more arrivals than its phase has",
    "initialised for no arrivals",
    "more than 64 mbarriers in a block",
    "an mbarrier that does not lie in shared memory",
    "the cluster's barrier arrived at twice without a wait between",
    "a wait for the cluster without an arrival before",
    "an mbarrier used as data",
    "named barriers have numbers 1 to 15, and a multiple of 32 threads of the block",
    "others have come to this barrier with another number of threads",
)

# The order of reporting: earlier errors first, and causes before their consequences.
SEVERITY = (
    FindingKind.CRASHED,
    FindingKind.TIMED_OUT,
    FindingKind.MISALIGNED,
    FindingKind.OUT_OF_BOUNDS,
    FindingKind.INPUT_WRITTEN,
    FindingKind.BAD_COPY,
    FindingKind.BAD_RANK,
    FindingKind.BAD_BARRIER,
    FindingKind.WARP_DIVERGENCE,
    FindingKind.BARRIER_DIVERGENCE,
    FindingKind.DEADLOCK,
    FindingKind.ENDED_BLOCK,
    FindingKind.LOST_COPY,
    FindingKind.NO_PROXY_FENCE,
    FindingKind.NO_REGISTER_FENCE,
    FindingKind.IN_FLIGHT,
    FindingKind.BEFORE_WAIT,
    FindingKind.RACE,
    FindingKind.UNINITIALISED,
    FindingKind.READS_C,
    FindingKind.NEVER_WRITTEN,
    FindingKind.WRITTEN_TWICE,
    FindingKind.WRONG_VALUE,
    FindingKind.INEXACT,
    FindingKind.OTHER_VALUE,
)


def describe_all(
    raw: RawResult, built: Build, plan: LaunchPlan, problem: Problem, text: str
) -> tuple[Finding, ...]:
    """The findings of one run with their lines, one per kind, line and region, worst first."""
    place = Places(plan, problem)
    known = raw.header.findings[: raw.header.num_findings]
    pcs = [pc for finding in known for pc in (finding.pc, finding.other_pc)]
    lines = source_lines(built.executable, built.source_path, [*pcs, raw.header.crash_pc])
    rows = text.splitlines()
    merged: dict[tuple[int, int, Lines], Finding] = {}
    for finding in known:
        at = lines.get(finding.pc, ())
        key = (finding.kind, finding.region, at)
        if key in merged:
            merged[key] = replace(merged[key], count=merged[key].count + finding.count)
        else:
            merged[key] = _describe(finding, at, lines.get(finding.other_pc, ()), place, rows)
    findings = list(merged.values()) + _endings(raw, lines, rows, bool(known))
    return tuple(sorted(findings, key=lambda finding: SEVERITY.index(finding.kind)))


class Places:
    """The names of what lies in memory during one run."""

    def __init__(self, plan: LaunchPlan, problem: Problem) -> None:
        self._problem = problem
        self._extras = [extra.argument for extra in plan.arrays]
        self._extras += plan.signature.of_kind(ArgumentKind.GROUPS)[1:]

    def name(self, finding: RawFinding) -> str:
        """``A[3,4]``, ``bias[7]``, ``smem float 12``; empty where it is none of these."""
        region = finding.region
        owner = f" of the block of rank {finding.owner - 1}" if finding.owner else ""
        match region:
            case Region.A | Region.B | Region.C:
                return self._element(Region(region), finding.offset)
            case Region.WORKSPACE:
                return f"workspace float {finding.offset // 4}"
            case Region.DYNAMIC_SHARED:
                return f"smem float {finding.offset // 4}{owner}"
            case Region.STATIC_SHARED:
                return f"static smem float {finding.offset // 4}{owner}"
            case Region.ELSEWHERE:
                return ""
        extra = self._extras[region - Region.EXTRA]
        element = extra.element(self._problem.dtype)
        # Without an element type it is an array of int.
        return f"{extra.name}[{finding.offset // (element.size_bytes if element else 4)}]"

    def _element(self, matrix: Region, offset: int) -> str:
        problem = self._problem
        element = {Region.B: problem.dtype.b, Region.C: problem.dtype.c}.get(
            matrix, problem.dtype.ab
        )
        stride = (problem.lda, problem.ldb, problem.ldc)[matrix]
        columns = (problem.a_shape[1], problem.b_shape[1], problem.n)[matrix]
        row, column = divmod(offset // element.size_bytes, stride)
        last = problem.num_matrices[matrix] - 1
        # Rows before all products and behind them are counted from the first's and the last's.
        product = min(max(row // problem.batch_rows[matrix], 0), last) if last else 0
        row -= product * problem.batch_rows[matrix]
        name = f"{matrix.name}[{row},{column}]" + (f" of product {product}" if product else "")
        if row >= problem.own_rows[matrix] and product < last:
            return f"{name} (gap between products)"
        return f"{name} (padding between rows)" if column >= columns else name


SECOND_PASS = ", in a second run on the workspace that the first left"


def wrong_value(comparison: Comparison, second_pass: bool, name: str = "C") -> Finding:
    """C, or a second output of that name, differs from the reference, or padding was written."""
    when = SECOND_PASS if second_pass else ""
    if comparison.complaint:
        return Finding(FindingKind.INEXACT, 0, "", name, f"is {comparison.complaint}{when}", 1)
    if comparison.first_wrong is None:
        detail = f"written, although it is the padding between rows{when}"
        where, changed = f"{name}'s padding", comparison.padding_changed
        return Finding(FindingKind.OUT_OF_BOUNDS, 0, "", where, detail, changed)
    detail = f"is {comparison.got:g}, must be {comparison.expected:g}{when}"
    where = _element(comparison.first_wrong, name)
    return Finding(FindingKind.WRONG_VALUE, 0, "", where, detail, comparison.wrong_elements)


def other_value(changed: Changed) -> Finding:
    """The same call gave different bits, both within the bound."""
    detail = f"is {changed.second:.9g}, was {changed.first:.9g}: the order of additions changes"
    where = _element(changed.first_at)
    return Finding(FindingKind.OTHER_VALUE, 0, "", where, detail, changed.num_elements)


def _element(place: tuple[int, ...], name: str = "C") -> str:
    """``C[3,4]``, ``C[3,4] of product 1``; the first product is not named."""
    product, row, column = place
    return f"{name}[{row},{column}]" + (f" of product {product}" if product else "")


def begun_as(fill: int, finding: Finding) -> Finding:
    """The finding, of a run in which variables begin with that byte throughout."""
    hint = f" where variables begin as bytes {fill:#x}: one may be read before it is written"
    return replace(finding, detail=finding.detail + hint)


def _describe(
    finding: RawFinding, at: Lines, other: Lines, places: Places, rows: list[str]
) -> Finding:
    kind = KINDS[finding.kind]
    other_line = other[0] if other else None
    return Finding(
        kind=kind,
        line=at[0] if at else 0,
        text=_row(rows, at),
        where=places.name(finding),
        detail=_detail(kind, finding, other_line) + (SECOND_PASS if finding.pass_idx else ""),
        count=finding.count,
        called_from=at[1:],
        other_line=other_line,
    )


def _row(rows: list[str], at: Lines) -> str:
    return rows[at[0] - 1].strip() if at and at[0] <= len(rows) else ""


def _detail(kind: FindingKind, finding: RawFinding, other_line: int | None) -> str:
    who = f"by thread {finding.thread} of block {finding.block}"
    verb = "write" if finding.write else "read"
    earlier = f"thread {finding.other_thread} of block {finding.other_block}"
    at_other = f" at line {other_line}" if other_line else ""
    others_wait = f"others wait{at_other}" if other_line else "others have left the kernel"
    if kind is FindingKind.OUT_OF_BOUNDS and finding.region == Region.ELSEWHERE:
        return f"index outside its array {who}"
    if kind is FindingKind.IN_FLIGHT and finding.region == Region.ELSEWHERE:
        return f"{verb} {who} of accumulators that a product still adds to"
    details = {
        FindingKind.RACE: f"{verb} {who}, not ordered with an access by {earlier}{at_other}",
        FindingKind.IN_FLIGHT: f"{verb} {who}, while a copy by {earlier}{at_other} is in flight",
        FindingKind.OUT_OF_BOUNDS: f"{verb} of {finding.size} bytes {who}",
        FindingKind.MISALIGNED: f"{verb} of {finding.size} bytes {who}",
        FindingKind.BARRIER_DIVERGENCE: f"block {finding.block}: {others_wait}",
        FindingKind.WARP_DIVERGENCE: f"{who}: not all lanes of the mask take part",
        FindingKind.BAD_COPY: (
            f"{who}: valid_bytes out of range, a bulk copy of no multiple of 16 bytes, or not "
            "between global and shared memory"
        ),
        FindingKind.BAD_BARRIER: f"{who}: {MISUSES[finding.size % len(MISUSES)]}",
        FindingKind.BAD_RANK: who,
        FindingKind.NO_PROXY_FENCE: (
            f"bulk copy {who} over what {earlier} stored or loaded{at_other}"
            if finding.write
            else f"bulk copy {who} of what {earlier} stored{at_other}"
        ),
        FindingKind.NO_REGISTER_FENCE: f"{who}: it may come before what was written to registers",
        FindingKind.LOST_COPY: f"{who}: its block ends before it lands",
        FindingKind.ENDED_BLOCK: f"{who}, which may have left the kernel",
        FindingKind.DEADLOCK: f"{who}: what it waits for never comes",
        FindingKind.NEVER_WRITTEN: "is the first",
        FindingKind.WRITTEN_TWICE: f"{who}, before by {earlier}{at_other}",
    }
    return details.get(kind, f"{verb} {who}")


def _endings(
    raw: RawResult, lines: dict[int, Lines], rows: list[str], explained: bool
) -> list[Finding]:
    """Return the end of the process, where that is a finding of its own."""
    at = lines.get(raw.header.crash_pc, ())
    place = (at[0] if at else 0, _row(rows, at))
    if raw.state is State.NO_KERNEL:
        return [Finding(FindingKind.CRASHED, 0, "", "", "the source has no such kernel", 1)]
    if raw.state is State.BAD_CLUSTER:
        detail = "clusters have 1 to 16 blocks, and grids are multiples of clusters"
        return [Finding(FindingKind.CRASHED, 0, "", "", detail, 1)]
    if raw.state is State.TIMED_OUT:
        detail = f"the kernel did not end within {raw.header.deadline_s} s"
        return [Finding(FindingKind.TIMED_OUT, *place, "", detail, 1, at[1:])]
    if raw.state is State.TOO_LARGE:
        detail = f"the kernel's process took more than {MAX_MEMORY_BYTES // 2**30} GiB of memory"
        return [Finding(FindingKind.CRASHED, 0, "", "", detail, 1)]
    if raw.state is State.CRASHED or (raw.state is State.ABORTED and not explained):
        name = signal.Signals(raw.header.signal).name if raw.header.signal else "no signal"
        return [Finding(FindingKind.CRASHED, *place, "", f"({name})", 1, at[1:])]
    return []
