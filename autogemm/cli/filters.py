"""Filters of results, as options that several commands share."""

import functools
from collections.abc import Callable
from typing import Any

import click

from autogemm.cli.options import DTYPES, LAYOUTS
from autogemm.model.results.outcome import Provenance
from autogemm.store import BestQuery

# Ids have 32 bits in every database.
MAX_NUMBER = 2**31 - 1

# Filters with the same name and type as options and in BestQuery.
FILTERS = ("gpu", "size", "layout", "dtype", "family", "run_id")

# In place of a benchmark's number: the newest.
LAST = "last"

Command = Callable[..., Any]


def bench_option(*names: str, help: str) -> Callable[[Command], Command]:
    """Return an option that takes the number of a benchmark, or ``last``, which stays a text."""
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
    """Return the number that the store takes for the option's value: None is the newest."""
    return None if number == LAST or number is None else int(number)


def filter_options(command: Command) -> Command:
    """Add ``--gpu --size --layout --dtype --family --run --provenance`` as one ``query``."""
    options = (
        click.option("--gpu", metavar="NAME", help="Any part of the GPU's name, in any case."),
        click.option("--size", metavar="SIZE", help="4096 or MxNxK."),
        click.option("--layout", type=click.Choice(LAYOUTS), help="As stored (n) or transposed."),
        click.option("--dtype", type=click.Choice(DTYPES), help="Element type."),
        click.option("--family", metavar="NAME", help="Kernel family."),
        click.option("--run", "run_id", type=click.IntRange(1, MAX_NUMBER), help="Only this run."),
        click.option(
            "--provenance",
            type=click.Choice([provenance.value for provenance in Provenance]),
            help="Measured by autogemm, or read from a recording.",
        ),
    )

    @functools.wraps(command)
    def with_query(provenance: str | None, **values: Any) -> Any:
        filters = {name: values.pop(name) for name in FILTERS}
        source = Provenance(provenance) if provenance else None
        return command(query=BestQuery(provenance=source, **filters), **values)

    wrapped: Command = with_query
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
