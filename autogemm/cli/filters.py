"""What the commands of ``autogemm db`` share: the filters, the database, how rows are printed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.output import print_rows, print_table
from autogemm.cli.rows import Columns, FlatRow
from autogemm.model.config import label, shared_values
from autogemm.model.dtypes import DType
from autogemm.model.outcome import Provenance
from autogemm.model.problem import Layout

if TYPE_CHECKING:
    from autogemm.store import Store

# Ids have 32 bits in every database.
MAX_NUMBER = 2**31 - 1

# Names of the plain filters, as options and in BestQuery.
FILTERS = ("gpu", "size", "layout", "dtype", "family", "run_id")

# In place of a benchmark's number: the newest.
LAST = "last"

Command = Callable[..., Any]


def bench_option(*names: str, help: str) -> Callable[[Command], Command]:
    """An option that takes the number of a benchmark, or ``last``, which stays a text."""
    return click.option(*names, metavar=f"ID|{LAST}", callback=_bench_number, help=help)


def _bench_number(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> int | str | None:
    if value is None or value == LAST:
        return value
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:11]) <= MAX_NUMBER):
        raise click.BadParameter(f"{value!r} is neither the number of a benchmark nor {LAST}")
    return int(value)


def bench_id_of(number: int | str | None) -> int | None:
    """As the store takes what the option gave: None is the newest."""
    return None if number == LAST or number is None else int(number)


def filter_options(command: Command) -> Command:
    """Adds ``--gpu --size --layout --dtype --family --run --provenance`` as one ``query``."""
    layouts = [layout.value for layout in Layout]
    dtypes = [dtype.label for dtype in DType]
    options = (
        click.option("--gpu", metavar="NAME", help="Any part of the GPU's name, in any case."),
        click.option("--size", metavar="SIZE", help="4096 or MxNxK."),
        click.option("--layout", type=click.Choice(layouts), help="As stored (n) or transposed."),
        click.option("--dtype", type=click.Choice(dtypes), help="Element type."),
        click.option("--family", metavar="NAME", help="Kernel family."),
        click.option(
            "--run", "run_id", type=click.IntRange(1, MAX_NUMBER), help="Of this run only."
        ),
        click.option(
            "--provenance",
            type=click.Choice([provenance.value for provenance in Provenance]),
            help="Measured by autogemm, or read from a recording.",
        ),
    )

    @functools.wraps(command)
    def with_query(provenance: str | None, **values: Any) -> Any:
        from autogemm.store import BestQuery

        filters = {name: values.pop(name) for name in FILTERS}
        source = Provenance(provenance) if provenance else None
        return command(query=BestQuery(provenance=source, **filters), **values)

    wrapped: Command = with_query
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def open_database(url: str | None) -> Store:
    """The database of ``--db``, which must be there."""
    from autogemm.store import open_store

    return open_store(url, create=False)


def print_rows_as(
    rows: Sequence[FlatRow],
    columns: Columns,
    table: Columns,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """The rows as a table of the columns ``table``, or as JSON or CSV of ``columns``."""
    if as_json or as_csv:
        shape = db_rows.for_csv if as_csv else db_rows.for_json
        print_rows([shape(row) for row in rows], columns, as_json=as_json, as_csv=as_csv)
    elif rows:
        print_readable(rows, table)


def print_readable(rows: Sequence[FlatRow], columns: Columns, title: str | None = None) -> None:
    """A table for people. What all configs have in common stands below it and not in each row."""
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
