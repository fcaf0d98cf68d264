"""Options and help of ``autogemm db sql`` and ``stats``."""

from typing import Any

import click

from autogemm.cli.filters import MAX_NUMBER, filter_options
from autogemm.cli.options import db_option, seconds
from autogemm.cli.output import Form, listing_options
from autogemm.store import BestQuery

# How many rows a table shows unless told otherwise.
TABLE_ROWS = 100


@click.command()
@filter_options
@db_option
@listing_options
def stats(query: BestQuery, db: str | None, form: Form) -> None:
    """Show how much the database holds, for each GPU.

    \b
    Examples:
      autogemm db stats
      autogemm db stats --gpu h100 --json
    """
    from autogemm.cli.db.run.sql import run_stats

    run_stats(query, db, form)


@click.command()
@click.argument("query", metavar="SELECT")
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_NUMBER),
    help=f"At most so many rows. Default: {TABLE_ROWS} in a table, all in JSON and CSV.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="TIME",
    callback=seconds,
    default="30s",
    show_default=True,
    help="Give up after that time: 90s, 2m, 1h.",
)
@db_option
@listing_options
def sql(*, limit: int | None, form: Form, **values: Any) -> None:
    """Run one SELECT of your own; it cannot change anything.

    - reads it from standard input. db/README.md has the tables, columns and queries to start from.

    \b
    Examples:
      autogemm db sql "SELECT status, count(*) AS trials FROM run_trials GROUP BY status"
      autogemm db sql - --csv < query.sql
    """
    from autogemm.cli.db.run.sql import SqlCommand, run_sql

    if limit is None and form is Form.TABLE:
        limit = TABLE_ROWS
    run_sql(SqlCommand(limit=limit, form=form, **values))
