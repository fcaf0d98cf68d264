"""``autogemm tune``: the main job."""

import math
import re
import shlex
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autogemm.cli import INTERRUPTED
from autogemm.cli.options import (
    db_option,
    fix_option,
    problem_from,
    problem_options,
)
from autogemm.errors import AutogemmError, CompilerMissingError, UsageError
from autogemm.outcome import Objective
from autogemm.search import SAMPLERS

if TYPE_CHECKING:
    from autogemm.compile import Compiler
    from autogemm.config import Value
    from autogemm.problem import Problem
    from autogemm.space import Family
    from autogemm.targets import Target
    from autogemm.tuning import Chosen, TuneRequest, TuneResult

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(context: click.Context, parameter: click.Parameter, text: str) -> float:
    """``90s``, ``2m``, ``1h`` or a number of seconds, as seconds; ``none`` as infinity.

    Raises click.BadParameter for anything else, and for zero.
    """
    text = text.strip().lower()
    if text == "none":
        return math.inf
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", text)
    duration_s = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not duration_s > 0:
        raise click.BadParameter(f"{text!r} is not a time: write 90s, 2m, 1h or none")
    return duration_s


@click.command(short_help="Find the fastest kernel for a problem on a GPU.")
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="An attached GPU, or a recording: ours or a cache file of Kernel Tuner. auto: the first "
    "GPU, without one a shipped recording.",
)
@click.option("--require-gpu", is_flag=True, help="Fail where auto would use a recording.")
@problem_options
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Search this family only: one that ships, or a folder with NAME.yaml and NAME.cu.jinja; "
    "repeatable. Default: every family that fits the problem.",
)
@click.option(
    "--allow-emulation",
    is_flag=True,
    help="For f32: search also kernels that make FP32 of tensor-core products.",
)
@fix_option
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Stop the search after that many trials of the run.",
)
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=seconds,
    default="2m",
    show_default=True,
    help="Stop the search after that time: 90s, 2m, 1h, none.",
)
@click.option(
    "--until-ratio",
    metavar="RATIO",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop once cuBLAS time / best time is at least this, if the finals confirm it: 1.05.",
)
@click.option(
    "--until-gain",
    metavar="SHARE",
    type=click.FloatRange(min=0, min_open=True, max=1, max_open=True),
    help="Stop once the next candidate is expected to save less than this share of the best time: "
    "0.001. For samplers with a model.",
)
@click.option(
    "--objective",
    type=click.Choice([objective.value for objective in Objective]),
    default=Objective.TIME.value,
    show_default=True,
    help="What is minimised; edp is energy times time. Energy is NVML's, of the whole card.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    default="surrogate",
    show_default=True,
    help=f"One of: {', '.join(SAMPLERS)}.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--finalists",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Candidates that are re-timed beside cuBLAS.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Rounds of the finals.",
)
@click.option(
    "--l2",
    type=click.Choice(["warm", "cold", "rotate"]),
    default="warm",
    show_default=True,
    help="L2 cache before each timed launch: as the last one left it, flushed, or full of others' "
    "inputs.",
)
@click.option(
    "--fill",
    type=click.Choice(["uniform", "normal", "integers", "zeros"]),
    default="uniform",
    show_default=True,
    help="What the matrices hold while kernels are timed. Zeros are faster than any real data.",
)
@click.option("--no-prune", is_flag=True, help="Measure also what static facts rule out.")
@click.option(
    "--no-certify",
    is_flag=True,
    help="Do not check the winner further: hard problems, compute-sanitizer (some seconds).",
)
@db_option
@click.option("--fresh", is_flag=True, help="Begin anew where an unfinished run would be resumed.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
def tune(as_json: bool, quiet: bool, db: str | None, **options: Any) -> None:
    """Find the fastest kernel for a problem on a GPU.

    Searches the legal configs of every family that fits, verifies and times each candidate, keeps
    every trial in the database, and re-times the best beside cuBLAS. The winner is then checked on
    hard problems, on the card and access by access on the CPU, and under compute-sanitizer where it
    is installed; one that fails is no winner. The search ends with the first of its limits. Ctrl-C
    ends it at once and prints the best so far; the same command resumes.

    \b
    Examples:
      autogemm tune --gpu auto --size 4096
      autogemm tune --size 4096x256x1024 --layout tt --budget 5m --trials 1000
      autogemm tune --size 4096 --dtype bf16
      autogemm tune --size 4096 --allow-emulation
      autogemm tune --size 512 --until-ratio 1.5 --budget 10m --trials 5000
      autogemm tune --size 4096 --objective energy
      autogemm tune --gpu recorded --size 1024 --json
      autogemm tune --gpu recorded:cache.json.gz --size 4096
    """
    from autogemm.cli.tune_report import print_result, result_as_json
    from autogemm.store import database_place

    try:
        request, result = _run(options, db, quiet)
    except KeyboardInterrupt:
        _exit_interrupted()
    if as_json:
        click.echo(result_as_json(result, database_place(db)))
    else:
        has_kernel = request.families[0].template_path is not None
        next_command = _export_command(result.run_id, db) if has_kernel else None
        print_result(result, database_place(db), next_command)
    if result.interrupted:
        _exit_interrupted()
    if result.best is None:
        raise AutogemmError(_nothing_ran(result.outcomes))


def _run(options: dict[str, Any], db: str | None, quiet: bool) -> "tuple[TuneRequest, TuneResult]":
    from autogemm.cli.tune_progress import progress_listener
    from autogemm.store import open_store
    from autogemm.tuning import choose_target
    from autogemm.tuning import tune as run_tuner
    from autogemm.tuning.choice import is_file

    with ExitStack() as stack:
        gpu = options["gpu"]
        # Of a file it is not known yet of which family's parameters --fix speaks.
        families, fix = _families(options, () if is_file(gpu) else options["fix"])
        request = _request(options, families, fix)
        store = stack.enter_context(open_store(db))
        names = [family.name for family in families]
        chosen = choose_target(gpu, names, options["require_gpu"])
        target = stack.enter_context(closing(chosen.target))
        if is_file(gpu):
            request = _as_recorded(request, chosen, options)
        if chosen.notice:
            click.secho(chosen.notice, err=True, bold=True)
        has_kernel = request.families[0].template_path is not None
        compiler = _compiler_for(target) if has_kernel else None
        if compiler is not None:
            stack.enter_context(closing(compiler))
        on_event = stack.enter_context(progress_listener(request, target.provenance, quiet))
        return request, run_tuner(request, target, compiler, store, on_event)


def _as_recorded(
    request: "TuneRequest", chosen: "Chosen", options: dict[str, Any]
) -> "TuneRequest":
    """The request for what a file holds: it may bring a family, and the size, of its own.

    Raises UsageError where something else was asked for by name.
    """
    from autogemm.space import parse_fix

    if chosen.family is None:
        families, fix = _families(options, options["fix"])
        return replace(request, families=families, fix=fix)
    names = [family.name for family in request.families]
    if _is_typed("family") and chosen.family.name not in names:
        raise UsageError(
            f"that recording lists configs of {chosen.family.name}, not of {', '.join(names)}: "
            "leave --family out"
        )
    problem = request.problem
    if chosen.size and not _is_typed("size"):
        problem = _problem({**options, "size": chosen.size})
    fix = parse_fix(chosen.family, options["fix"])
    return replace(request, families=(chosen.family,), problem=problem, fix=fix)


def _is_typed(option: str) -> bool:
    given = click.get_current_context().get_parameter_source(option)
    return given is click.core.ParameterSource.COMMANDLINE


def _exit_interrupted() -> NoReturn:
    click.echo("interrupted; the same command resumes", err=True)
    sys.exit(INTERRUPTED)


def _export_command(run_id: int, db: str | None) -> str:
    """What to type next. A database from the environment is found there again."""
    parts = ["autogemm", "export", "best.cu", "--run", str(run_id)]
    return shlex.join([*parts, "--db", db] if _is_typed("db") and db else parts)


def _request(
    options: dict[str, Any], families: "tuple[Family, ...]", fix: "dict[str, tuple[Value, ...]]"
) -> "TuneRequest":
    from autogemm.outcome import CacheState, Fill
    from autogemm.targets import MeasureOptions
    from autogemm.tuning import TuneRequest

    sampler = options["sampler"]
    if sampler not in SAMPLERS:
        raise UsageError(f"unknown sampler {sampler!r}; known: {', '.join(SAMPLERS)}")
    budget_s = options["budget_s"]
    return TuneRequest(
        problem=_problem(options),
        families=families,
        fix=fix,
        sampler=sampler,
        seed=options["seed"],
        trials=options["trials"],
        budget_s=None if math.isinf(budget_s) else budget_s,
        until_ratio=options["until_ratio"],
        until_gain=options["until_gain"],
        finalists=options["finalists"],
        rounds=options["rounds"],
        measure=MeasureOptions(
            l2=CacheState(options["l2"]),
            fill=Fill(options["fill"]),
            seed=options["seed"],
            objective=Objective(options["objective"]),
        ),
        prune=not options["no_prune"],
        fresh=options["fresh"],
        certify=not options["no_certify"],
        command=_command_line(),
    )


def _problem(options: dict[str, Any]) -> "Problem":
    names = ("size", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta")
    return problem_from(**{name: options[name] for name in names})


def _families(
    options: dict[str, Any], texts: tuple[str, ...]
) -> "tuple[tuple[Family, ...], dict[str, tuple[Value, ...]]]":
    """The families to search, and what ``--fix`` leaves of their parameters.

    A family that lacks what is fixed is left out. Raises UsageError if it was named, or if none is
    left.
    """
    from autogemm.space import default_families, load_family, parse_fix

    named = options["family"]
    families = [load_family(name) for name in named]
    fixed, misfits = [], []
    for family in families or default_families(emulation=options["allow_emulation"]):
        try:
            fixed.append((family, parse_fix(family, texts)))
        except UsageError as error:
            if named:
                raise
            misfits.append(error)
    if not fixed:
        raise misfits[0]
    return tuple(family for family, _ in fixed), fixed[0][1]


def _command_line() -> str:
    """As typed, for the database."""
    return shlex.join(["autogemm", *sys.argv[1:]])


def _compiler_for(target: "Target") -> "Compiler | None":
    """A compiler; None where the target does not need one and there is none."""
    from autogemm.compile import Compiler

    try:
        return Compiler()
    except CompilerMissingError as error:
        if target.needs_cubin:
            raise
        click.echo(f"kernels are not compiled: {error}", err=True)
        return None


def _nothing_ran(outcomes: Any) -> str:
    """Why there is no winner, with the first reason of the most frequent end."""
    from collections import Counter

    if not outcomes:
        return "no candidate was tried: the time was up before the first; give more with --budget"
    ends = Counter(outcome.status for outcome in outcomes)
    status, _ = ends.most_common(1)[0]
    first = next(outcome for outcome in outcomes if outcome.status is status)
    counts = ", ".join(f"{count} {status}" for status, count in ends.most_common())
    return f"no candidate ran correctly: {counts}; first {status}: {first.reason} ({first.config})"
