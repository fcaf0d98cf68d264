"""How listings are printed: an aligned table for people, ``--json`` and ``--csv`` for scripts."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from autogemm.cells import shown

Row = Mapping[str, Any]


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--json`` and ``--csv``, passed on as ``as_json`` and ``as_csv``."""
    command = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(command)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_rows(
    rows: Sequence[Row], columns: Sequence[str], *, as_json: bool = False, as_csv: bool = False
) -> None:
    """Print rows in one of the three forms. JSON and CSV keep full precision and every row.

    Raises click.UsageError when both forms are asked for.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other: choose one")
    if as_json or as_csv:
        click.echo(rows_text(rows, columns, as_csv=as_csv), nl=False)
    else:
        print_table(rows, columns)


def rows_text(rows: Sequence[Row], columns: Sequence[str], *, as_csv: bool = False) -> str:
    """The rows as JSON (a list of objects) or CSV, in full precision."""
    if not as_csv:
        chosen = [{name: row.get(name) for name in columns} for row in rows]
        return json.dumps(chosen, indent=2) + "\n"
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def print_table(rows: Sequence[Row], columns: Sequence[str], title: str | None = None) -> None:
    """An aligned table: numbers to the right, text to the left."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text(): names from files and databases are shown as they are, never read as markup.
    heading = Text(title, style="table.title") if title is not None else None
    table = Table(
        title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for name in columns:
        numeric = any(isinstance(row.get(name), int | float) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(row.get(name))) for name in columns))
    console = Console()
    if not console.is_terminal:
        # Plain output is for pipes and logs: never folded to 80 columns.
        console = Console(width=max(console.width, 200))
    console.print(table)
