"""Tables for people: aligned, as broad as the terminal at most, ratios in colour.

A column that has no value in any row is left out, and so are columns beyond the short form of a
table unless ``--wide`` is given.
"""

import itertools
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import click

from autogemm.cli.prose import folded_line, say, terminal_width
from autogemm.model.results.columns import HEADS
from autogemm.support.amounts import ROUNDED, short_count
from autogemm.support.cells import shown

Row = Mapping[str, Any]

# Between two columns.
_GAP = "  "
# Columns for a value beside its name, however narrow the terminal is.
_LEAST_VALUE = 20
# From here on digits are grouped.
GROUPED = 10_000
# Columns of numbers that are identifiers, not counts.
_NAMES = ("_id", "run", "trial", "number", "seed", "driver")
_WIDE = "autogemm.wide"

# Ratios that are coloured: column to the columns of its interval. Above 1 is better.
_RATIOS = {
    **dict.fromkeys(("ratio", HEADS["ratio"]), ("ratio_low", "ratio_high")),
    **dict.fromkeys(("ratio_of_medians", HEADS["ratio_of_medians"]), ()),
    **dict.fromkeys(("sustained_ratio", HEADS["sustained_ratio"]), ()),
    "speed_up": ("speed_up_low", "speed_up_high"),
    "percent_of_cublas": ("ratio_low", "ratio_high"),
}
_PERCENT = {"percent_of_cublas"}
# Words that are coloured wherever a cell holds nothing else.
_TONES = {"FAST": "green", "faster": "green", "SLOW": "red", "slower": "red", "failed": "red"}


def remember_wide(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Store for `print_table` that ``--wide`` was given."""
    if value:
        context.meta[_WIDE] = True


def is_wide() -> bool:
    """Return whether the command was given ``--wide``."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_WIDE))


def print_table(
    rows: Sequence[Row],
    columns: Sequence[str],
    title: str | None = None,
    *,
    short: Collection[str] = (),
    keep_empty: bool = False,
) -> None:
    """Print an aligned table: numbers to the right, text to the left.

    ``short`` names the columns that are shown without ``--wide``; empty means all. A column without
    a value is left out unless ``keep_empty``. Where the terminal is too narrow, cells are folded
    between words. Where that is not enough, each row is printed as lines of name and value. Neither
    happens in pipes and logs.
    """
    filled = [name for name in columns if keep_empty or _has_value(rows, name)]
    chosen = [name for name in filled if not short or is_wide() or name in short]
    if title is not None:
        say(title, italic=True)
    if chosen:
        _print_cells(rows, chosen)
    if len(chosen) < len(filled) and sys.stdout.isatty():
        click.secho(f"{len(filled) - len(chosen)} more columns: --wide", dim=True)


def _has_value(rows: Sequence[Row], name: str) -> bool:
    return not rows or any(row.get(name) not in (None, "") for row in rows)


def _print_cells(rows: Sequence[Row], columns: Sequence[str]) -> None:
    cells = [[cell(name, row.get(name)) for name in columns] for row in rows]
    tones = [[_tone(name, row) for name in columns] for row in rows]
    numeric = [any(isinstance(row.get(name), int | float) for row in rows) for name in columns]
    header = list(columns)
    widths = [_broadest(column, "\n") for column in zip(columns, *cells, strict=True)]
    gaps = len(_GAP) * (len(columns) - 1)
    there = terminal_width() or sum(widths) + gaps
    if sum(widths) + gaps > there:
        header = [name.replace("_", " ") for name in columns]
        least = [_broadest(column, None) for column in zip(header, *cells, strict=True)]
        if sum(least) + gaps > there:
            _print_apart(cells, tones, columns)
            return
        widths = _between(least, widths, there - gaps)
        header, *cells = (
            [_folded(part, width) for part, width in zip(row, widths, strict=True)]
            for row in (header, *cells)
        )
    shape = list(zip(widths, numeric, strict=True))
    click.secho(_aligned(header, shape, [None] * len(shape)), bold=True)
    for row, colours in zip(cells, tones, strict=True):
        click.echo(_aligned(row, shape, colours))


def cell(name: str, value: object) -> str:
    """Return a cell for people: large counts with grouped digits, ratios with three digits."""
    if name in _RATIOS and name not in _PERCENT and isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, bool) or not isinstance(value, int | float) or name.endswith(_NAMES):
        return shown(value)
    if not GROUPED <= abs(value) < math.inf:
        return shown(value)
    return f"{value:,.0f}" if abs(value) < ROUNDED else short_count(value)


def _tone(name: str, row: Row) -> str | None:
    """Return the colour of a cell: green where it is significantly better than 1, red where
    worse."""
    value = row.get(name)
    if name not in _RATIOS:
        return _TONES.get(value) if isinstance(value, str) else None
    try:
        ratio = float(value) if value not in (None, "") else None
    except (TypeError, ValueError):
        return None
    if ratio is None:
        return None
    if name in _PERCENT:
        ratio /= 100
    bounds = [row.get(bound) for bound in _RATIOS[name]]
    low, high = bounds if len(bounds) == 2 and None not in bounds else (ratio, ratio)
    assert low is not None and high is not None
    if low > 1:
        return "green"
    return "red" if high < 1 else None


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
    """Return widths with a sum of at most ``there``; narrow columns are satisfied first."""
    found, spare = list(least), there - sum(least)
    wanting = sorted(range(len(least)), key=lambda place: widths[place] - least[place])
    for number, place in enumerate(wanting):
        more = min(max(0, widths[place] - least[place]), spare // (len(wanting) - number))
        found[place] += more
        spare -= more
    return found


def _folded(cell: str, width: int) -> str:
    lines = (folded_line(line, width) for line in cell.split("\n"))
    return "\n".join(itertools.chain.from_iterable(lines))


def _aligned(
    cells: Sequence[str], shape: Sequence[tuple[int, bool]], tones: Sequence[str | None]
) -> str:
    """Return one row, with as many lines as its cells. ``shape``: width, whether a number."""
    lines = []
    for parts in itertools.zip_longest(*(cell.split("\n") for cell in cells), fillvalue=""):
        padded = []
        for part, (width, is_number), tone in zip(parts, shape, tones, strict=True):
            blanks = " " * (width - _width(part))
            text = click.style(part, fg=tone) if tone else part
            padded.append(blanks + text if is_number else text + blanks)
        lines.append(_GAP.join(padded).rstrip())
    return "\n".join(lines)


def _print_apart(
    cells: Sequence[Sequence[str]], tones: Sequence[Sequence[str | None]], columns: Sequence[str]
) -> None:
    """Print each row as lines of name and value, folded behind the names."""
    broadest = max(map(len, columns))
    behind = broadest + len(_GAP)
    width = max((terminal_width() or 0) - behind, _LEAST_VALUE)
    for number, (row, colours) in enumerate(zip(cells, tones, strict=True)):
        if number:
            click.echo()
        for name, value, tone in zip(columns, row, colours, strict=True):
            lines = _folded(value, width).replace("\n", "\n" + " " * behind)
            text = click.style(lines, fg=tone) if tone else lines
            click.echo(f"{click.style(name.ljust(broadest), bold=True)}{_GAP}{text}")
