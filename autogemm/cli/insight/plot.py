"""``autogemm plot``: pictures of runs and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.files import write_output
from autogemm.cli.filters import bench_id_of, bench_option, filter_options, open_database
from autogemm.cli.options import db_option
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.insight.analysis import Comparison, RunTrials
    from autogemm.store import BestQuery, Store

OF_A_RUN = ("history", "distribution", "importance", "heatmap")
OF_KERNELS = ("sizes", "ladder")

Command = Callable[..., Any]


def comparison_options(command: Command) -> Command:
    """Adds ``--bench ID --winners``, for `autogemm.insight.analysis.compare`."""
    command = click.option(
        "--winners", is_flag=True, help="The best kernels of the database instead of a benchmark."
    )(command)
    return bench_option(
        "--bench", "bench_id", help="A benchmark of the database; default: the newest."
    )(command)


@click.command()
@click.argument("kind", type=click.Choice([*OF_A_RUN, *OF_KERNELS]))
@click.argument("file")
@click.option("--x", metavar="NAME", help="heatmap: the parameter along the bottom.")
@click.option("--y", metavar="NAME", help="heatmap: the parameter up the side.")
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
def plot(kind: str, file: str, query: BestQuery, db: str | None, force: bool, **how: Any) -> None:
    """Draw a picture of a run or of a benchmark into a .png, .svg or .pdf FILE.

    \b
    Of a run, the newest that matches or the one that --run names:
      history       the best so far, against trials and against seconds
      distribution  how many of all configs are how fast
      importance    which parameters set the fastest tenth apart (PED-ANOVA)
      heatmap       the best config for each pair of values of two parameters;
                    without --x and --y of the two that matter most

    \b
    Of a benchmark, or of the best kernels in the database where there is none:
      sizes         GFLOP/s and percent of cuBLAS against size
      ladder        a bar a kernel, on the size that --size names or the largest

    `autogemm roofline` draws the roofline.

    \b
    Examples:
      autogemm plot history history.svg
      autogemm plot heatmap tiles.png --run 3 --x BM --y BN
      autogemm plot ladder ladder.svg --bench 2 --size 4096
    """
    from autogemm.insight.plots import check_plot

    path = Path(file)
    _check_options(kind, how)
    check_plot(path)
    draw = _of_a_run if kind in OF_A_RUN else _of_kernels
    with open_database(db) as store:
        content, caption = draw(store, kind, query, how, path.suffix)
    write_output(file, content, force=force)
    click.echo(f"{file}: {caption}")


def _check_options(kind: str, how: dict[str, Any]) -> None:
    if (how["x"] or how["y"]) and kind != "heatmap":
        raise UsageError(f"--x and --y are for heatmap, not for {kind}")
    if (how["bench_id"] or how["winners"]) and kind not in OF_KERNELS:
        raise UsageError(f"--bench and --winners are for {' and '.join(OF_KERNELS)}, not {kind}")


def _of_a_run(
    store: Store, kind: str, query: BestQuery, how: dict[str, Any], suffix: str
) -> tuple[bytes, str]:
    from autogemm.insight.analysis import read_run

    trials = read_run(store, query)
    family = query.family or trials.family()
    return _run_picture(kind, trials, family, how, suffix), trials.caption


def _run_picture(
    kind: str, trials: RunTrials, family: str, how: dict[str, Any], suffix: str
) -> bytes:
    from autogemm.insight import analysis, plots

    match kind:
        case "history":
            return plots.history_picture(trials, suffix)
        case "distribution":
            return plots.distribution_picture(trials, suffix)
        case "importance":
            shares = analysis.importance(trials, family)
            return plots.importance_picture(trials, family, shares, suffix)
    cells = analysis.grid(trials, family, how["x"], how["y"])
    return plots.heatmap_picture(trials, family, cells, suffix)


def _of_kernels(
    store: Store, kind: str, query: BestQuery, how: dict[str, Any], suffix: str
) -> tuple[bytes, str]:
    from autogemm.insight import plots
    from autogemm.insight.analysis import compare

    comparison: Comparison = compare(
        store, query, bench_id_of(how["bench_id"]), winners=how["winners"]
    )
    if kind == "sizes":
        return plots.sizes_picture(comparison, suffix), comparison.caption
    return plots.ladder_picture(comparison, comparison.sizes()[-1], suffix), comparison.caption
