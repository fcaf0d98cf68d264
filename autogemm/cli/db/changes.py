"""Options and help of ``autogemm db history`` and ``compare``."""

import click

from autogemm.cli.filters import filter_options
from autogemm.cli.options import db_option
from autogemm.cli.output import Form, listing_options
from autogemm.store import BestQuery


@click.command()
@filter_options
@db_option
@listing_options
def history(query: BestQuery, db: str | None, form: Form) -> None:
    """Show the best kernels over drivers and versions, oldest first.

    One row for each environment (driver, compiler, versions) that a problem was tuned in. Each row
    is compared with the one before it, see `autogemm db compare -h` for the words.

    \b
    Examples:
      autogemm db history --gpu h100 --size 4096
    """
    from autogemm.cli.db.run.changes import run_history

    run_history(query, db, form)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--by",
    type=click.Choice(["time", "cublas"]),
    help="Compare times, or ratios to cuBLAS in the same rounds. Default: cublas where it "
    "is the same cuBLAS on the same GPU, because clocks drift between sessions.",
)
@db_option
@listing_options
def compare(first: str, second: str, by: str | None, db: str | None, form: Form) -> None:
    """Show the best kernels of two runs, GPUs or versions side by side.

    One row for each problem that both have. A and B are run:N, gpu:NAME or the beginning of a
    version: driver:580, cuda:13.0, nvrtc:, cublas:, cupy:, python:, autogemm:. speed_up is how many
    times as fast B is, with its 95 % interval from the samples. SAME: the interval lies within 1 %
    of 1. FAST, SLOW: it lies above or below 1. AMBG: it says neither, or a side has fewer than six
    samples (a recording has one).

    \b
    Examples:
      autogemm db compare run:3 run:8
      autogemm db compare gpu:a100 gpu:h100
      autogemm db compare driver:570 driver:580 --json
    """
    from autogemm.cli.db.run.changes import run_compare

    run_compare(first, second, by, db, form)
