"""Configs over the matrix of edge cases, on the emulator or on a GPU."""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.emulator import Emulator, EmulatorReport, Mode
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN as PLAIN_GEMM
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import NONE as NO_GROUPS
from autogemm.model.groups import Groups
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, KernelSource, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.model.splitting import splitting_of
from autogemm.space import (
    Family,
    Space,
    build_space,
    is_legal,
    launch_plan,
    nearest_legal,
)
from autogemm.support.errors import EmptySpaceError, KernelCompileError
from autogemm.targets import MeasureOptions, Target
from autogemm.verify.edge_cases import (
    Batches,
    edge_cases,
    edge_shapes,
    reduced,
    unset_cases,
    with_groups,
    with_near_rows,
)
from autogemm.verify.schedule import schedule_of

# Random configs are drawn from the first of these for which there are any: sizes and alignment that
# leave most of a space legal. Families for few rows have none for the first.
ROOMY_PROBLEMS = (Problem(4096, 4096, 4096), Problem(64, 4096, 4096), Problem(8, 4096, 4096))
# Extremes are for problems of so many operations at most: plain FP32 is slow.
EXTREME_FLOPS = 10_000_000

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Case:
    """One config on one problem; ``unset`` and ``extremes`` ask the emulator for more runs.

    Those of ``unset`` have variables that begin as garbage. Those of ``extremes`` have infinities,
    NaN and wide exponents: for kernels that split numbers, which must give way where a number
    cannot be split.
    """

    config: Config
    problem: Problem
    unset: bool = False
    extremes: bool = False

    def with_products(self, count: int) -> "Case":
        """The case with so many products."""
        batch = replace(self.problem.batch, count=count)
        return replace(self, problem=replace(self.problem, batch=batch))

    def with_groups(self, count: int) -> "Case":
        """The case with so many groups."""
        return replace(self, problem=with_groups(self.problem, count))


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of one config in their order, and how many were skipped as not legal for it.

    Planned cases are those for which no legal config has been sought yet: none is skipped.
    """

    config: Config
    dtype: DType
    cases: tuple[Case, ...]
    num_skipped: int = 0

    @property
    def on_gpu(self) -> "CaseSet":
        """With rows near each other where they are farther apart than a GPU's memory is large."""
        near = (replace(case, problem=with_near_rows(case.problem)) for case in self.cases)
        return replace(self, cases=tuple(dict.fromkeys(near)))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Whether a case passed. ``message`` is empty when it did.

    ``max_error_ratio`` is the largest |C - reference| / bound, nan where nothing was compared.
    """

    case: Case
    ok: bool
    message: str
    max_error_ratio: float
    seconds: float


Check = Callable[[Case], CaseResult]


def sample_configs(  # noqa: PLR0913, PLR0917  # what a space is of, and what of it is wanted
    family: Family,
    device: Device,
    count: int,
    seed: int,
    fix: dict[str, tuple[Value, ...]] | None = None,
    dtype: DType = DType.F32,
    epilogue: Epilogue = PLAIN_GEMM,
) -> list[Config]:
    """``count`` different legal configs at random, fewer where there are not as many.

    Raises EmptySpaceError when there is none.
    """
    space = _roomy_space(family, device, fix, dtype, epilogue)
    chosen = np.random.default_rng(seed).permutation(len(space))[:count]
    return [space.config(int(index)) for index in chosen]


def _roomy_space(
    family: Family,
    device: Device,
    fix: dict[str, tuple[Value, ...]] | None,
    dtype: DType,
    epilogue: Epilogue,
) -> Space:
    # Elements of 8 bits are multiplied in the layout nt alone.
    groups = Groups(2) if epilogue.is_of_groups else NO_GROUPS
    first, *others = (
        replace(problem, dtype=dtype, layout=layout, groups=groups).with_epilogue(epilogue)
        for layout in (Layout.NN, Layout.NT)
        for problem in ROOMY_PROBLEMS
    )
    try:
        return build_space(family, first, device, fix)
    except EmptySpaceError:
        for problem in others:
            with suppress(EmptySpaceError):
                return build_space(family, problem, device, fix)
        raise


def cases_of(  # noqa: PLR0913  # a config, and what it is to be run on
    family: Family,
    config: Config,
    device: Device,
    *,
    adapt: bool = True,
    dtype: DType = DType.F32,
    tuned_for: tuple[Problem, ...] = (),
    epilogue: Epilogue = PLAIN_GEMM,
    batches: Batches | None = None,
) -> CaseSet:
    """The edge cases for a config's schedule, in the order of coverage: see `planned_cases`.

    Where the config is not legal for a problem (a vector width, a padding), the nearest legal one
    with the same tiles stands in if ``adapt``; else the problem is skipped.
    """
    planned = planned_cases(family, config, device, dtype, tuned_for, epilogue, batches)
    found = [legal_case(family, device, case, adapt=adapt) for case in planned]
    cases = tuple(case for case in found if case is not None)
    return CaseSet(config, dtype, cases, len(planned) - len(cases))


def planned_cases(  # noqa: PLR0913, PLR0917  # a config, and what it is to be run on
    family: Family,
    config: Config,
    device: Device,
    dtype: DType = DType.F32,
    tuned_for: tuple[Problem, ...] = (),
    epilogue: Epilogue = PLAIN_GEMM,
    batches: Batches | None = None,
) -> tuple[Case, ...]:
    """Return a config with each of its edge cases, legal for it or not, in the order of coverage.

    Each shape comes once before any comes again in another layout, and begins with a layout for
    which the config is legal. ``tuned_for`` are problems to be added in front, cut down in size to
    what needs the same source; all have ``dtype`` and ``epilogue``. Without ``batches`` some cases
    have several products, and some groups, where the family and the epilogue take them.
    """
    batches = _batches(family, epilogue) if batches is None else batches
    schedule = schedule_of(family, config, device, dtype)
    splits = splitting_of(config) is not None
    shapes = [
        # Stable: layouts keep their order otherwise.
        sorted(turns, key=lambda one: not is_legal(family, config, one, device))
        for turns in zip(
            *edge_cases(schedule, dtype=dtype, epilogue=epilogue, batches=batches), strict=True
        )
    ]
    # A problem that is no deeper than that stays so.
    deep = schedule.filled_equally * schedule.tile[2]
    tuned = tuple(
        reduced(one, schedule.tile, schedule.rounds if one.k > deep else schedule.filled_equally)
        for one in tuned_for
    )
    first, *others = zip(*shapes, strict=True)
    unset = unset_cases(schedule, dtype, epilogue, batches)
    return (
        *(Case(config, problem, unset=True, extremes=splits) for problem in tuned),
        *(
            Case(config, one, one in unset, extremes=splits and one.flops <= EXTREME_FLOPS)
            for one in first
        ),
        *(Case(config, problem, problem in unset) for turn in others for problem in turn),
    )


def count_cases(  # noqa: PLR0913, PLR0917  # as `planned_cases`
    family: Family,
    config: Config,
    device: Device,
    dtype: DType = DType.F32,
    epilogue: Epilogue = PLAIN_GEMM,
    batches: Batches | None = None,
) -> int:
    """Return how many cases `planned_cases` returns, without seeking what is legal."""
    schedule = schedule_of(family, config, device, dtype)
    batches = _batches(family, epilogue) if batches is None else batches
    return len(Layout) * len(edge_shapes(schedule, batches))


def _batches(family: Family, epilogue: Epilogue) -> Batches:
    """The cases with several products, or groups, where nothing else is said."""
    if epilogue.is_of_groups:
        return Batches.ALL_GROUPS
    if not (family.takes_batches and epilogue.takes_batches):
        return Batches.NONE
    if family.divides_k:
        return Batches.SOME_AND_DIVIDED
    return Batches.SOME_AND_GROUPS if family.takes_groups else Batches.SOME


def legal_case(family: Family, device: Device, case: Case, *, adapt: bool = True) -> Case | None:
    """Return the case; with the nearest legal config if its own is not legal and ``adapt``.

    None where there is none.
    """
    if is_legal(family, case.config, case.problem, device):
        return case
    config = nearest_legal(family, case.config, case.problem, device) if adapt else None
    return None if config is None else replace(case, config=config)


def cases_of_tuned(family: Family, config: Config, device: Device, *tuned_for: Problem) -> CaseSet:
    """Return the cases of a config as it was tuned: `cases_of` with no other in its stead."""
    dtype, epilogue = tuned_for[0].dtype, tuned_for[0].epilogue
    return cases_of(
        *(family, config, device),
        adapt=False,
        dtype=dtype,
        tuned_for=tuned_for,
        epilogue=epilogue,
        batches=Batches.of(tuned_for[0]),
    )


def legal_edge_case(family: Family, config: Config, device: Device, dtype: DType) -> Case | None:
    """Return the first edge case that the config itself is legal for, each in one layout."""
    batches = _batches(family, PLAIN_GEMM)
    schedule = schedule_of(family, config, device, dtype)
    first = edge_cases(schedule, dtype=dtype, batches=batches)[0]
    legal = (one for one in first if is_legal(family, config, one, device))
    return next((Case(config, one) for one in legal), None)


def emulated(family: Family, emulator: Emulator, mode: Mode, case: Case) -> CaseResult:
    """Run a case on the emulator. Raises KernelCompileError, UsageError for what it cannot run."""
    start = time.perf_counter()
    source = render(family, case.config, case.problem)
    plan = launch_plan(family, case.config, case.problem, few_blocks=True)
    report = report_of(emulator, source, plan, case, mode)
    seconds = time.perf_counter() - start
    return CaseResult(case, report.ok, report.message, report.max_error_ratio, seconds)


def report_of(
    emulator: Emulator, source: KernelSource, plan: LaunchPlan, case: Case, mode: Mode = Mode.CHECK
) -> EmulatorReport:
    """Run a source on a case's problem, with all that the case asks for.

    Returns the first report that is not ok, or the last. Raises as `emulated` does.
    """
    report = emulator.verify(
        source, plan, case.problem, mode, extremes=case.extremes, both_betas=True
    )
    if report.ok and case.unset and mode is Mode.CHECK:
        # Beta is no part of the source, and 0 takes no NaN away.
        unset = emulator.verify_unset(source, plan, replace(case.problem, beta=0.0))
        report = report if unset.ok else unset
    return report


def on_cpu(family: Family, emulator: Emulator, mode: Mode) -> Check:
    """Return what runs a case on the emulator; a kernel that does not compile fails."""

    def check(case: Case) -> CaseResult:
        start = time.perf_counter()
        try:
            return emulated(family, emulator, mode, case)
        except KernelCompileError as error:
            return CaseResult(case, False, str(error), float("nan"), time.perf_counter() - start)

    return check


def on_gpu(family: Family, target: Target, compiler: Compiler) -> Check:
    """Return what compiles a case and verifies it on the GPU, as the tuner does before timing."""

    def check(case: Case) -> CaseResult:
        start = time.perf_counter()
        source = render(family, case.config, case.problem)
        plan = launch_plan(family, case.config, case.problem, few_blocks=True)
        try:
            compiled = compiler.compile(source, target.device.sm)
        except KernelCompileError as error:
            return CaseResult(case, False, str(error), float("nan"), time.perf_counter() - start)
        target.prepare(case.problem, MeasureOptions(max_samples=1, compares=False))
        outcome = target.measure(Candidate(source, plan, compiled), None)
        seconds = time.perf_counter() - start
        verification = outcome.verification
        ratio = verification.max_error_ratio if verification else float("nan")
        passed = outcome.status in (Status.OK, Status.TOO_SLOW)
        message = "" if passed else f"{outcome.status}: {outcome.reason}"
        return CaseResult(case, passed, message, ratio, seconds)

    return check


def run_cases(
    check: Callable[[Case], Result], cases: Iterable[Case], threads: int | None = None
) -> Generator[Result]:
    """Results in the order of the cases, several at a time. A GPU takes one: ``threads=1``.

    Closing it drops the cases that have not begun.
    """
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        yield from pool.map(check, cases)


# A smaller failure is not looked for any longer: each size may be another kernel to compile.
CUT_DOWN_S = 10.0


def smallest_failure(
    family: Family,
    device: Device,
    check: Check,
    failure: CaseResult,
    deadline_s: float = CUT_DOWN_S,
) -> CaseResult:
    """The failing case with sizes cut down as far as it goes on failing and its config is legal,
    or as far as ``deadline_s`` seconds allow.
    """
    end = time.monotonic() + deadline_s
    while True:
        for problem in _smaller(failure.case.problem):
            if time.monotonic() > end:
                return failure
            case = replace(failure.case, problem=problem)
            if not is_legal(family, case.config, problem, device):
                continue
            result = check(case)
            if not result.ok:
                failure = result
                break
        else:
            return failure


def _smaller(problem: Problem) -> Iterator[Problem]:
    """Candidates with fewer operations, or plainer: one step from this problem each.

    Rows keep their padding, so that alignment stays what it was.
    """
    divided = "k" if problem.divides_k else "m"
    for name in ("m", "n", "k"):
        extent, groups = getattr(problem, name), problem.groups
        step = groups.count if name == divided and groups.masked else 1
        for less in dict.fromkeys((step, extent // 2 // step * step, extent - step)):
            if step <= less < extent:
                if name == divided and not groups.is_none:
                    yield problem.regrouped(less, groups.within(less))
                else:
                    yield replace(problem, **{name: less})
    if not problem.batch.is_one:
        yield problem.one_product
        yield replace(problem, batch=replace(problem.batch, count=problem.batch.count - 1))
    if not (problem.groups.is_none or problem.epilogue.is_of_groups):
        yield replace(problem, groups=NO_GROUPS)
    if problem.alpha != 1.0 or problem.beta != 0.0:
        yield replace(problem, alpha=1.0, beta=0.0)
