"""The database of a command, and its rows in print."""

from collections.abc import Sequence

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.output import Form, print_rows, print_table
from autogemm.cli.rows import Columns, FlatRow
from autogemm.model.config import label, shared_values
from autogemm.store import Store, open_store


def open_database(url: str | None) -> Store:
    """Open the database of ``--db``. Raises NotFoundError if it is not there."""
    return open_store(url, create=False)


def print_rows_as(
    rows: Sequence[FlatRow],
    columns: Columns,
    table: Columns,
    form: Form,
) -> None:
    """Print the rows as a table of the columns ``table``, or as JSON or CSV of ``columns``."""
    if form is not Form.TABLE:
        shape = db_rows.for_csv if form is Form.CSV else db_rows.for_json
        print_rows([shape(row) for row in rows], columns, form)
    elif rows:
        print_readable(rows, table)


def print_readable(rows: Sequence[FlatRow], columns: Columns, title: str | None = None) -> None:
    """Print a table for people; values that all configs share stand once, below it."""
    configs = [row["config"] for row in rows if row.get("config") is not None]
    shared = shared_values(configs) if "config" in columns else {}
    shown = [db_rows.for_table(row) for row in rows]
    for row, readable in zip(rows, shown, strict=True):
        if row.get("config") is None:
            # cuBLAS has a name, and no config.
            readable["config"] = row.get("name")
        elif shared:
            own = label(pair for pair in row["config"] if pair[0] not in shared)
            readable["config"] = own or "(the same)"
    print_table(shown, columns, title)
    if shared:
        click.echo(f"all of them: {label(shared.items())}")
