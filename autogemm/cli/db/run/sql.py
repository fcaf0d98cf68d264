"""``autogemm db sql`` and ``stats``: what no other command asks, and how much there is."""

import sys
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

import click

from autogemm.cli.output import Form
from autogemm.cli.rows import Columns, FlatRow, open_database, print_rows_as
from autogemm.store import BestQuery

# What --timeout none becomes: no database takes infinity.
MAX_TIMEOUT_S = 86_400.0

STATS: Columns = (
    *("gpu", "provenance", "num_runs", "num_problems", "num_environments", "num_trials"),
    *("num_ok", "hours", "first_at", "last_at"),
)


def run_stats(query: BestQuery, db: str | None, form: Form) -> None:
    """Print how much the database holds."""
    with open_database(db) as store:
        rows = [asdict(row) for row in store.stats(query)]
    if not rows:
        click.echo("no runs match", err=True)
    print_rows_as(rows, STATS, STATS, form)


@dataclass(frozen=True, slots=True)
class SqlCommand:
    """One call of ``db sql``. ``query`` is a SELECT, or ``-`` for standard input."""

    query: str
    limit: int | None
    timeout_s: float
    db: str | None
    form: Form


def run_sql(command: SqlCommand) -> None:
    """Print the rows of the SELECT."""
    query = sys.stdin.read() if command.query == "-" else command.query
    timeout_s = min(command.timeout_s, MAX_TIMEOUT_S)
    with open_database(command.db) as store:
        found = store.sql(query, timeout_s=timeout_s, limit=command.limit)
    rows: list[FlatRow] = [
        dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows
    ]
    print_rows_as(rows, found.columns, found.columns, command.form)
    if not rows:
        click.echo("no rows", err=True)
    if found.is_cut:
        click.echo(f"only the first {command.limit} rows: --limit shows more", err=True)


def _plain(value: Any) -> Any:
    """Return a value that JSON has: decimal numbers as floats, bytes in hexadecimal."""
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes | memoryview) else value
