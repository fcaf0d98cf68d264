"""``autogemm bench-search``: search strategies compared on recorded spaces."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.output import listing_options, print_rows, print_table
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.bench.strategies import Curve, Plan, Summary

# Without a terminal a line each tenth of the way.
PLAIN_LINES = 10


@click.command("bench-search", short_help="Compare search strategies on recorded spaces.")
@click.option(
    "--strategies",
    metavar="NAME,NAME",
    help="Samplers of `autogemm tune`, and kernel_tuner:NAME. Default: all samplers, and some of "
    "Kernel Tuner's strategies where it is installed.",
)
@click.option(
    "--recordings",
    "recordings",
    metavar="FILE...",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Recordings, T4 files, or cache files of Kernel Tuner. Default: the recordings that ship.",
)
@click.argument("more", metavar="[FILE]...", type=click.Path(path_type=Path), nargs=-1)
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="Searches of each strategy on each recording.",
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Configs that a search may try.",
)
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1,),
    show_default=True,
    help="Configs asked for before the first is told; repeatable.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Default: one for each core.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw into this PNG, SVG or PDF.")
@click.option("--save", type=click.Path(), help="Write the whole curves into this JSON file.")
@click.option("--force", is_flag=True, help="Replace a file that this command did not write.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@listing_options
def bench_search(as_json: bool, as_csv: bool, **options: Any) -> None:
    """Compare search strategies on recorded spaces.

    Replays every strategy on every recording with every seed, in parallel processes, and prints how
    much of the optimum (best time of the space / best time found) was reached after how many
    evaluations: the median over the seeds, then over the recordings. No strategy is told of configs
    known to be good. Kernel Tuner's strategies run in its own simulation mode on the same spaces.
    Nothing is measured: every time is a recorded one.

    \b
    Examples:
      autogemm bench-search --strategies surrogate,random,tpe
      autogemm bench-search --strategies surrogate --batch 1 --batch 8 --recordings a.json b.json.gz
      autogemm bench-search --strategies surrogate,kernel_tuner:hybrid_vndx --plot curves.svg
    """
    from autogemm.bench.strategies import replays, summarise
    from autogemm.cli.files import write_output
    from autogemm.insight.plots import check_plot, strategies_picture

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: choose one")
    plan = _plan(options)
    plot, save = options["plot"], options["save"]
    if plot is not None:
        check_plot(plot)
    with _progress(len(plan.jobs()), options["quiet"]) as step:
        summary = summarise(plan, map(step, replays(plan, options["processes"])))
    if as_json or as_csv:
        rows = [_row(curve, summary) for curve in (*summary.curves, *summary.by_space)]
        print_rows(rows, list(rows[0]), as_json=as_json, as_csv=as_csv)
    else:
        _print_tables(plan, summary)
    if save is not None:
        _save(save, plan, summary, force=options["force"])
    if plot is not None:
        content = strategies_picture(summary, _title(plan), plot.suffix)
        write_output(str(plot), content, force=True)


def _plan(options: dict[str, Any]) -> "Plan":
    from autogemm.bench.strategies import Plan, known_strategies
    from autogemm.targets.recorded import recording_folder, recording_paths

    given = options["strategies"]
    names = [name.strip() for name in given.split(",")] if given else known_strategies()
    files = (*options["recordings"], *options["more"]) or recording_paths(recording_folder())
    missing = [path for path in files if not path.is_file()]
    if missing:
        raise UsageError(f"no such recording: {missing[0]}")
    return Plan(
        recordings=tuple(dict.fromkeys(files)),
        strategies=tuple(dict.fromkeys(names)),
        seeds=options["seeds"],
        evaluations=options["evaluations"],
        batches=tuple(dict.fromkeys(options["batches"])),
    )


@contextmanager
def _progress(num_jobs: int, quiet: bool) -> "Iterator[Callable[[Any], Any]]":
    """A bar on a terminal, some lines elsewhere; gives a function to pass each replay through."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet:
        yield lambda one: one
    elif console.is_terminal:
        columns = (BarColumn(bar_width=24), MofNCompleteColumn(), "replays,", TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("", total=num_jobs)

            def step(one: Any) -> Any:
                progress.advance(task)
                return one

            yield step
    else:
        yield _plain_steps(num_jobs)


def _plain_steps(num_jobs: int) -> Callable[[Any], Any]:
    done = 0

    def step(one: Any) -> Any:
        nonlocal done
        done += 1
        if done * PLAIN_LINES // num_jobs > (done - 1) * PLAIN_LINES // num_jobs:
            click.echo(f"{done} of {num_jobs} replays", err=True)
        return one

    return step


def _print_tables(plan: "Plan", summary: "Summary") -> None:
    click.echo(f"{_title(plan)}; the fraction of the optimum after so many evaluations, median")
    columns = [name for name in _row(summary.curves[0], summary) if name != "recording"]
    rows = [_shown(_row(curve, summary)) for curve in summary.curves]
    print_table(rows, columns)
    if len(plan.recordings) > 1:
        click.echo("\neach recording")
        rows = [_shown(_row(curve, summary)) for curve in summary.by_space]
        print_table(rows, ["recording", *columns])


def _row(curve: "Curve", summary: "Summary") -> dict[str, Any]:
    row: dict[str, Any] = {
        "recording": curve.space or "median",
        "strategy": curve.strategy,
        "batch": curve.batch,
    }
    row |= {str(mark): curve.after(mark) for mark in summary.marks}
    return row | {"ms_per_proposal": curve.ms_per_proposal}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Fractions with the same number of digits, so that they compare at a glance."""
    return {name: f"{v:.3f}" if name.isdigit() else v for name, v in row.items()}


def _title(plan: "Plan") -> str:
    what = "recording" if len(plan.recordings) == 1 else "recordings"
    return f"{len(plan.recordings)} {what}, {plan.seeds} seeds, recorded times"


def _save(path: str, plan: "Plan", summary: "Summary", *, force: bool) -> None:
    from autogemm.cli.files import write_output
    from autogemm.support.version import __version__

    seconds = summary.seconds
    content = {
        "format": "autogemm-bench-search",
        "autogemm": __version__,
        "command": shlex.join(["autogemm", *sys.argv[1:]]),
        "seeds": plan.seeds,
        "evaluations": plan.evaluations,
        "recordings": [recording.name for recording in plan.recordings],
        "seconds_include_compiling": summary.includes_compiling,
        "seconds": None if seconds is None else _rounded(seconds),
        "curves": [_curve(curve) for curve in (*summary.curves, *summary.by_space)],
    }
    text = json.dumps(content, separators=(",", ":")) + "\n"
    write_output(path, text.encode(), force=force, ours='{"format":"autogemm-bench-search"')


def _curve(curve: "Curve") -> dict[str, Any]:
    by_seconds = curve.by_seconds
    return {
        "strategy": curve.strategy,
        "batch": curve.batch,
        "recording": curve.space,
        "ms_per_proposal": float(f"{curve.ms_per_proposal:.3g}"),
        "median": _rounded(curve.median),
        "low": _rounded(curve.low),
        "high": _rounded(curve.high),
        "by_seconds": None if by_seconds is None else _rounded(by_seconds),
    }


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
