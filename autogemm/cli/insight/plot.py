"""Options and help of ``autogemm plot``."""

from collections.abc import Callable
from typing import Any

import click

from autogemm.cli.filters import bench_option, filter_options
from autogemm.cli.options import db_option

KINDS = ("history", "distribution", "importance", "heatmap", "sizes", "ladder")

Command = Callable[..., Any]


def comparison_options(command: Command) -> Command:
    """Add ``--bench ID --winners``, for `autogemm.insight.analysis.compare`."""
    command = click.option(
        "--winners", is_flag=True, help="The best kernels of the database instead of a benchmark."
    )(command)
    return bench_option(
        "--bench", "bench_id", help="A benchmark of the database; default: the newest."
    )(command)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file")
@click.option("--x", metavar="NAME", help="heatmap: the parameter along the bottom.")
@click.option("--y", metavar="NAME", help="heatmap: the parameter up the side.")
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
def plot(**values: Any) -> None:
    """Draw a picture of a run or of a benchmark into a .png, .svg or .pdf FILE.

    \b
    Pictures of a run, the newest that matches or the one that --run names:
      history       the best so far, against trials and against seconds
      distribution  how many of all configs are how fast
      importance    which parameters set the fastest tenth apart (PED-ANOVA)
      heatmap       the best config for each pair of values of two parameters;
                    without --x and --y the two that matter most

    \b
    Pictures of a benchmark, or of the best kernels in the database where there is none:
      sizes         GFLOP/s and percent of cuBLAS against size
      ladder        a bar a kernel, on the size that --size names or the largest

    `autogemm roofline` draws the roofline.

    \b
    Examples:
      autogemm plot history history.svg
      autogemm plot heatmap tiles.png --run 3 --x BM --y BN
      autogemm plot ladder ladder.svg --bench 2 --size 4096
    """
    from autogemm.cli.insight.run.plot import PlotCommand, run

    run(PlotCommand(**values))
