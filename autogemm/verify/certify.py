"""Checks of a winner beyond the search's: edge cases on CPU and GPU, and compute-sanitizer.

The matrix is that of `autogemm.verify.edge_cases`: the kernel's own problem cut down to a
few tiles, edges, padded rows, short K, scalars, in all layouts. Each step says what it did, with
which tool, or why it did nothing; none takes longer than its share of the time.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.emulator import Emulator, Mode
from autogemm.model.kernel import Candidate, KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.space import Family, launch_plan
from autogemm.support.errors import (
    CompilerMissingError,
    DeviceError,
    KernelCompileError,
    UsageError,
)
from autogemm.targets import Target
from autogemm.verify.cases import Case, CaseResult, CaseSet, cases_of_tuned, emulated, on_gpu
from autogemm.verify.edge_cases import few_products
from autogemm.verify.schedule import Schedule, schedule_of

# Seconds for the edge cases (CPU and GPU work side by side), and for each sanitizer.
MATRIX_S = 10.0
SANITIZER_S = 20.0
# Block tiles along M, N and K.
FEW_TILES = ((1, 1, 1), (2, 1, 2), (1, 2, 3), (2, 2, 5), (1, 3, 6))
# How soon the end of the time is noticed.
TICK_S = 0.1

Progress = Callable[[str], None]


class CannotRunError(Exception):
    """The place cannot run this kernel, which says nothing of the kernel."""


@dataclass(slots=True)
class _Clock:
    """The end of the time, of `time.monotonic`; other threads may bring it forward."""

    end: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.end - time.monotonic())


@dataclass(frozen=True, slots=True)
class Certifier:
    """Certifies kernels of one family on one target. ``matrix_s`` bounds the edge cases.

    It leaves the target prepared for another problem.
    """

    family: Family
    target: Target
    compiler: Compiler | None
    matrix_s: float = field(default_factory=lambda: MATRIX_S)
    progress: Progress = field(default=lambda text: None)
    on_case: Callable[[str, int, int], None] = field(default=lambda step, done, total: None)
    """Told in the caller's thread what is done, and how many of how many cases on the GPU are."""

    def certify(
        self, candidate: Candidate, problem: Problem, before: Sequence[Check] = ()
    ) -> Certificate:
        """All checks; ``before`` are those that were made already. Stops after a failure.

        Ctrl-C ends it: what was not done yet is said to be so.
        """
        checks = list(before)
        try:
            for made in self._steps(candidate, problem):
                checks += made
                if any(check.verdict is Verdict.FAILED for check in made):
                    break
        except KeyboardInterrupt:
            checks.append(Check("the rest", Verdict.NOT_DONE, "interrupted"))
        return Certificate(tuple(checks), datetime.now(UTC))

    def _steps(self, candidate: Candidate, problem: Problem) -> Iterator[Sequence[Check]]:
        config, device = candidate.config, self.target.device
        schedule = schedule_of(self.family, config, device, problem.dtype)
        small = few_tiles(problem, schedule)
        case_set = cases_of_tuned(self.family, config, device, problem, *small)
        yield self._matrix(candidate.source, case_set)
        if self.target.can_sanitize:
            self.progress("compute-sanitizer: memcheck, racecheck, initcheck, synccheck")
            cases = case_set.on_gpu.cases
            same = [case.problem for case in cases if self._is_same(case, candidate.source)]
            yield self._sanitized(candidate, watched(same, schedule))

    def _matrix(self, source: KernelSource, case_set: CaseSet) -> Sequence[Check]:
        """The edge cases, on the CPU and on the GPU at the same time."""
        self.progress(f"{len(case_set.cases)} edge cases on the GPU and the CPU")
        clock, emulator_clock = _Clock(time.monotonic() + self.matrix_s), _Clock(math.inf)
        with ThreadPoolExecutor(1, thread_name_prefix="emulator") as pool:
            on_emulator = pool.submit(self._on_emulator, source, case_set, emulator_clock)
            try:
                return self._on_gpu(source, case_set, clock), on_emulator.result()
            except BaseException:
                emulator_clock.end = 0.0  # it need not go on
                raise

    def _on_emulator(self, source: KernelSource, case_set: CaseSet, clock: _Clock) -> Check:
        begin = time.monotonic()
        try:
            emulator = Emulator()
        except (CompilerMissingError, UsageError) as error:
            return Check("emulator", Verdict.NOT_DONE, str(error))
        # On a new machine it compiles its own parts first, which takes longer than many cases.
        clock.end = min(clock.end, time.monotonic() + self.matrix_s)
        check = _emulated(self.family, emulator)
        tool = f"{emulator.toolchain.version}, every access checked"
        results = _within(check, case_set.cases, os.cpu_count() or 1, clock)
        return self._verdict("emulator", tool, source, case_set, results, begin)

    def _on_gpu(self, source: KernelSource, case_set: CaseSet, clock: _Clock) -> Check:
        begin = time.monotonic()
        if self.compiler is None:
            return Check("gpu", Verdict.NOT_DONE, "there is no compiler")
        case_set = case_set.on_gpu
        for case in case_set.cases:  # ahead of the GPU; the cubin cache keeps them
            self.compiler.submit(
                render(self.family, case.config, case.problem), self.target.device.sm
            )
        check = on_gpu(self.family, self.target, self.compiler)
        results = self._told(_within(check, case_set.cases, 1, clock), len(case_set.cases))
        tool = f"{self.target.device.name}, {self.compiler.version}"
        return self._verdict("gpu", tool, source, case_set, results, begin)

    def _told(self, results: Iterator[CaseResult], total: int) -> Iterator[CaseResult]:
        for done, result in enumerate(results, 1):
            self.on_case("edge cases on the GPU", done, total)
            yield result

    def _verdict(  # noqa: PLR0913, PLR0917  # what makes one line
        self,
        name: str,
        tool: str,
        source: KernelSource,
        case_set: CaseSet,
        results: Iterator[CaseResult],
        begin: float,
    ) -> Check:
        done: list[CaseResult] = []
        failure = None
        try:
            for result in results:
                done.append(result)
                if not result.ok:
                    failure = result
                    break
        except (CannotRunError, DeviceError, UsageError) as error:
            return Check(name, Verdict.NOT_DONE, str(error), tool, time.monotonic() - begin)
        seconds = time.monotonic() - begin
        if failure is not None:
            what = f"{failure.case.problem.label}: {failure.message}"
            return Check(name, Verdict.FAILED, " ".join(what.split()), tool, seconds)
        num_same = sum(self._is_same(result.case, source) for result in done)
        what = (
            f"{len(done)} of {len(case_set.cases)} edge cases, {num_same} of them with exactly "
            f"this source; {case_set.num_skipped} are not legal for this config"
        )
        if len(done) < len(case_set.cases):
            what += f"; then the {self.matrix_s:g} s were over"
        verdict = Verdict.PASSED if num_same else Verdict.NOT_DONE
        return Check(name, verdict, what, tool, seconds)

    def _sanitized(self, candidate: Candidate, problem: Problem | None) -> Sequence[Check]:
        """Watch the kernel on its own problem cut down, so that it is the very machine code."""
        if problem is None:
            why = "no small problem needs exactly this source"
            return (Check("compute-sanitizer", Verdict.NOT_DONE, why),)
        plan = launch_plan(self.family, candidate.config, problem, few_blocks=True)
        small = Candidate(candidate.source, plan, candidate.compiled)
        return self.target.sanitize(small, problem, SANITIZER_S)

    def _is_same(self, case: Case, source: KernelSource) -> bool:
        return render(self.family, case.config, case.problem).code == source.code


def watched(problems: Sequence[Problem], schedule: Schedule) -> Problem | None:
    """The problem for compute-sanitizer: the first of which all slices of a block get as many
    k_tiles, more than they have stages; or one with the first of these alone, or the first.

    Where warps passed barriers of their own unequally often, racecheck (2025.3) reports races
    across the block's next barrier that are none: `benchmarks/racecheck_barriers.py`.
    """

    def merits(problem: Problem) -> tuple[bool, bool]:
        k_tiles = math.ceil(problem.k / schedule.tile[2])
        equal = k_tiles % schedule.k_tiles_multiple == 0
        return equal, equal and k_tiles >= schedule.filled_equally

    return max(problems, key=merits, default=None)


def few_tiles(problem: Problem, schedule: Schedule) -> Iterator[Problem]:
    """Problems of a few block tiles that need the same source: as ragged and as aligned.

    From one k_tile to a pipeline that goes round twice, and to one that fills in each slice of a
    block and goes on; packed or padded as the problem is.
    """
    tile = schedule.tile
    times_of = [*FEW_TILES, (1, 1, max(4, schedule.rounds))]
    if schedule.slices > 1:
        times_of.append((2, 2, schedule.filled_equally - (problem.k % tile[2] > 0)))
    for number, times in enumerate(times_of):
        extents = (problem.m, problem.n, problem.k)
        m, n, k = (
            many * side + extent % side
            for many, side, extent in zip(times, tile, extents, strict=True)
        )
        packed = Problem(m, n, k, problem.layout, problem.dtype)
        before = Problem(*extents, problem.layout, problem.dtype)
        lda, ldb, ldc = (
            getattr(packed, name) + getattr(problem, name) - getattr(before, name)
            for name in ("lda", "ldb", "ldc")
        )
        alpha, beta = (-1.25, 0.5) if number % 2 else (problem.alpha, problem.beta)
        alpha, beta = problem.dtype.legal_factors(alpha, beta)
        found = replace(packed, lda=lda, ldb=ldb, ldc=ldc, alpha=alpha, beta=beta)
        yield few_products(found, problem, tile, number).with_epilogue(problem.epilogue)


def _emulated(family: Family, emulator: Emulator) -> Callable[[Case], CaseResult]:
    """Like `autogemm.verify.cases.on_cpu`, but what the emulator cannot run is no failure."""

    def check(case: Case) -> CaseResult:
        try:
            return emulated(family, emulator, Mode.CHECK, case)
        except (KernelCompileError, UsageError) as error:
            raise CannotRunError(f"the emulator does not run this kernel: {error}") from error

    return check


def _within(
    check: Callable[[Case], CaseResult], cases: Sequence[Case], threads: int, clock: _Clock
) -> Iterator[CaseResult]:
    """Results as they come, until the time is up; what has not begun then is dropped.

    Raises at the end what kept a case from being run: others may fail all the same.
    """
    pool = ThreadPoolExecutor(threads)
    pending: set[Future[CaseResult]] = {pool.submit(check, case) for case in cases}
    left_out: Exception | None = None
    try:
        while pending and clock.left_s > 0:
            done, pending = wait(pending, min(TICK_S, clock.left_s), FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                if isinstance(error, CannotRunError | UsageError):
                    left_out = left_out or error
                else:
                    yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if left_out is not None:
        raise left_out
