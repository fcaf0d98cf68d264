"""Options and help of ``autogemm db check``."""

from typing import Any

import click

from autogemm.cli.options import db_option, seconds
from autogemm.cli.output import listing_options


@click.command()
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="The GPU whose winners are measured, as in `autogemm tune`.",
)
@click.option("--size", metavar="SIZE", help="Only this size: 4096 or MxNxK.")
@click.option("--layout", metavar="LAYOUT", help="Only this layout: nn, nt, tn or tt.")
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Families besides those that ship; --retune searches these alone. Repeatable.",
)
@click.option("--all", "everything", is_flag=True, help="Also winners where nothing has changed.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Rounds of measuring.",
)
@click.option("--retune", is_flag=True, help="Tune again where a winner moved.")
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="For --retune.",
)
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=seconds,
    default="2m",
    show_default=True,
    help="Time of --retune for each problem: 90s, 2m, 1h, none.",
)
@click.option("--no-certify", is_flag=True, help="Do not check new winners further.")
@db_option
@listing_options
def check(**values: Any) -> None:
    """Measure stored winners again after a new driver, compiler, ...

    The winners are those of this GPU where something has changed since: the driver, CUDA, the
    compiler, cuBLAS, the version, or the family's template. The stored kernel and cuBLAS run in
    turn, and the result is kept as a run of its own. FAST and SLOW: the winner moved, see `autogemm
    db compare -h` for the words; one that does not run any more moved too. --retune tunes only
    these. Without a GPU the command is an error.

    \b
    Examples:
      autogemm db check
      autogemm db check --all --size 4096
      autogemm db check --retune --budget 1m
    """
    from autogemm.cli.db.run.check import CheckCommand, run

    run(CheckCommand(**values))
