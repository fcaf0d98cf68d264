"""``autogemm db sql`` and ``stats``: what no other command asks, and how much there is."""

from __future__ import annotations

import sys
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.filters import MAX_NUMBER, filter_options, open_database, print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns, FlatRow
from autogemm.cli.tune.command import seconds

if TYPE_CHECKING:
    from autogemm.store import BestQuery

# How many rows a table shows unless told otherwise.
TABLE_ROWS = 100
# What --timeout none becomes: no database takes infinity.
MAX_TIMEOUT_S = 86_400.0

STATS: Columns = (
    *("gpu", "provenance", "num_runs", "num_problems", "num_environments", "num_trials"),
    *("num_ok", "hours", "first_at", "last_at"),
)


@click.command()
@filter_options
@db_option
@listing_options
def stats(query: BestQuery, db: str | None, as_json: bool, as_csv: bool) -> None:
    """How much the database holds, for each GPU.

    \b
    Examples:
      autogemm db stats
      autogemm db stats --gpu h100 --json
    """
    with open_database(db) as store:
        rows = [asdict(row) for row in store.stats(query)]
    if not rows:
        click.echo("no runs match", err=True)
    print_rows_as(rows, STATS, STATS, as_json=as_json, as_csv=as_csv)


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
def sql(  # noqa: PLR0913, PLR0917  # one parameter for each option
    query: str, limit: int | None, timeout_s: float, db: str | None, as_json: bool, as_csv: bool
) -> None:
    """One SELECT of your own; nothing can be changed with it. - reads it from standard input.

    db/README.md has the tables, columns and queries to start from.

    \b
    Examples:
      autogemm db sql "SELECT status, count(*) AS trials FROM run_trials GROUP BY status"
      autogemm db sql - --csv < query.sql
    """
    if query == "-":
        query = sys.stdin.read()
    if limit is None and not (as_json or as_csv):
        limit = TABLE_ROWS
    with open_database(db) as store:
        found = store.sql(query, timeout_s=min(timeout_s, MAX_TIMEOUT_S), limit=limit)
    rows: list[FlatRow] = [
        dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows
    ]
    print_rows_as(rows, found.columns, found.columns, as_json=as_json, as_csv=as_csv)
    if not rows:
        click.echo("no rows", err=True)
    if found.is_cut:
        click.echo(f"only the first {limit} rows: --limit shows more", err=True)


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of any precision as floats, bytes in hexadecimal."""
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes | memoryview) else value
