"""Options and help of ``autogemm roofline``."""

from typing import Any

import click

from autogemm.cli.filters import filter_options
from autogemm.cli.insight.plot import comparison_options
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options


@click.command()
@click.argument("file", required=False)
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
@listing_options
def roofline(**values: Any) -> None:
    """Show how close kernels come to what their GPU can do, and draw it into FILE.

    FILE is a .png, .svg or .pdf; without it only the table is printed. The kernels are those of the
    newest benchmark, or the best in the database where there is none. The roof of a kernel is the
    smaller of the GPU's peak for its dtype and the memory bandwidth times the FLOP per byte that
    must move.

    \b
    Examples:
      autogemm roofline
      autogemm roofline roofline.svg --bench 2
      autogemm roofline winners.png --winners --gpu h100
    """
    from autogemm.cli.insight.run.roofline import RooflineCommand, run

    run(RooflineCommand(**values))
