"""``autogemm verify``: kernels run on edge cases, on the CPU or on a card."""

from __future__ import annotations

import itertools
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.configs import family_and_rung, rung_option
from autogemm.cli.options import (
    db_option,
    device_facts,
    dtype_option,
    family_option,
    fix_option,
    gpu_option,
)
from autogemm.cli.output import listing_options, print_rows
from autogemm.support.errors import AutogemmError, DeviceError, NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogemm.model.config import Config, Value
    from autogemm.model.dtypes import DType
    from autogemm.model.hardware.device import Device
    from autogemm.model.stored_kernel import StoredKernel
    from autogemm.space import Family
    from autogemm.verify import Case, CaseResult, CaseSet, Check

CHECK_COLUMNS = ("name", "verdict", "what", "tool", "seconds")
CASE_COLUMNS = ("on", "problem", "ok", "message", "error_over_bound", "seconds", "config")
SUMMARY_COLUMNS = (
    *(
        "on",
        "dtype",
        "config",
        "problems",
        "adapted",
        "passed",
        "failed",
        "skipped",
        "error_over_bound",
    ),
)


@click.command()
@family_option
@rung_option
@fix_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="N legal configs at random; without it the family's seeds, changed by --fix.",
)
@click.option("--seed", default=0, show_default=True, help="Of the random sample.")
@dtype_option()
@click.option("--kernel", "kernel_key", metavar="ID", help="The config of this stored kernel.")
@click.option(
    "--on",
    "places",
    type=click.Choice(["cpu", "gpu", "both"]),
    default="cpu",
    show_default=True,
    help="Where kernels run.",
)
@click.option(
    "--mode",
    type=click.Choice(["check", "fast"]),
    default="check",
    show_default=True,
    help="On the CPU: check every access, or only results.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Check --kernel as a winner is checked, on the attached GPU, and store the certificate.",
)
@gpu_option
@db_option
@listing_options
def verify(  # noqa: PLR0913, PLR0917  # one parameter for each option
    family: str,
    rung: str | None,
    fix: tuple[str, ...],
    sample: int | None,
    seed: int,
    dtype: str | None,
    kernel_key: str | None,
    places: str,
    mode: str,
    certify: bool,
    gpu: str,
    db: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Run kernels on edge cases: all layouts, edges, padded rows, short K, beta.

    On the CPU every access of the emitted source is checked: data races, reads of uninitialised
    memory, out of bounds, misaligned vectors, divergent barriers, use of data in flight. Not seen:
    scalars never written, the memory model beyond barriers; nothing is ever timed there. Without
    --dtype each that the family has kernels for takes its turn. A config that is not legal for a
    problem is replaced by its nearest legal neighbour with the same tiles, counted as adapted (a
    stored kernel: skipped). Exit code 1 when a case fails.

    \b
    Examples:
      autogemm verify
      autogemm verify --rung tiled
      autogemm verify --sample 20 --seed 1 --fix STAGES=3,4
      autogemm verify --kernel 17 --on both
      autogemm verify --kernel 17 --certify
    """
    from autogemm.space import parse_fix
    from autogemm.verify import cases_of, sample_configs

    if kernel_key is not None and (sample is not None or fix or dtype or rung):
        raise UsageError("--kernel names one config: leave out --rung, --sample, --fix, --dtype")
    if rung is not None and sample is not None:
        raise UsageError("--rung and --sample exclude each other: choose one")
    if certify and kernel_key is None:
        raise UsageError("--certify is for one stored kernel: add --kernel ID")
    loaded, climbed = family_and_rung(family, rung)
    if certify and kernel_key is not None:
        certify_kernel(db, kernel_key, loaded, as_json=as_json, as_csv=as_csv)
        return
    device = device_facts(gpu)
    narrowed = parse_fix(loaded, fix)
    if kernel_key is not None:
        kernel = stored_kernel(db, kernel_key, loaded)
        config, tuned_for = kernel.source.config, (kernel.problem,)
        of_kernel = kernel.problem.dtype
        sets = [cases_of(loaded, config, device, adapt=False, dtype=of_kernel, tuned_for=tuned_for)]
    else:
        sets = [
            cases_of(loaded, config, device, dtype=each)
            for each in dtypes_of(loaded, dtype)
            for config in (
                changed((climbed,) if climbed else loaded.seeds, narrowed)
                if sample is None
                else sample_configs(loaded, device, sample, seed, narrowed, each)
            )
        ]
    rows = []
    for place in ("cpu", "gpu") if places == "both" else (places,):
        with checker(loaded, place, mode) as check:
            rows += [verified(loaded, device, case_set, place, check) for case_set in sets]
    show(rows, as_json=as_json, as_csv=as_csv)


def dtypes_of(family: Family, label: str | None) -> list[DType]:
    """The dtype of that name, or all that the family has kernels for.

    Raises UsageError for one that it has none for.
    """
    from autogemm.model.dtypes import DType

    fitting = [dtype for dtype in DType if family.fits(dtype)]
    if label is None:
        return fitting
    if DType.parse(label) not in fitting:
        known = ", ".join(dtype.label for dtype in fitting)
        raise UsageError(f"{family.name} has no kernels for {label}; it has for {known}")
    return [DType.parse(label)]


def stored_kernel(db: str | None, key: str, family: Family) -> StoredKernel:
    """A kernel of the database. Raises NotFoundError for one of another family."""
    from autogemm.store import open_store

    with open_store(db, create=False) as store:
        kernel = store.stored_kernel(key)
    if kernel.source.family != family.name:
        raise NotFoundError(
            f"kernel {key} is of the family {kernel.source.family}, not {family.name}: give "
            "--family"
        )
    return kernel


def certify_kernel(
    db: str | None, key: str, family: Family, *, as_json: bool, as_csv: bool
) -> None:
    """Make, store and print a certificate; exit code 1 when the kernel fails.

    Raises DeviceError without a GPU of the model that the kernel was tuned on, NotFoundError for a
    kernel that this version of the family does not emit.
    """
    from autogemm.codegen import render
    from autogemm.model.certificate import Verdict
    from autogemm.model.kernel import Candidate
    from autogemm.space import launch_plan
    from autogemm.store import open_store
    from autogemm.targets import choose_target
    from autogemm.verify import Certifier

    kernel = stored_kernel(db, key, family)
    source, problem = kernel.source, kernel.problem
    if render(family, source.config, problem).sha256 != source.sha256:
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
    rows = [{name: getattr(check, name) for name in CHECK_COLUMNS} for check in certificate.checks]
    print_rows(rows, CHECK_COLUMNS, as_json=as_json, as_csv=as_csv)
    if certificate.verdict is Verdict.FAILED:
        raise AutogemmError(f"kernel {key} fails: {certificate.reason}")


def changed(seeds: tuple[Config, ...], fix: dict[str, tuple[Value, ...]]) -> list[Config]:
    """Every seed with every combination of the values in ``fix``, each once."""
    from autogemm.model.config import Config

    configs = [
        Config.of(seed.family, seed.as_dict() | dict(zip(fix, values, strict=True)))
        for seed in seeds
        for values in itertools.product(*fix.values())
    ]
    return list(dict.fromkeys(configs))


@contextmanager
def checker(family: Family, place: str, mode: str) -> Iterator[Check]:
    """What runs one case. Raises DeviceError for gpu where there is none."""
    from autogemm.verify import on_cpu, on_gpu

    if place == "cpu":
        from autogemm.emulator import Emulator, Mode

        yield on_cpu(family, Emulator(), Mode(mode))
        return
    from autogemm.targets import open_gpu, why_no_gpu

    if why := why_no_gpu():
        raise DeviceError(f"--on gpu needs a GPU: {why}; --on cpu needs none")
    with closing(open_gpu()) as target, closing(target.compiler()) as compiler:
        yield on_gpu(family, target, compiler)


def verified(
    family: Family, device: Device, case_set: CaseSet, place: str, check: Check
) -> dict[str, Any]:
    """One config's cases run on one place, as a row of the summary."""
    from autogemm.verify import run_cases, smallest_failure

    # A card takes one case at a time.
    results = list(run_cases(check, case_set.cases, None if place == "cpu" else 1))
    failures = [result for result in results if not result.ok]
    return {
        "on": place,
        "config": case_set.config.label,
        "dtype": case_set.dtype.label,
        "problems": len(results),
        "adapted": case_set.num_adapted,
        "passed": len(results) - len(failures),
        "failed": len(failures),
        "skipped": case_set.num_skipped,
        "error_over_bound": max((result.max_error_ratio for result in results), default=0.0),
        "cases": results,
        "smallest": smallest_failure(family, device, check, failures[0]) if failures else None,
    }


def show(rows: list[dict[str, Any]], *, as_json: bool, as_csv: bool) -> None:
    """Print and raise when something failed, or when there was nothing to run."""
    from autogemm.model.splitting import splitting_of

    if as_json or as_csv:
        cases = [case_row(row["on"], result) for row in rows for result in row["cases"]]
        print_rows(cases, CASE_COLUMNS, as_json=as_json, as_csv=as_csv)
    else:
        print_rows(rows, SUMMARY_COLUMNS)
    failed = sum(row["failed"] for row in rows)
    total = sum(row["problems"] for row in rows)
    for row in rows:
        smallest: CaseResult | None = row["smallest"]
        if smallest is not None:
            click.echo(describe(row["on"], smallest), err=True)
    if failed:
        raise AutogemmError(f"{failed} of {total} cases failed")
    if not total:
        raise UsageError("no edge case is legal for any of these configs: nothing was run")
    if not (as_json or as_csv):
        click.echo(f"\n{total} cases passed, {sum(row['skipped'] for row in rows)} skipped")
        how = (splitting_of(row["cases"][0].case.config) for row in rows if row["cases"])
        for words in dict.fromkeys(one.words for one in how if one is not None):
            click.echo(words)


def case_row(place: str, result: CaseResult) -> dict[str, Any]:
    """One case for scripts."""
    return {
        "on": place,
        "problem": result.case.problem.label,
        "ok": result.ok,
        "message": result.message,
        "error_over_bound": result.max_error_ratio,
        "seconds": result.seconds,
        "config": result.case.config.as_dict(),
    }


def describe(place: str, failure: CaseResult) -> str:
    """The smallest failing problem, on three lines."""
    case: Case = failure.case
    return (
        f"failed on {place}, smallest problem found: {case.problem.label}\n"
        f"  {case.config.label}\n  {failure.message}"
    )
