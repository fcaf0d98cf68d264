"""Options and help of ``autogemm db pareto``."""

from typing import Any

import click

from autogemm.cli.filters import filter_options
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options


@click.command()
@click.option(
    "--all", "of_all", is_flag=True, help="All kernels with an energy, not the front only."
)
@click.option(
    "--plot",
    metavar="FILE",
    help="Draw all of them, and the front as a line, into a .png, .svg or .pdf file.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
@listing_options
def pareto(**values: Any) -> None:
    """Show the kernels that none beats in both time and energy.

    The run is the newest that measured energy (`tune --objective energy` or `edp`), or the one that
    --run names; the fastest first, cuBLAS last. Energy is that of the whole GPU.

    \b
    Examples:
      autogemm db pareto
      autogemm db pareto --run 3 --plot front.png
      autogemm db pareto --all --json
    """
    from autogemm.cli.db.run.pareto import ParetoCommand, run

    run(ParetoCommand(**values))
