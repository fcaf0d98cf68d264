"""Options and help of ``autogemm db best``, ``list``, ``show`` and ``path``."""

from typing import Any

import click

from autogemm.cli.filters import MAX_NUMBER, filter_options
from autogemm.cli.options import db_option
from autogemm.cli.output import Form, listing_options
from autogemm.model.outcome import Status
from autogemm.store import BestQuery, database_place

# How many rows a table shows unless told otherwise.
TABLE_ROWS = 20


@click.command()
@filter_options
@db_option
@listing_options
def best(query: BestQuery, db: str | None, form: Form) -> None:
    """Show the best kernel for each GPU and problem.

    It is the winner with the highest ratio to cuBLAS among the finals in the newest environment
    (driver, compiler, versions), or the fastest trial where there were no finals.
    ratio is cuBLAS time / own time: above 1 is faster than cuBLAS.

    \b
    Examples:
      autogemm db best
      autogemm db best --gpu h100 --size 4096 --json
    """
    from autogemm.cli.db.run.results import run_best

    run_best(query, db, form)


@click.command("list")
@click.option("--trials", "of_trials", is_flag=True, help="List trials instead of runs.")
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so: " + ", ".join(Status) + ".",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_NUMBER),
    help=f"At most so many, the newest. Default: {TABLE_ROWS} in a table, all in JSON and CSV.",
)
@filter_options
@db_option
@listing_options
def list_(*, limit: int | None, form: Form, **values: Any) -> None:
    """List runs, or with --trials their trials, newest first.

    \b
    Examples:
      autogemm db list
      autogemm db list --trials --status wrong_result
      autogemm db list --trials --run 1 --limit 100
    """
    from autogemm.cli.db.run.results import ListCommand, run_list

    if limit is None and form is Form.TABLE:
        limit = TABLE_ROWS
    run_list(ListCommand(limit=limit, form=form, **values))


@click.command()
@click.argument("identifier", metavar="ID")
@db_option
@listing_options
def show(identifier: str, db: str | None, form: Form) -> None:
    """Show a kernel by number or sha256, run:N or trial:N.

    For a kernel, ID is its number or the beginning of its sha256. JSON holds a run's finals and a
    kernel's trials too.

    \b
    Examples:
      autogemm db show 12
      autogemm db show run:1
      autogemm db show trial:345 --json
    """
    from autogemm.cli.db.run.results import run_show

    run_show(identifier, db, form)


@click.command()
@db_option
def path(db: str | None) -> None:
    """Print where the database is, or would be.

    \b
    Examples:
      sqlite3 "$(autogemm db path)" "SELECT count(*) FROM run_trials"
    """
    click.echo(database_place(db))
