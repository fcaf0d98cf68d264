"""Options and help of ``autogemm gpus``."""

import click

from autogemm.cli.options import db_option
from autogemm.cli.output import Form, listing_options
from autogemm.support.errors import UsageError


@click.command()
@click.argument("name", required=False)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure what the attached GPU reaches: multiply-adds alone, each memory alone.",
)
@db_option
@listing_options
def gpus(name: str | None, measure: bool, db: str | None, form: Form) -> None:
    """List the attached GPUs, the GPUs of the catalogue and the recordings; all facts of one, NAME.

    A GPU of the catalogue can be named where a command takes a GPU, without being attached. Peaks
    are cores x clock x 2 at the highest clock; those of tensor cores are without sparsity and with
    FP32 accumulators. The ridge is peak / bandwidth. --measure keeps what it finds in the database,
    for pictures. --json and --csv print the GPUs alone, in one list with all facts, whose column
    `kind` is `attached` or `known`.

    \b
    Examples:
      autogemm gpus
      autogemm gpus h100
      autogemm gpus --measure
      autogemm gpus --csv
    """
    from autogemm.cli.kernels.run import gpus as run

    if measure and name:
        raise UsageError("--measure is for the attached GPU: leave the name out")
    if measure:
        run.measure(db, form)
    elif name:
        run.show_one(name, form)
    else:
        run.show_all(form)
