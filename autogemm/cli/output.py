"""How listings are printed: an aligned table for people, ``--json`` and ``--csv`` for scripts."""

import csv
import io
import itertools
import json
import shutil
import sys
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
    """An aligned table: numbers to the right, text to the left.

    Folded where the terminal is too narrow; never for pipes and logs.
    """
    cells = [[shown(row.get(name)) for name in columns] for row in rows]
    numeric = [any(isinstance(row.get(name), int | float) for row in rows) for name in columns]
    widths = [
        max(_width(line) for cell in column for line in cell.split("\n"))
        for column in zip(columns, *cells, strict=True)
    ]
    needed = sum(widths) + len(_GAP) * (len(columns) - 1)
    if sys.stdout.isatty() and needed > shutil.get_terminal_size().columns:
        _print_folded(cells, columns, numeric, title)
        return
    if title is not None:
        click.secho(title, italic=True)
    shape = list(zip(widths, numeric, strict=True))
    click.secho(_aligned(columns, shape), bold=True)
    for row in cells:
        click.echo(_aligned(row, shape))


# Between two columns.
_GAP = "  "


def _width(line: str) -> int:
    """In columns of a terminal, of which some letters take two."""
    if line.isascii():
        return len(line)
    from rich.cells import cell_len

    return cell_len(line)


def _aligned(cells: Sequence[str], shape: Sequence[tuple[int, bool]]) -> str:
    """One row; of several lines where a cell has several. ``shape``: width, whether a number."""
    lines = []
    for parts in itertools.zip_longest(*(cell.split("\n") for cell in cells), fillvalue=""):
        padded = []
        for part, (width, is_number) in zip(parts, shape, strict=True):
            blanks = " " * (width - _width(part))
            padded.append(blanks + part if is_number else part + blanks)
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _print_folded(
    cells: Sequence[Sequence[str]],
    columns: Sequence[str],
    numeric: Sequence[bool],
    title: str | None,
) -> None:
    """For a terminal that is narrower than the table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text(): names from files and databases are shown as they are, never read as markup.
    heading = Text(title, style="table.title") if title is not None else None
    table = Table(
        title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for name, is_number in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)
