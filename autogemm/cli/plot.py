"""``autogemm plot``: pictures of runs and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli.db_filters import filter_options, open_database
from autogemm.cli.files import write_output
from autogemm.cli.options import db_option
from autogemm.errors import UsageError

if TYPE_CHECKING:
    from autogemm.analysis import RunTrials
    from autogemm.store import BestQuery

KINDS = ("history", "distribution", "importance", "heatmap")


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file")
@click.option("--x", metavar="NAME", help="heatmap: the parameter along the bottom.")
@click.option("--y", metavar="NAME", help="heatmap: the parameter up the side.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
def plot(  # noqa: PLR0913, PLR0917  # one parameter for each option
    kind: str,
    file: str,
    query: BestQuery,
    db: str | None,
    x: str | None,
    y: str | None,
    force: bool,
) -> None:
    """Draw a picture of a run into a .png, .svg or .pdf FILE.

    \b
    history       the best so far, against trials and against seconds
    distribution  how many of all configs are how fast
    importance    which parameters set the fastest tenth apart (PED-ANOVA)
    heatmap       the best config for each pair of values of two parameters

    Of the newest run that matches, or the one that --run names. Without --x and --y a heat map is
    of the two parameters that matter most.

    \b
    Examples:
      autogemm plot history history.svg
      autogemm plot heatmap tiles.png --run 3 --x BM --y BN
      autogemm plot importance importance.svg --gpu h100 --size 4096
    """
    from autogemm.analysis import read_run
    from autogemm.plots import check_plot

    if (x or y) and kind != "heatmap":
        raise UsageError(f"--x and --y are for heatmap, not for {kind}")
    check_plot(Path(file))
    with open_database(db) as store:
        trials = read_run(store, query)
    content = _DRAW[kind](trials, query.family or trials.family(), (x, y), Path(file).suffix)
    write_output(file, content, force=force)
    click.echo(f"{file}: {trials.caption}")


Axes = tuple[str | None, str | None]


def _history(trials: RunTrials, family: str, axes: Axes, suffix: str) -> bytes:
    from autogemm.plots import history_picture

    return history_picture(trials, suffix)


def _distribution(trials: RunTrials, family: str, axes: Axes, suffix: str) -> bytes:
    from autogemm.plots import distribution_picture

    return distribution_picture(trials, suffix)


def _importance(trials: RunTrials, family: str, axes: Axes, suffix: str) -> bytes:
    from autogemm.analysis import importance
    from autogemm.plots import importance_picture

    return importance_picture(trials, family, importance(trials, family), suffix)


def _heatmap(trials: RunTrials, family: str, axes: Axes, suffix: str) -> bytes:
    from autogemm.analysis import grid
    from autogemm.plots import heatmap_picture

    return heatmap_picture(trials, family, grid(trials, family, *axes), suffix)


_DRAW: dict[str, Callable[[RunTrials, str, Axes, str], bytes]] = {
    "history": _history,
    "distribution": _distribution,
    "importance": _importance,
    "heatmap": _heatmap,
}
