"""Options and help of ``autogemm db merge``, ``prune`` and ``vacuum``."""

import re
from datetime import timedelta
from typing import Any

import click

from autogemm.cli.filters import filter_options
from autogemm.cli.options import db_option
from autogemm.cli.output import Form, listing_options

DAYS = {"d": 1, "w": 7, "y": 365}


@click.command()
@click.argument("other", metavar="OTHER.db")
@db_option
@listing_options
def merge(other: str, db: str | None, form: Form) -> None:
    """Add what another database has and this one lacks.

    Its runs, trials, finals, kernels, certificates, benchmarks, profiles. OTHER is a SQLite
    file, which is not touched, or a URL. What both have stays once, and merging again adds nothing.
    All of it is added or, after an error, nothing. Optuna's studies stay where they are.

    \b
    Examples:
      autogemm db merge results-of-the-other-machine.db
      autogemm db merge ~/old.db --db postgresql://me@server/autogemm
    """
    from autogemm.cli.db.run.upkeep import run_merge

    run_merge(other, db, form)


def age(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """Parse ``90d``, ``12w``, ``1y``. Raises click.BadParameter for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})([dwy])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age: write 90d, 12w or 1y")
    return timedelta(days=int(match[1]) * DAYS[match[2]])


@click.command()
@click.option(
    "--older-than",
    metavar="AGE",
    callback=age,
    help="Runs that began longer ago than this: 90d, 12w, 1y.",
)
@click.option("--with-best", is_flag=True, help="Also runs that hold a best kernel.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@filter_options
@db_option
@listing_options
def prune(**values: Any) -> None:
    """Delete runs that are not needed any more.

    With them go their trials, finals, studies, and kernels that no other run has. Runs that hold
    the best kernel of a GPU and problem stay, and so do those that are being written and those with
    a failed certificate. Asks before it deletes. `autogemm db vacuum` then gives the space back.

    \b
    Examples:
      autogemm db prune --older-than 90d --dry-run
      autogemm db prune --gpu t4 --provenance recorded --yes
      autogemm db prune --run 3 --with-best
    """
    from autogemm.cli.db.run.upkeep import PruneCommand, run_prune

    run_prune(PruneCommand(**values))


@click.command()
@db_option
@listing_options
def vacuum(db: str | None, form: Form) -> None:
    """Give back the space of what was deleted.

    The statistics of the tables are renewed too, so that queries stay fast.

    \b
    Examples:
      autogemm db vacuum
    """
    from autogemm.cli.db.run.upkeep import run_vacuum

    run_vacuum(db, form)
