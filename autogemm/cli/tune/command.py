"""``autogemm tune``: the main job."""

import math
import re
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autogemm.cli import INTERRUPTED
from autogemm.cli.options import (
    db_option,
    fix_option,
    problems_options,
)
from autogemm.cli.output import listing_options
from autogemm.cli.tune.setup import is_typed, opened
from autogemm.model.outcome import Objective
from autogemm.search import SAMPLERS
from autogemm.support.errors import AutogemmError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogemm.model.problem import Problem
    from autogemm.tuning import TuneRequest, TuneResult

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
@problems_options
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
    "--max-error",
    metavar="NUMBER|cublas",
    default="",
    help="Largest relative error (Frobenius, against float64) that the winner may have: 1e-6; or "
    "cublas, no worse than cuBLAS on the same inputs. Default: any that verifies.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    default="surrogate",
    show_default=True,
    help=f"One of: {', '.join(SAMPLERS)}; or one that an installed package registers.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the search and of the inputs.",
)
@click.option(
    "--finalists",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Candidates that are re-timed beside cuBLAS: the best, and for a third of the places some "
    "near the best that are unlike them.",
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
@click.option(
    "--cross",
    is_flag=True,
    help="Of many problems: time the others' winners at each too. Dispatch rules are learned from "
    "that.",
)
@click.option("--no-prune", is_flag=True, help="Measure also what static facts rule out.")
@click.option(
    "--no-warm-start",
    is_flag=True,
    help="Do not try the winners of similar stored results first.",
)
@click.option(
    "--no-certify",
    is_flag=True,
    help="Do not check the winner further: hard problems, compute-sanitizer (some seconds).",
)
@db_option
@click.option("--fresh", is_flag=True, help="Begin anew where an unfinished run would be resumed.")
@listing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
def tune(as_json: bool, as_csv: bool, quiet: bool, db: str | None, **options: Any) -> None:
    """Find the fastest kernel for a problem on a GPU.

    Searches the legal configs of every family that fits, verifies and times each candidate, keeps
    every trial in the database, and re-times the best beside cuBLAS. The winner is then checked on
    hard problems, on the card and access by access on the CPU, and under compute-sanitizer where it
    is installed; one that fails is no winner. The search ends with the first of its limits. Ctrl-C
    ends it at once and prints the best so far; the same command resumes.

    Several sizes, a preset or a file of problems are tuned one after the other, sharing what is
    compiled, and end in one table; problems that have a result of the same request are not tuned
    again.

    --json has all of it but the single trials; --csv has a row for each finalist and for cuBLAS, or
    of many problems one for each.

    \b
    Examples:
      autogemm tune --gpu auto --size 4096
      autogemm tune --size 4096x256x1024 --layout tt --budget 5m --trials 1000
      autogemm tune --size 4096 --dtype bf16
      autogemm tune --size 4096 --allow-emulation
      autogemm tune --size 512 --until-ratio 1.5 --budget 10m --trials 5000
      autogemm tune --size 4096 --objective energy
      autogemm tune --size 4096 --max-error cublas
      autogemm tune --preset transformer --budget 20s --cross
      autogemm tune --problems sizes.txt --layout nt --budget 30s
      autogemm tune --gpu recorded --size 1024 --json
      autogemm tune --gpu recorded --size 1024 --csv > finals.csv
      autogemm tune --gpu recorded:cache.json.gz --size 4096
    """
    from autogemm.cli.tune.problems import problems_from

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: choose one")
    # Before what takes a second to import.
    problems = problems_from(options)
    from autogemm.cli.tune.facts import result_as_csv, result_as_json
    from autogemm.cli.tune.report import print_result
    from autogemm.store import database_place

    with ExitStack() as stack:
        try:
            if len(problems) > 1:
                _tune_many(stack, problems, options, db, quiet, as_json, as_csv)
                return
            request, result = _run(stack, problems[0], options, db, quiet)
        except KeyboardInterrupt:
            _exit_interrupted()
    if as_json:
        click.echo(result_as_json(result, database_place(db)))
    elif as_csv:
        click.echo(result_as_csv(result), nl=False)
    else:
        has_kernel = request.families[0].template_path is not None
        next_command = _export_command(result.run_id, db) if has_kernel else None
        print_result(result, database_place(db), next_command)
    if result.interrupted:
        _exit_interrupted()
    if result.best is None:
        raise AutogemmError(_nothing_ran(result.outcomes))


def _run(
    stack: ExitStack, problem: "Problem", options: dict[str, Any], db: str | None, quiet: bool
) -> "tuple[TuneRequest, TuneResult]":
    from autogemm.cli.tune.progress import progress_listener
    from autogemm.tuning import tune as run_tuner

    if options["cross"]:
        raise UsageError("--cross is for many problems: give several sizes, or a preset")
    parts = opened(stack, problem, options, db)
    request, target = parts.request, parts.target
    on_event = stack.enter_context(progress_listener(request, target.provenance, quiet))
    return request, run_tuner(request, target, parts.compiler, parts.store, on_event)


def _tune_many(  # noqa: PLR0913, PLR0917  # what the command was asked for
    stack: ExitStack,
    problems: "Sequence[Problem]",
    options: dict[str, Any],
    db: str | None,
    quiet: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    from autogemm.cli.tune.many import SweepProgress, print_sweep, sweep_as_csv, sweep_as_json
    from autogemm.store import database_place
    from autogemm.tuning import Sweeper

    parts = opened(stack, problems[0], options, db)
    target = parts.target
    requests = [replace(parts.request, problem=problem) for problem in problems]
    by_problem = {request.problem: request for request in requests}
    progress = SweepProgress(by_problem, target.provenance, quiet, sys.stderr.isatty())
    sweeper = Sweeper(
        target,
        parts.compiler,
        parts.store,
        on_step=progress.on_step,
        on_swept=progress.on_swept,
    )
    if options["cross"]:
        sweeper.require_card()
    sweep = sweeper.run(requests)
    if options["cross"] and not sweep.interrupted:
        sweep = sweeper.cross(sweep, requests[0])
    show = (sweep, target.device.name, target.provenance, database_place(db))
    if as_json:
        click.echo(sweep_as_json(*show))
    elif as_csv:
        click.echo(sweep_as_csv(*show[:3]), nl=False)
    else:
        print_sweep(*show)
    if sweep.interrupted:
        _exit_interrupted()
    if not any(one.finals is not None for one in sweep.problems):
        raise AutogemmError("no problem has a result: the lines above say why")


def _exit_interrupted() -> NoReturn:
    click.echo("interrupted; the same command resumes", err=True)
    sys.exit(INTERRUPTED)


def _export_command(run_id: int, db: str | None) -> str:
    """What to type next. A database from the environment is found there again."""
    parts = ["autogemm", "export", "best.cu", "--run", str(run_id)]
    return shlex.join([*parts, "--db", db] if is_typed("db") and db else parts)


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
