"""How listings are printed: an aligned table for people, ``--json`` and ``--csv`` for scripts."""

import csv
import io
import itertools
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click

from autogemm.support.cells import shown

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

    Where the terminal is too narrow cells are folded between words, and where that does not do it
    each row becomes a few lines of its own; never for pipes and logs.
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
# So many are always folded, the last one to no less than this.
FEW_COLUMNS = 3
SHORTEST = 10


def _width(line: str) -> int:
    """In columns of a terminal, of which some letters take two."""
    if line.isascii():
        return len(line)
    from rich.cells import cell_len

    return cell_len(line)


def _broadest(cells: Iterable[str], separator: str | None) -> int:
    """Of the cells' lines, or for None words."""
    return max((_width(part) for cell in cells for part in cell.split(separator)), default=0)


def _between(least: Sequence[int], widths: Sequence[int], there: int) -> list[int]:
    """Widths that sum up to no more than ``there``: what is to share goes where little helps."""
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
    """One row; of several lines where a cell has several. ``shape``: width, whether a number."""
    lines = []
    for parts in itertools.zip_longest(*(cell.split("\n") for cell in cells), fillvalue=""):
        padded = []
        for part, (width, is_number) in zip(parts, shape, strict=True):
            blanks = " " * (width - _width(part))
            padded.append(blanks + part if is_number else part + blanks)
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _print_apart(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Each row as lines of name and value."""
    broadest = max(map(len, columns))
    for number, row in enumerate(cells):
        if number:
            click.echo()
        for name, value in zip(columns, row, strict=True):
            click.echo(f"{click.style(name.ljust(broadest), bold=True)}{_GAP}{value}")
