"""The output of commands: prose that is folded on a terminal, and listings in three forms, an
aligned table for people, ``--json`` and ``--csv`` for scripts.
"""

import csv
import functools
import io
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from itertools import groupby
from typing import Any

import click

from autogemm.cli.table import Row, print_table, remember_wide
from autogemm.support.errors import UsageError

_NESTED = (dict, list)


class Form(Enum):
    """The form in which a command prints its rows."""

    TABLE = auto()
    JSON = auto()
    CSV = auto()


def listing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--json`` and ``--csv``, passed on as one ``form``, and ``--wide``.

    The command raises UsageError when both are given.
    """

    @functools.wraps(command)
    def with_form(*, as_json: bool, as_csv: bool, **values: Any) -> Any:
        if as_json and as_csv:
            raise UsageError("--json and --csv exclude each other: choose one")
        form = Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE
        return command(form=form, **values)

    options = (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        click.option(
            "--wide",
            is_flag=True,
            expose_value=False,
            callback=remember_wide,
            help="Show every column of tables, not six.",
        ),
    )
    decorated: Callable[..., Any] = with_form
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def print_rows(
    rows: Sequence[Row],
    columns: Sequence[str],
    form: Form = Form.TABLE,
    *,
    short: Collection[str] = (),
) -> None:
    """Print rows in one of the three forms. JSON and CSV keep full precision and every row.

    ``short`` names the columns of a table without ``--wide``; empty means all.
    """
    if form is Form.TABLE:
        print_table(rows, columns, short=short)
    else:
        click.echo(rows_text(rows, columns, form), nl=False)


def rows_text(rows: Sequence[Row], columns: Sequence[str], form: Form) -> str:
    """Return the rows as JSON (a list of objects) or CSV, in full precision."""
    if form is Form.JSON:
        chosen = [{name: row.get(name) for name in columns} for row in rows]
        return _indented(chosen) + "\n"
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _indented(value: Any, indent: str = "\n") -> str:
    """Return the text of ``json.dumps(value, indent=2)``, which would write each cell in Python.

    ``indent`` is a line break and the spaces before the value's last line.
    """
    if not value or not isinstance(value, _NESTED):
        return json.dumps(value)
    deeper = indent + "  "
    between = "," + deeper
    encode = json.JSONEncoder(separators=(between, ": ")).encode
    if isinstance(value, list):
        is_plain = not any(isinstance(part, _NESTED) for part in value)
        texts = [encode(value)[1:-1]] if is_plain else [_indented(part, deeper) for part in value]
        return f"[{deeper}{between.join(texts)}{indent}]"
    texts = []
    for is_nested, items in groupby(value.items(), lambda item: isinstance(item[1], _NESTED)):
        if is_nested:
            texts += [f"{json.dumps(name)}: {_indented(part, deeper)}" for name, part in items]
        else:
            texts.append(encode(dict(items))[1:-1])
    return f"{{{deeper}{between.join(texts)}{indent}}}"


def print_each(rows: Iterable[Row], columns: Sequence[str], form: Form) -> int:
    """Print what `rows_text` returns, row by row; return how many rows there were."""
    count = 0
    for count, row in enumerate(rows, start=1):
        if form is Form.JSON:
            text = _indented({name: row.get(name) for name in columns}, "\n  ")
            piece = ("[\n  " if count == 1 else ",\n  ") + text
        else:
            whole = rows_text([row], columns, form)
            piece = whole if count == 1 else whole.partition("\n")[2]
        click.echo(piece, nl=False)
    if not count:
        click.echo(rows_text([], columns, form), nl=False)
    elif form is Form.JSON:
        click.echo("\n]")
    return count
