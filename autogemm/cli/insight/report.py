"""Options and help of ``autogemm report``."""

from typing import Any

import click

from autogemm.cli.filters import bench_option, filter_options
from autogemm.cli.options import db_option


@click.command()
@click.argument("file")
@bench_option("--bench", help="A benchmark, instead of a run.")
@click.option("--all", "of_all", is_flag=True, help="The winners of all runs that match.")
@click.option("--no-explain", is_flag=True, help="Leave out why the winner is as fast as it is.")
@click.option("--force", is_flag=True, help="Replace a file that is no earlier report.")
@filter_options
@db_option
def report(**values: Any) -> None:
    """Write one HTML FILE that explains a run: words, tables, plots, source; it loads nothing.

    The run is the newest that matches, or the one that --run names. With --bench the report is on
    a benchmark instead, with --all on the best kernels of all runs that match. Why the winner is as
    fast as it is comes from `autogemm explain` and takes some seconds.

    \b
    Examples:
      autogemm report report.html
      autogemm report run3.html --run 3
      autogemm report ladder.html --bench last
      autogemm report winners.html --all --gpu h100
    """
    from autogemm.cli.insight.run.report import ReportCommand, run

    run(ReportCommand(**values))
