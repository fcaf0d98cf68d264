"""Listings in three forms: an aligned table for people, ``--json`` and ``--csv`` for scripts."""

import csv
import functools
import io
import itertools
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

import click

from autogemm.support.cells import shown
from autogemm.support.errors import UsageError

Row = Mapping[str, Any]


class Form(Enum):
    """The form in which a command prints its rows."""

    TABLE = auto()
    JSON = auto()
    CSV = auto()


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` and ``--csv``, passed on as one ``form``.

    The command raises UsageError when both are given.
    """

    @functools.wraps(command)
    def with_form(*, as_json: bool, as_csv: bool, **values: Any) -> Any:
        if as_json and as_csv:
            raise UsageError("--json and --csv exclude each other: choose one")
        form = Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE
        return command(form=form, **values)

    decorated = click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")(with_form)
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(decorated)


def print_rows(rows: Sequence[Row], columns: Sequence[str], form: Form = Form.TABLE) -> None:
    """Print rows in one of the three forms. JSON and CSV keep full precision and every row."""
    if form is Form.TABLE:
        print_table(rows, columns)
    else:
        click.echo(rows_text(rows, columns, form), nl=False)


def rows_text(rows: Sequence[Row], columns: Sequence[str], form: Form) -> str:
    """Return the rows as JSON (a list of objects) or CSV, in full precision."""
    if form is Form.JSON:
        chosen = [{name: row.get(name) for name in columns} for row in rows]
        return json.dumps(chosen, indent=2) + "\n"
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def print_each(rows: Iterable[Row], columns: Sequence[str], form: Form) -> int:
    """Print what `rows_text` returns, row by row; return how many rows there were."""
    count = 0
    for count, row in enumerate(rows, start=1):
        if form is Form.JSON:
            # Texts hold no line breaks: JSON writes them as \\n.
            text = json.dumps({name: row.get(name) for name in columns}, indent=2)
            piece = ("[\n  " if count == 1 else ",\n  ") + text.replace("\n", "\n  ")
        else:
            whole = rows_text([row], columns, form)
            piece = whole if count == 1 else whole.partition("\n")[2]
        click.echo(piece, nl=False)
    if not count:
        click.echo(rows_text([], columns, form), nl=False)
    elif form is Form.JSON:
        click.echo("\n]")
    return count


def print_table(rows: Sequence[Row], columns: Sequence[str], title: str | None = None) -> None:
    """Print an aligned table: numbers to the right, text to the left.

    Where the terminal is too narrow, cells are folded between words. Where that is not enough,
    each row becomes a few lines of its own. Neither happens in pipes and logs.
    """
    cells = [[shown(row.get(name)) for name in columns] for row in rows]
    numeric = [any(isinstance(row.get(name), int | float) for row in rows) for name in columns]
    header = list(columns)
    widths = [_broadest(column, "\n") for column in zip(columns, *cells, strict=True)]
    gaps = len(_GAP) * (len(columns) - 1)
    there = shutil.get_terminal_size().columns if sys.stdout.isatty() else sum(widths) + gaps
    if title is not None:
        click.secho(title, italic=True)
    if sum(widths) + gaps > there:
        header = [name.replace("_", " ") for name in columns]
        least = [_broadest(column, None) for column in zip(header, *cells, strict=True)]
        if len(columns) <= FEW_COLUMNS:
            # A word that is too long for the rest of the line is broken.
            least[-1] = min(least[-1], max(SHORTEST, there - gaps - sum(least[:-1])))
        if sum(least) + gaps > there:
            _print_apart(cells, columns)
            return
        widths = _between(least, widths, there - gaps)
        header, *cells = (
            [_folded(cell, width) for cell, width in zip(row, widths, strict=True)]
            for row in (header, *cells)
        )
    shape = list(zip(widths, numeric, strict=True))
    click.secho(_aligned(header, shape), bold=True)
    for row in cells:
        click.echo(_aligned(row, shape))


# Between two columns.
_GAP = "  "
# Tables of at most so many columns are always folded, the last column to no less than SHORTEST.
FEW_COLUMNS = 3
SHORTEST = 10


def _width(line: str) -> int:
    """Return the number of terminal columns; some letters take two."""
    if line.isascii():
        return len(line)
    # Most tables are ASCII, and rich takes a tenth of a second to import.
    from rich.cells import cell_len

    return cell_len(line)


def _broadest(cells: Iterable[str], separator: str | None) -> int:
    """Return the width of the broadest line, or for None of the broadest word."""
    return max((_width(part) for cell in cells for part in cell.split(separator)), default=0)


def _between(least: Sequence[int], widths: Sequence[int], there: int) -> list[int]:
    """Return widths with a sum of at most ``there``; small wants are met first."""
    found, spare = list(least), there - sum(least)
    wanting = sorted(range(len(least)), key=lambda place: widths[place] - least[place])
    for number, place in enumerate(wanting):
        more = min(max(0, widths[place] - least[place]), spare // (len(wanting) - number))
        found[place] += more
        spare -= more
    return found


def _folded(cell: str, width: int) -> str:
    lines = (textwrap.wrap(line, width, break_on_hyphens=False) for line in cell.split("\n"))
    return "\n".join(itertools.chain.from_iterable(part or [""] for part in lines))


def _aligned(cells: Sequence[str], shape: Sequence[tuple[int, bool]]) -> str:
    """Return one row, with as many lines as its cells. ``shape``: width, whether a number."""
    lines = []
    for parts in itertools.zip_longest(*(cell.split("\n") for cell in cells), fillvalue=""):
        padded = []
        for part, (width, is_number) in zip(parts, shape, strict=True):
            blanks = " " * (width - _width(part))
            padded.append(blanks + part if is_number else part + blanks)
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _print_apart(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Print each row as lines of name and value."""
    broadest = max(map(len, columns))
    for number, row in enumerate(cells):
        if number:
            click.echo()
        for name, value in zip(columns, row, strict=True):
            click.echo(f"{click.style(name.ljust(broadest), bold=True)}{_GAP}{value}")
