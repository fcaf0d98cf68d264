"""``autogemm verify``: kernels run on edge cases, on the CPU or on a GPU."""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from autogemm.cli.kernels.run.certify import certify_kernel, stored_kernel
from autogemm.cli.kernels.run.lines import show_lines
from autogemm.cli.kernels.run.mutants import drawn_kernels, plant
from autogemm.cli.lookup import device_facts, family_and_rung
from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import metered
from autogemm.cli.prose import say
from autogemm.cli.rows import print_readable
from autogemm.emulator import Emulator, Mode
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.columns import Paths, row_of, under
from autogemm.model.splitting import splitting_of
from autogemm.space import Family, is_legal, load_family, parse_fix
from autogemm.support.amounts import counted
from autogemm.support.errors import AutogemmError, DeviceError, UsageError
from autogemm.targets import open_gpu, why_no_gpu
from autogemm.verify import (
    Batches,
    Case,
    CaseResult,
    CaseSet,
    Check,
    Draw,
    cases_of_tuned,
    count_cases,
    coverage_order,
    covering_cases,
    legal_case,
    legal_edge_case,
    on_cpu,
    on_gpu,
    planned_cases,
    run_cases,
    sample_configs,
    smallest_failure,
    verified_by_default,
)

CASE_COLUMNS = ("on", "problem", "ok", "message", "error_over_bound", "seconds", "config")
_CASE: Paths = {
    **under("", ("ok", "message", "seconds")),
    **{"problem": "case.problem.label", "error_over_bound": "max_error_ratio"},
}
SUMMARY_COLUMNS = (
    *("on", "dtype", "config", "problems", "adapted", "passed", "failed", "skipped"),
    "error_over_bound",
)
# `autogemm verify` without a config: no case is begun after so many seconds. With the cases under
# way and the preparation it ends within a minute on two cores.
BUDGET_S = 40.0
AUTO = "auto"
# Small tiles have cases beyond a group of rows with no more operations; they take the emulator a
# second or two.
SMALL_FLOPS = 30_000_000
# Planning so many kernels takes a second or two.
PLANNED_AT_ONCE = 24
# Texts are compared on a problem that has every edge.
ANY_PROBLEM = Problem(1001, 1003, 1005)
Kernel = tuple[Config, DType]
# Without --wide.
SHORT = ("dtype", "config", "problems", "passed", "failed", "error_over_bound")


@dataclass(frozen=True, slots=True)
class VerifyCommand:
    """One call of the command. Raises UsageError for options that exclude each other."""

    family: str
    rung: str | None
    fix: tuple[str, ...]
    sample: int | None
    seed: int
    dtype: str | None
    epilogue: str
    batch: int | None
    groups: int | None
    kernel_key: str | None
    places: str
    mode: str
    certify: bool
    lines: bool
    mutate: str | None
    mutants: int
    each_s: float | None
    gpu: str
    budget: float | str | None
    db: str | None
    form: Form

    @property
    def limit_s(self) -> float:
        """Seconds after which no further case is begun."""
        if isinstance(self.budget, float):
            return self.budget
        named = (self.kernel_key, self.rung, self.sample, self.fix or None)
        is_short = self.budget == AUTO and all(one is None for one in named)
        return BUDGET_S if is_short else math.inf

    @property
    def is_limited(self) -> bool:
        """Whether time ends it, on the seeds of a family."""
        return self.limit_s < math.inf and self.rung is None and self.sample is None

    @property
    def batches(self) -> Batches | None:
        """The cases with several products or groups; None where neither is asked for."""
        if self.groups is not None:
            return Batches.ALL_GROUPS
        return None if self.batch is None else Batches.ALL

    @property
    def all_places(self) -> tuple[str, ...]:
        """The places where kernels run: cpu, gpu."""
        return ("cpu", "gpu") if self.places == "both" else (self.places,)

    def __post_init__(self) -> None:
        one_config = any((self.sample is not None, self.fix, self.dtype, self.rung, self.epilogue))
        one_config = one_config or self.batch is not None or self.groups is not None
        if self.kernel_key is not None and one_config:
            raise UsageError(
                "--kernel names one config: leave out --rung, --sample, --fix, --dtype, "
                "--epilogue, --batch, --groups"
            )
        if self.batch is not None and self.groups is not None:
            raise UsageError("--batch and --groups exclude each other: choose one")
        if self.rung is not None and self.sample is not None:
            raise UsageError("--rung and --sample exclude each other: choose one")
        if self.certify and self.kernel_key is None:
            raise UsageError("--certify is for one stored kernel: add --kernel ID")
        if self.mutate is not None and (self.kernel_key is not None or self.places != "cpu"):
            raise UsageError("--mutate plants bugs on the CPU: leave out --kernel and --on")
        if self.lines and (self.certify or self.mutate or self.places != "cpu"):
            raise UsageError("--lines only counts, on the CPU: leave out --certify, --mutate, --on")


def run(command: VerifyCommand) -> None:
    """Verify, certify or plant bugs, and print. Raises AutogemmError when a case fails."""
    if command.mutate is not None:
        _plant(command, command.mutate)
        return
    family, climbed = family_and_rung(command.family, command.rung)
    if command.certify and command.kernel_key is not None:
        certify_kernel(command.db, command.kernel_key, family, command.form)
        return
    device = device_facts(command.gpu)
    source = None
    if command.kernel_key is not None:
        kernel = stored_kernel(command.db, command.kernel_key, family)
        source = kernel.source
        sets = [cases_of_tuned(family, source.config, device, kernel.problem)]
    elif command.is_limited and not command.lines:
        _run_limited(command, family, device)
        return
    else:
        sets = _sets(
            command, family, device, (climbed,) if climbed else verified_by_default(family, device)
        )
    if command.lines:
        show_lines(family, device, sets, source, command.form)
        return
    rows = _verified_everywhere(command, family, device, sets, time.monotonic() + command.limit_s)
    show(rows, command.form)
    _say_left_out(command, rows, sum(len(one.cases) for one in sets) * len(command.all_places))


def _run_limited(command: VerifyCommand, family: Family, device: Device) -> None:
    """Verify as much as the time allows: first kernels that have all lines between them on problems
    that take a second or two, large problems last.

    Kernels are planned when their turn comes: all of them take longer than the time that there is.
    """
    end = time.monotonic() + command.limit_s
    seeds = verified_by_default(family, device)
    kernels = _kernels(command, family, device, seeds)
    leading, alike, others = _by_lines(command, family, device, seeds, kernels)
    turns = [
        *((some, True) for some in (leading, *_in_parts(alike))),
        (leading, False),
        *((some, True) for some in _in_parts(others)),
        *((some, False) for some in _in_parts([*alike, *others])),
    ]
    rows: list[dict[str, Any]] = []
    for chosen, is_small in turns:
        if rows and (time.monotonic() > end or any(row["failed"] for row in rows)):
            break
        every = _planned(command, family, device, chosen)
        of_size = (_of_size(one, is_small=is_small) for one in every)
        sets = [_own_first(family, device, one) for one in of_size if one.cases]
        rows += _verified_everywhere(command, family, device, sets, end)
    epilogue = Epilogue.parse(command.epilogue)
    total = sum(
        count_cases(family, config, device, dtype, epilogue, command.batches)
        for config, dtype in kernels
    )
    rows = _of_each_kernel(rows, total)
    show(rows, command.form)
    _say_left_out(command, rows, total * len(command.all_places))


def _of_each_kernel(rows: Sequence[dict[str, Any]], total: int) -> list[dict[str, Any]]:
    """Return one row for each kernel and place, of ``total`` cases on each place."""
    of_kernels: dict[tuple[str, str, Config], list[dict[str, Any]]] = {}
    for row in rows:
        of_kernels.setdefault((row["on"], row["dtype"], row["config"]), []).append(row)
    found = []
    for parts in of_kernels.values():
        whole = dict(parts[0])
        for name in ("problems", "adapted", "passed", "failed", "skipped"):
            whole[name] = sum(part[name] for part in parts)
        whole["error_over_bound"] = max(part["error_over_bound"] for part in parts)
        whole["cases"] = [case for part in parts for case in part["cases"]]
        whole["smallest"] = next(filter(None, (part["smallest"] for part in parts)), None)
        found.append(whole)
    for row in found:
        alike = (one for one in found if one["on"] == row["on"])
        row["left"] = total - sum(one["problems"] + one["skipped"] for one in alike)
    return found


def _by_lines(
    command: VerifyCommand,
    family: Family,
    device: Device,
    seeds: Sequence[Config],
    kernels: Sequence[Kernel],
) -> tuple[list[Kernel], list[Kernel], list[Kernel]]:
    """Return the kernels that have all lines between them, the other ones of these configs, and
    all others.
    """
    first_dtype = dtypes_of(family, command.dtype)[0]
    problem = replace(ANY_PROBLEM, dtype=first_dtype)
    texts = [Case(config, problem) for config, dtype in kernels if dtype is first_dtype]
    # Those that are there for their schedule have no line of their own.
    added = [one for one in seeds if one not in family.seeds]
    configs = {*added, *(case.config for case in covering_cases(family, texts))}
    first = [one for one in kernels if one[0] in configs]
    found = (legal_edge_case(family, config, device, dtype) for config, dtype in first)
    legal = [case for case in found if case is not None]
    # Each with the first element type that it is legal for.
    added_once = {case.config: case for case in reversed(legal) if case.config in added}
    chosen = (*added_once.values(), *covering_cases(family, legal))
    leading = list(dict.fromkeys((case.config, case.problem.dtype) for case in chosen))
    alike = [one for one in first if one not in leading]
    return leading, alike, [one for one in kernels if one[0] not in configs]


def _in_parts(kernels: Sequence[Kernel]) -> list[Sequence[Kernel]]:
    return [kernels[i : i + PLANNED_AT_ONCE] for i in range(0, len(kernels), PLANNED_AT_ONCE)]


def _say_left_out(command: VerifyCommand, rows: Sequence[dict[str, Any]], total: int) -> None:
    """Say how many of all cases ran, if time ended it."""
    done = sum(row["problems"] + row["skipped"] for row in rows)
    if done < total and command.limit_s < math.inf:
        say(
            f"these are {done:,} of {total:,} cases, all that {command.limit_s:g} s allow; "
            "--budget none runs all, --budget 10m more of them",
            err=command.form is not Form.TABLE,
        )


def _of_size(cases: CaseSet, *, is_small: bool) -> CaseSet:
    chosen = (one for one in cases.cases if (one.problem.flops <= SMALL_FLOPS) is is_small)
    return replace(cases, cases=tuple(chosen))


def _own_first(family: Family, device: Device, cases: CaseSet) -> CaseSet:
    """Return the set with those cases first for which the config itself is legal."""

    def is_adapted(case: Case) -> bool:
        return not is_legal(family, case.config, case.problem, device)

    return replace(cases, cases=tuple(sorted(cases.cases, key=is_adapted)))


def _verified_everywhere(
    command: VerifyCommand, family: Family, device: Device, sets: Sequence[CaseSet], end: float
) -> list[dict[str, Any]]:
    """Return the rows of `verified` on each requested place."""
    rows = []
    for place in command.all_places:
        with checker(family, place, command.mode) as check:
            rows += verified(family, device, sets, place, check, end)
    return rows


def _plant(command: VerifyCommand, name: str) -> None:
    family, device = load_family(name), device_facts(command.gpu)
    kernels = _kernels(command, family, device, verified_by_default(family, device))
    # Planning the cases of all takes minutes, and mutants are of a few.
    sets = _planned(command, family, device, drawn_kernels(kernels, command.seed))
    draw = Draw(command.mutants, command.seed, command.each_s or math.inf)
    plant(family, device, sets, draw, command.form)


def _sets(
    command: VerifyCommand, family: Family, device: Device, seeds: Sequence[Config]
) -> list[CaseSet]:
    """Return the edge cases of the configs that the command is about, for each element type."""
    return _planned(command, family, device, _kernels(command, family, device, seeds))


def _kernels(
    command: VerifyCommand, family: Family, device: Device, seeds: Sequence[Config]
) -> list[tuple[Config, DType]]:
    """Return the configs that the command is about, with each element type."""
    narrowed = parse_fix(family, command.fix)
    epilogue = Epilogue.parse(command.epilogue)

    def configs_of(dtype: DType) -> Sequence[Config]:
        if command.sample is None:
            return changed(seeds, narrowed)
        sampled = (command.sample, command.seed, narrowed)
        return sample_configs(family, device, *sampled, dtype, epilogue)

    return [
        (config, each) for each in dtypes_of(family, command.dtype) for config in configs_of(each)
    ]


def _planned(
    command: VerifyCommand,
    family: Family,
    device: Device,
    kernels: Sequence[tuple[Config, DType]],
) -> list[CaseSet]:
    """Return the edge cases of configs with an element type each."""
    epilogue = Epilogue.parse(command.epilogue)
    products, groups = command.batch, command.groups
    if groups is not None and not family.takes_groups:
        raise UsageError(f"{family.name} has one B for all rows: leave out --groups")

    def planned(config: Config, dtype: DType) -> tuple[Case, ...]:
        found = planned_cases(family, config, device, dtype, (), epilogue, command.batches)
        if products is not None:
            return tuple(case.with_products(products) for case in found)
        return found if groups is None else tuple(case.with_groups(groups) for case in found)

    return [CaseSet(config, dtype, planned(config, dtype)) for config, dtype in kernels]


def dtypes_of(family: Family, label: str | None) -> list[DType]:
    """Return the dtype of that name, or all that the family has kernels for.

    Raises UsageError for a dtype without kernels.
    """
    fitting = [dtype for dtype in DType if family.fits(dtype)]
    if label is None:
        return fitting
    if DType.parse(label) not in fitting:
        known = ", ".join(dtype.label for dtype in fitting)
        raise UsageError(f"{family.name} has no kernels for {label}, only for {known}")
    return [DType.parse(label)]


def changed(seeds: Sequence[Config], fix: dict[str, tuple[Value, ...]]) -> list[Config]:
    """Return every seed with every combination of the values in ``fix``, each once."""
    configs = [
        Config.of(seed.family, seed.as_dict() | dict(zip(fix, values, strict=True)))
        for seed in seeds
        for values in itertools.product(*fix.values())
    ]
    return list(dict.fromkeys(configs))


@contextmanager
def checker(family: Family, place: str, mode: str) -> Iterator[Check]:
    """Yield a function that runs one case. Raises DeviceError for gpu where there is none."""
    if place == "cpu":
        yield on_cpu(family, Emulator(), Mode(mode))
        return
    if why := why_no_gpu():
        raise DeviceError(f"--on gpu needs a GPU: {why}; --on cpu needs none")
    with closing(open_gpu()) as target, closing(target.compiler()) as compiler:
        yield on_gpu(family, target, compiler)


def verified(  # noqa: PLR0913, PLR0917  # what is run, where, and until when
    family: Family,
    device: Device,
    sets: Sequence[CaseSet],
    place: str,
    check: Check,
    end: float,
) -> list[dict[str, Any]]:
    """Run all configs' cases on one place, in the order of coverage, until one fails or
    `time.monotonic` is past ``end``.

    Returns a row of the summary for each config of which a case was run, or all were skipped.
    """

    def run_one(case: Case) -> CaseResult | None:
        # Built here, so that the first cases do not wait for the config of the last.
        legal = legal_case(family, device, case)
        return None if legal is None else check(legal)

    if place == "gpu":
        sets = [each.on_gpu for each in sets]
    ordered = list(coverage_order(family, [each.cases for each in sets]))
    # A GPU takes one case at a time.
    results = run_cases(run_one, [case for _, case in ordered], None if place == "cpu" else 1)
    done: list[list[CaseResult]] = [[] for _ in sets]
    skipped = [each.num_skipped for each in sets]
    failure: tuple[int, CaseResult] | None = None
    with closing(results), metered(len(ordered), f"cases on the {place.upper()}") as show_progress:
        for number, ((index, case), result) in enumerate(zip(ordered, results, strict=True), 1):
            show_progress(number, case.problem.label)
            if result is None:
                skipped[index] += 1
                continue
            done[index].append(result)
            if not result.ok:
                failure = index, result
                break
            if time.monotonic() > end:
                break
    before = sum(each.num_skipped for each in sets)
    left = len(ordered) - sum(map(len, done)) - (sum(skipped) - before)
    return [
        {
            "on": place,
            "config": each.config,
            "dtype": each.dtype.label,
            "problems": len(done[index]),
            "adapted": sum(result.case.config != each.config for result in done[index]),
            "passed": sum(result.ok for result in done[index]),
            "failed": sum(not result.ok for result in done[index]),
            "skipped": skipped[index],
            "error_over_bound": max((one.max_error_ratio for one in done[index]), default=0.0),
            "cases": done[index],
            "left": left,
            "smallest": smallest_failure(family, device, check, failure[1])
            if failure and failure[0] == index
            else None,
        }
        for index, each in enumerate(sets)
        if done[index] or skipped[index] == len(each.cases) + each.num_skipped
    ]


def show(rows: list[dict[str, Any]], form: Form) -> None:
    """Print the cases. Raises AutogemmError when one failed, UsageError when there was none."""
    if form is not Form.TABLE:
        cases = [
            {"on": row["on"], **row_of(result, _CASE), "config": result.case.config.as_dict()}
            for row in rows
            for result in row["cases"]
        ]
        print_rows(cases, CASE_COLUMNS, form)
    else:
        print_readable(rows, SUMMARY_COLUMNS, short=SHORT)
    failed = sum(row["failed"] for row in rows)
    total = sum(row["problems"] for row in rows)
    for row in rows:
        smallest: CaseResult | None = row["smallest"]
        if smallest is not None:
            say(
                f"failed on {row['on']}, smallest problem found: {smallest.case.problem.label}\n"
                f"  {smallest.case.config.label}\n  {smallest.message}",
                err=True,
            )
    if failed:
        left = sum({row["on"]: row["left"] for row in rows}.values())
        raise AutogemmError(f"{failed} of {total} cases failed; {left} more were not run")
    if not total:
        raise UsageError("no edge case is legal for any of these configs: nothing was run")
    if form is Form.TABLE:
        say(f"\n{counted(total, 'case')} passed, {sum(row['skipped'] for row in rows)} skipped")
        how = (splitting_of(row["cases"][0].case.config) for row in rows if row["cases"])
        for words in dict.fromkeys(one.words for one in how if one is not None):
            say(words)
