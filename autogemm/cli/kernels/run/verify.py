"""``autogemm verify``: kernels run on edge cases, on the CPU or on a GPU."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import numpy as np

from autogemm.cli.kernels.run.lines import show_lines
from autogemm.cli.lookup import device_facts, family_and_rung
from autogemm.cli.output import Form, print_rows, print_table
from autogemm.cli.progress import watched
from autogemm.cli.rows import open_database
from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate
from autogemm.model.results.certificate import Verdict
from autogemm.model.results.columns import Paths, row_of, under
from autogemm.model.results.stored import StoredKernel
from autogemm.model.splitting import splitting_of
from autogemm.space import Family, launch_plan, load_family, parse_fix
from autogemm.store import open_store
from autogemm.support.errors import AutogemmError, DeviceError, NotFoundError, UsageError
from autogemm.targets import choose_target, open_gpu, why_no_gpu
from autogemm.verify import (
    Case,
    CaseResult,
    CaseSet,
    Certifier,
    Check,
    Draw,
    Fate,
    cases_of_tuned,
    coverage_order,
    legal_case,
    on_cpu,
    on_gpu,
    planned_cases,
    run_cases,
    run_mutants,
    sample_configs,
    smallest_failure,
    verified_by_default,
)

CHECK_COLUMNS = ("name", "verdict", "what", "tool", "seconds")
CASE_COLUMNS = ("on", "problem", "ok", "message", "error_over_bound", "seconds", "config")
_CASE: Paths = {
    **under("", ("ok", "message", "seconds")),
    **{"problem": "case.problem.label", "error_over_bound": "max_error_ratio"},
}
MUTANT_COLUMNS = ("fate", "rule", "line", "new", "problem", "message", "seconds", "config")
_MUTANT: Paths = {
    **under("", ("fate", "problem", "message", "seconds")),
    **under("mutant", ("rule", "line", "new")),
}
# Mutants are drawn from so many configs at most, for each of which all edge cases are rendered.
MOST_CONFIGS = 12
# Seconds after which a kernel with a planted bug hangs: a right one takes a few on any edge case.
HANGS_S = 20
SUMMARY_COLUMNS = (
    *("on", "dtype", "config", "problems", "adapted", "passed", "failed", "skipped"),
    "error_over_bound",
)


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
    kernel_key: str | None
    places: str
    mode: str
    certify: bool
    lines: bool
    mutate: str | None
    mutants: int
    each_s: float | None
    gpu: str
    db: str | None
    form: Form

    def __post_init__(self) -> None:
        one_config = any((self.sample is not None, self.fix, self.dtype, self.rung, self.epilogue))
        if self.kernel_key is not None and one_config:
            raise UsageError(
                "--kernel names one config: leave out --rung, --sample, --fix, --dtype, --epilogue"
            )
        if self.rung is not None and self.sample is not None:
            raise UsageError("--rung and --sample exclude each other: choose one")
        if self.certify and self.kernel_key is None:
            raise UsageError("--certify is for one stored kernel: add --kernel ID")
        if self.mutate is not None and (self.kernel_key is not None or self.places != "cpu"):
            raise UsageError("--mutate plants bugs on the CPU: leave out --kernel and --on")
        if self.lines and (self.certify or self.mutate or self.places != "cpu"):
            raise UsageError(
                "--lines counts on the CPU and judges nothing: leave out --certify, --mutate, --on"
            )


def run(command: VerifyCommand) -> None:
    """Verify, certify or plant bugs, and print. Raises AutogemmError when a case fails."""
    if command.mutate is not None:
        plant(command, command.mutate)
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
    else:
        sets = _sets(
            command, family, device, (climbed,) if climbed else verified_by_default(family)
        )
    if command.lines:
        show_lines(family, device, sets, source, command.form)
        return
    rows = []
    for place in ("cpu", "gpu") if command.places == "both" else (command.places,):
        with checker(family, place, command.mode) as check:
            rows += verified(family, device, sets, place, check)
    show(rows, command.form)


def _sets(
    command: VerifyCommand, family: Family, device: Device, seeds: tuple[Config, ...]
) -> list[CaseSet]:
    """Return the edge cases of the configs that the command is about, for each element type."""
    narrowed = parse_fix(family, command.fix)
    epilogue = Epilogue.parse(command.epilogue)
    return [
        CaseSet(config, each, planned_cases(family, config, device, each, (), epilogue))
        for each in dtypes_of(family, command.dtype)
        for config in (
            changed(seeds, narrowed)
            if command.sample is None
            else sample_configs(family, device, command.sample, command.seed, narrowed, each)
        )
    ]


def plant(command: VerifyCommand, name: str) -> None:
    """Plant bugs in a family's kernels; print each that survived, and how many were caught."""
    family = load_family(name)
    device = device_facts(command.gpu)
    sets = _sets(command, family, device, verified_by_default(family))
    order = np.random.default_rng(command.seed).permutation(len(sets))[:MOST_CONFIGS]
    draw = Draw(command.mutants, command.seed, command.each_s or math.inf)
    chosen = [sets[index] for index in order]
    # Executables of wrong kernels are of no use to later runs.
    with TemporaryDirectory() as folder:
        found = run_mutants(family, device, Emulator(Path(folder), HANGS_S), chosen, draw)
        results = list(watched(found, draw.count, "mutants"))
    rows = [{**row_of(one, _MUTANT), "config": one.mutant.config.as_dict()} for one in results]
    if command.form is not Form.TABLE:
        print_rows(rows, MUTANT_COLUMNS, command.form)
        return
    missed = [row for row in rows if row["fate"] in {Fate.SURVIVED, Fate.OUT_OF_TIME}]
    if missed:
        print_table(missed, ("fate", "rule", "line", "new", "seconds"), title="Not caught")
    numbers = Counter(one.fate for one in results)
    click.echo(", ".join(f"{numbers[fate]} {fate}" for fate in Fate if numbers[fate]))


def dtypes_of(family: Family, label: str | None) -> list[DType]:
    """Return the dtype of that name, or all that the family has kernels for.

    Raises UsageError for a dtype without kernels.
    """
    fitting = [dtype for dtype in DType if family.fits(dtype)]
    if label is None:
        return fitting
    if DType.parse(label) not in fitting:
        known = ", ".join(dtype.label for dtype in fitting)
        raise UsageError(f"{family.name} has no kernels for {label}; it has for {known}")
    return [DType.parse(label)]


def stored_kernel(db: str | None, key: str, family: Family) -> StoredKernel:
    """Return a kernel of the database. Raises NotFoundError for one of another family."""
    with open_database(db) as store:
        kernel = store.stored_kernel(key)
    if kernel.source.family != family.name:
        raise NotFoundError(
            f"kernel {key} is of the family {kernel.source.family}, not {family.name}: give "
            "--family"
        )
    return kernel


def certify_kernel(db: str | None, key: str, family: Family, form: Form) -> None:
    """Make, store and print a certificate. Raises AutogemmError when the kernel fails.

    Raises DeviceError without a GPU of the model that the kernel was tuned on, NotFoundError for a
    kernel that this version of the family does not emit.
    """
    kernel = stored_kernel(db, key, family)
    source, problem = kernel.source, kernel.problem
    if render(family, source.config, problem).code != source.code:
        raise NotFoundError(
            f"kernel {key} was emitted by another version of the family {family.name}: tune again"
        )
    run_id = kernel.run_id
    if run_id is None:
        raise NotFoundError(
            f"kernel {key} was benchmarked or profiled and never tuned: a certificate belongs to a "
            "run, tune first"
        )
    target = choose_target(kernel.device.name, [family.name]).target
    compiler = target.compiler()
    assert compiler is not None, "a GPU was named"
    with closing(target), closing(compiler):
        compiled = compiler.compile(source, target.device.sm)
        plan = launch_plan(family, source.config, problem)
        certifier = Certifier(
            family, target, compiler, progress=lambda step: click.echo(f"{step} ...", err=True)
        )
        certificate = certifier.certify(Candidate(source, plan, compiled), problem)
    with open_store(db) as store:
        store.record_certificate(run_id, source.sha256, certificate)
    print_rows([asdict(check) for check in certificate.checks], CHECK_COLUMNS, form)
    if certificate.verdict is Verdict.FAILED:
        raise AutogemmError(f"kernel {key} fails: {certificate.reason}")


def changed(seeds: tuple[Config, ...], fix: dict[str, tuple[Value, ...]]) -> list[Config]:
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


def verified(
    family: Family, device: Device, sets: Sequence[CaseSet], place: str, check: Check
) -> list[dict[str, Any]]:
    """Run all configs' cases on one place, in the order of coverage, until one fails.

    Returns a row of the summary for each config of which a case was run, or all were skipped.
    """

    def run_one(case: Case) -> CaseResult | None:
        # Here, so that the first cases do not wait until there is a config for the last.
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
    with closing(results):
        for (index, _), result in zip(ordered, results, strict=True):
            if result is None:
                skipped[index] += 1
                continue
            done[index].append(result)
            if not result.ok:
                failure = index, result
                break
    before = sum(each.num_skipped for each in sets)
    left = len(ordered) - sum(map(len, done)) - (sum(skipped) - before)
    return [
        {
            "on": place,
            "config": each.config.label,
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
        print_rows(rows, SUMMARY_COLUMNS)
    failed = sum(row["failed"] for row in rows)
    total = sum(row["problems"] for row in rows)
    for row in rows:
        smallest: CaseResult | None = row["smallest"]
        if smallest is not None:
            click.echo(
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
        click.echo(f"\n{total} cases passed, {sum(row['skipped'] for row in rows)} skipped")
        how = (splitting_of(row["cases"][0].case.config) for row in rows if row["cases"])
        for words in dict.fromkeys(one.words for one in how if one is not None):
            click.echo(words)
