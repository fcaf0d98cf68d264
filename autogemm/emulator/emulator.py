"""The emulator builds a kernel's executable, runs it on a problem, and reports its findings."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autogemm.emulator.analysis import AccessLine, analyse
from autogemm.emulator.buffers import buffers_of
from autogemm.emulator.counting import COUNTS_CAPACITY, LineCount, added, counted, find_gcov
from autogemm.emulator.describe import begun_as, describe_all, other_value, wrong_value
from autogemm.emulator.exchange import (
    Buffer,
    Program,
    RawExchange,
    RawResult,
    check_launchable,
    run_process,
)
from autogemm.emulator.findings import EmulatorReport, Finding, source_lines
from autogemm.emulator.toolchain import (
    Build,
    Mode,
    Toolchain,
    assembly,
    build,
    find_toolchain,
    shim_sha256,
)
from autogemm.model.kernel import KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.reference import Comparison, Data, Inputs, changed_between, compare, make_inputs
from autogemm.support.disk_cache import trim
from autogemm.support.errors import CompilerMissingError, KernelCompileError, UsageError
from autogemm.support.resources import cache_folder


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run.

    ``seed`` makes the inputs and, when not 0, shuffles threads and blocks. ``late_copies`` lets
    asynchronous copies land at their wait, else at once. ``misalign_bytes`` moves A, B and C off
    their 256-byte alignment (a multiple of 4). ``resident_blocks`` run by turns, with a change
    before each atomic; 1 runs one block after the other (clusters are always together).
    ``trace_block`` records the accesses of that block. ``stack_fill`` is the byte that fills the
    threads' stacks: what variables begin with in Mode.UNSET. ``deadline_s`` is time of a processor.
    """

    mode: Mode = Mode.CHECK
    data: Data = Data.INTEGERS
    seed: int = 0
    late_copies: bool = True
    misalign_bytes: int = 0
    resident_blocks: int = 1
    trace_block: int | None = None
    stack_fill: int = 0
    deadline_s: int = 60


# The runs of verify(): exact sums in order with late copies, then reals, shuffled, with early
# copies and interleaved blocks.
VERIFYING_RUNS = (
    RunOptions(),
    RunOptions(data=Data.REALS, seed=1, late_copies=False, resident_blocks=8),
)

# Bytes that show a variable that is read before it is written, unless it hides in the zero that
# GCC gives to bool, in the even number to counts and parities, in a finite float that beta = 0
# takes away: all ones are NaN, true, odd and -1; 0x3d is large, true, odd and above zero, and a
# float so small (0.046) that emulated FP32 does not give way to plain FP32, which would read anew.
UNSET_RUNS = (
    RunOptions(mode=Mode.UNSET, stack_fill=0xFF),
    RunOptions(mode=Mode.UNSET, stack_fill=0x3D, late_copies=False),
)

# Runs that verify() adds for kernels that split numbers: exponents far apart, then infinities and
# NaN, then large numbers that meet zeros.
EXTREME_RUNS = (
    RunOptions(data=Data.WIDE, seed=2, late_copies=False),
    RunOptions(data=Data.SPECIAL, seed=3),
    RunOptions(data=Data.SPARSE, seed=4, late_copies=False),
)

TRACE_CAPACITY = 1 << 22


# A beta for a problem whose own is 0, where both paths through the epilogue are to be run.
OTHER_BETA = 0.5


@dataclass(frozen=True, slots=True)
class Verifying:
    """The way to verify: in which mode, and what beyond two runs of the problem as it is.

    With ``extremes`` also with the numbers that FP32 has at its ends. With ``both_betas`` one run
    reads C and the other does not: the second has a beta of 0, or OTHER_BETA where it is 0.
    """

    mode: Mode = Mode.CHECK
    extremes: bool = False
    both_betas: bool = False

    def runs(self, plan: LaunchPlan, problem: Problem) -> Iterator[tuple[RunOptions, Problem]]:
        """The runs of a kernel, and the problem of each.

        Where no leading dimension allows vectors, the base pointers are off by an element as well.
        Blocks run by turns only where they can meet, in a workspace.
        """
        all_odd = problem.lda % 2 and problem.ldb % 2 and problem.ldc % 2
        other_beta = 0.0 if problem.beta else OTHER_BETA
        other = problem.with_factors(*problem.dtype.legal_factors(problem.alpha, other_beta))
        for options in (*VERIFYING_RUNS, *(EXTREME_RUNS if self.extremes else ())):
            how = replace(
                options,
                mode=self.mode,
                misalign_bytes=problem.dtype.c.size_bytes if all_odd else 0,
                resident_blocks=options.resident_blocks if plan.workspace_bytes else 1,
            )
            is_second = options is VERIFYING_RUNS[1]
            yield how, other if is_second and self.both_betas else problem


class Emulator:
    """Runs emitted CUDA on this machine's processor. It verifies and analyses; it never times.

    Each run is a process of its own, so that no kernel can take Python down; calls from several
    threads are fine. Raises CompilerMissingError when g++ is missing, too old, or does not report
    accesses at their full width, UsageError when the cache folder cannot be written.
    `verify` stops a kernel that takes a processor for longer than ``deadline_s``. Executables of
    kernels are in ``kernels_in`` where they are not to be kept, else in the cache folder too.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        deadline_s: int = 60,
        *,
        kernels_in: Path | None = None,
    ) -> None:
        self.toolchain = find_toolchain()
        self.deadline_s = deadline_s
        self.kernels_in = kernels_in
        if cache_dir is None:
            trim(cache_folder())
        self.folder = (cache_dir or cache_folder()) / "emulator"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the emulator cannot keep its executables in {self.folder}: {error.strerror}; "
                "set AUTOGEMM_CACHE to a folder that can be written"
            ) from error
        check_access_widths(self.toolchain, self.folder)

    def _built(self, source: KernelSource, plan: LaunchPlan, mode: Mode) -> Build:
        how = (mode, self.toolchain, self.folder)
        return build(source.text, plan.signature, *how, kernels_in=self.kernels_in)

    def run(
        self,
        source: KernelSource,
        plan: LaunchPlan,
        problem: Problem,
        options: RunOptions = RunOptions(),
    ) -> EmulatorReport:
        """Run the launches once and compare C with a float64 reference.

        Raises KernelCompileError when g++ refuses the source, UsageError for a plan that cannot be
        launched. Errors of the kernel are in the report.
        """
        check_launchable(plan)
        built = self._built(source, plan, options.mode)
        start = time.perf_counter()
        inputs = make_inputs(problem, plan, options.data, options.seed)
        buffers = buffers_of(inputs, problem, plan, options.misalign_bytes)
        raw = run_process(
            Program(built.executable, built.confine), _header(options), plan, problem, buffers
        )
        comparison = compare(problem, inputs, raw.c)
        second = raw.first_c is not None
        if raw.first_c is not None:
            first = compare(problem, inputs, raw.first_c)
            if first.is_wrong or not comparison.is_wrong:
                comparison, second = first, False
        of_output = _compare_output(problem, inputs, raw)
        findings = describe_all(raw, built, plan, problem, source.text)
        if raw.state.completed and comparison.is_wrong:
            findings += (wrong_value(comparison, second),)
        elif raw.state.completed and raw.first_c is not None:
            changed = changed_between(problem, raw.first_c, raw.c)
            findings += (other_value(changed),) if changed is not None else ()
        if raw.state.completed and of_output is not None and of_output.is_wrong:
            output = problem.epilogue.output
            findings += (wrong_value(of_output, False, output.name if output else ""),)
        if options.stack_fill:
            findings = tuple(begun_as(options.stack_fill, finding) for finding in findings)
        comparisons = (comparison,) if of_output is None else (comparison, of_output)
        return _report(raw, built, comparisons, findings, time.perf_counter() - start)

    def verify(  # noqa: PLR0913  # a kernel, its problem, and how to run it
        self,
        source: KernelSource,
        plan: LaunchPlan,
        problem: Problem,
        mode: Mode = Mode.CHECK,
        *,
        extremes: bool = False,
        both_betas: bool = False,
    ) -> EmulatorReport:
        """Run with both kinds of data and schedule, as `Verifying` says.

        Returns the first report that is not ok, or the last.
        """
        for options, own in Verifying(mode, extremes, both_betas).runs(plan, problem):
            how = replace(options, deadline_s=self.deadline_s)
            report = self.run(source, plan, own, how)
            if own.beta != problem.beta:
                report = replace(report, other_beta=own.beta)
            if not report.ok:
                break
        return report

    def count_lines(
        self, source: KernelSource, plan: LaunchPlan, problem: Problem, *, extremes: bool = False
    ) -> dict[int, LineCount]:
        """Count the runs of each line of the source during verification, whatever is found.

        Lines that the compiler removed, and those that make no code, are not among them. Raises
        CompilerMissingError without gcov, UsageError where a run does not end by itself.
        """
        gcov = find_gcov(self.toolchain)
        found: list[LineCount] = []
        how = Verifying(Mode.LINES, extremes, both_betas=True)
        for options, own in how.runs(plan, problem):
            report = self.run(source, plan, own, options)
            if not report.counts:
                raise UsageError(
                    f"no line of the kernel was counted at {problem.label}: {report.message}"
                )
            built = self._built(source, plan, Mode.LINES)
            found += counted(built, report.counts, gcov).values()
        return added(found)

    def verify_unset(
        self, source: KernelSource, plan: LaunchPlan, problem: Problem
    ) -> EmulatorReport:
        """Run with variables that begin as garbage of two kinds; the first report that is not ok,
        or the last.

        An error that `verify` did not find is due to a variable that is read before it is written.
        """
        for options in UNSET_RUNS:
            how = replace(options, deadline_s=self.deadline_s)
            report = self.run(source, plan, problem, how)
            if not report.ok:
                break
        return report

    def is_same_program(self, text: str, other: str) -> bool:
        """Whether g++ compiles two kernels' texts to the same optimised code, so that only their
        wording differs.

        Raises KernelCompileError.
        """
        return assembly(text, self.toolchain) == assembly(other, self.toolchain)

    def analyse(
        self, source: KernelSource, plan: LaunchPlan, problem: Problem, block: int = 0
    ) -> tuple[AccessLine, ...]:
        """Wavefronts and sectors per request and line, for one block of the problem's grid.

        Raises UsageError when the block does more accesses than a trace holds: take a smaller K.
        """
        report = self.run(source, plan, problem, RunOptions(trace_block=block))
        assert report.trace is not None
        if len(report.trace) == TRACE_CAPACITY:
            raise UsageError(
                f"a trace holds {TRACE_CAPACITY} accesses, a block of {problem.label} makes more: "
                "take a smaller K"
            )
        built = self._built(source, plan, Mode.CHECK)
        pcs = {int(pc) for pc in np.unique(report.trace["pc"])}
        lines = source_lines(built.executable, built.source_path, pcs)
        return analyse(report.trace, lines, source.text)


def _header(options: RunOptions) -> RawExchange:
    return RawExchange(
        seed=options.seed,
        late_copies=options.late_copies,
        resident_blocks=options.resident_blocks,
        deadline_s=options.deadline_s,
        trace_capacity=0 if options.trace_block is None else TRACE_CAPACITY,
        trace_block=options.trace_block or 0,
        stack_fill=options.stack_fill,
        counts_capacity=COUNTS_CAPACITY if options.mode is Mode.LINES else 0,
    )


def _compare_output(problem: Problem, inputs: Inputs, raw: RawResult) -> Comparison | None:
    """The second output as the kernel left it against its reference; None where there is none."""
    if raw.output is None:
        return None
    return compare(problem.of_output, inputs.of_output, raw.output)


def _report(
    raw: RawResult,
    built: Build,
    comparisons: Sequence[Comparison],
    findings: tuple[Finding, ...],
    seconds: float,
) -> EmulatorReport:
    return EmulatorReport(
        findings=findings,
        max_error_ratio=max(one.max_error_ratio for one in comparisons),
        wrong_elements=sum(one.wrong_elements for one in comparisons),
        num_accesses=raw.header.num_accesses,
        compile_seconds=built.seconds,
        seconds=seconds,
        trace=raw.trace if raw.header.trace_capacity else None,
        counts=raw.counts,
    )


PLAN = LaunchPlan((Launch("probe", (1, 1, 1), (1, 1, 1), 16),))
PROBE = (
    f'extern "C" __global__ void probe({PLAN.signature.in_kernel("float")}) {{'
    """
    extern __shared__ __align__(16) float dynamic[];
    __shared__ __align__(8) float fixed[4];
    const float4 four = *reinterpret_cast<const float4*>(A);
    *reinterpret_cast<float4*>(dynamic) = make_float4(four.w, four.z, four.y, four.x);
    const float2 two = *reinterpret_cast<const float2*>(dynamic + 2);
    *reinterpret_cast<float2*>(fixed + M - 1) = two;
    C[0] = fixed[K] + alpha;
}
"""
)
# (bytes, whether it writes) -> how often.
EXPECTED = Counter({(16, 0): 1, (16, 1): 1, (8, 0): 1, (8, 1): 1, (4, 0): 1, (4, 1): 1})


def check_access_widths(toolchain: Toolchain, folder: Path) -> None:
    """Raises CompilerMissingError when an access of the probe is missing, split or doubled."""
    key = hashlib.sha256(f"{toolchain.version}\0{shim_sha256()}".encode()).hexdigest()[:32]
    stamp = folder / f"probed-{key}"
    if stamp.is_file():
        return
    seen = _observed(toolchain, folder)
    if seen != EXPECTED:
        raise CompilerMissingError(
            f"the emulator cannot use {toolchain.gxx} ({toolchain.version}): it reports accesses "
            f"of (bytes, write) {sorted(seen.elements())} where there are "
            f"{sorted(EXPECTED.elements())}; name another g++ in AUTOGEMM_GXX"
        )
    stamp.touch()


def _observed(toolchain: Toolchain, folder: Path) -> Counter[tuple[int, int]]:
    try:
        built = build(PROBE, PLAN.signature, Mode.CHECK, toolchain, folder)
    except KernelCompileError as error:
        raise CompilerMissingError(
            f"the emulator cannot use {toolchain.gxx} ({toolchain.version}): {error}"
        ) from error
    ones = np.ones(4, np.float32)
    buffers = [Buffer(ones, 4, 4, True) for _ in range(3)] + [Buffer(ones[:0], 0, 0, False)]
    header = RawExchange(deadline_s=10, trace_capacity=64)
    trace = run_process(
        Program(built.executable, built.confine), header, PLAN, Problem(1, 1, 1), buffers
    ).trace
    return Counter((int(record["size"]), int(record["region_and_write"]) % 2) for record in trace)
