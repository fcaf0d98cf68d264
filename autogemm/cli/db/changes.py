"""``autogemm db history`` and ``compare``: how the best kernels changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.filters import filter_options, open_database, print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns, FlatRow
from autogemm.model.columns import ENVIRONMENT, RATIO

if TYPE_CHECKING:
    from autogemm.model.change import Compared
    from autogemm.store import BestQuery

SPEED_UP: Columns = ("verdict", "speed_up", "speed_up_low", "speed_up_high", "by")

HISTORY_TABLE: Columns = (
    *(*db_rows.SHORT_PLACE, "driver", "compiler", "cublas", "autogemm", "time_us"),
    *("ratio", *SPEED_UP, "kernel_id", "measured_at"),
)
HISTORY: Columns = (*(*db_rows.BEST, *SPEED_UP, "template_sha256", *ENVIRONMENT, "objective"),)

COMPARED_TABLE: Columns = (
    *("problem", "provenance", "first", "second", "first_time_us", "second_time_us"),
    *("first_ratio", "second_ratio", *SPEED_UP),
)
COMPARED: Columns = (
    *("size", "layout", "dtype", "provenance", *db_rows.PROBLEM, "l2", "fill"),
    *(
        f"{side}_{name}"
        for side in ("first", "second")
        for name in ("gpu", *ENVIRONMENT, "time_us", *RATIO, "kernel_id", "run_id")
    ),
    *SPEED_UP,
)

# How many rows a table of history shows.
TABLE_ROWS = 40

WORDS = (
    "SAME: the 95 % interval of speed_up lies within 1 % of 1; FAST, SLOW: it lies above or below "
    "1; AMBG: it says neither, or a side has fewer than six samples"
)


@click.command()
@filter_options
@db_option
@listing_options
def history(query: BestQuery, db: str | None, as_json: bool, as_csv: bool) -> None:
    """The best kernels over drivers and versions, oldest first.

    One row for each environment (driver, compiler, versions) that a problem was tuned in. Each row
    is compared with the one before it, see `autogemm db compare -h` for the words.

    \b
    Examples:
      autogemm db history --gpu h100 --size 4096
    """
    from autogemm.insight.analysis import history as history_of

    # One more than is shown tells whether there is more.
    limit = None if as_json or as_csv else TABLE_ROWS + 1
    with open_database(db) as store:
        steps = history_of(store, query, limit)
    rows = [
        {
            **db_rows.best_row(step.row),
            **asdict(step.row.environment),
            "template_sha256": step.row.template_sha256,
            "objective": step.row.objective,
            **speed_up(step.compared, step.by),
        }
        for step in steps
    ]
    if not rows:
        click.echo("no results match", err=True)
    if limit is not None and len(rows) == limit:
        rows.pop()
        click.echo(f"only the first {TABLE_ROWS} rows: --size, --gpu, or --json for all", err=True)
    print_rows_as(rows, HISTORY, HISTORY_TABLE, as_json=as_json, as_csv=as_csv)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--by",
    type=click.Choice(["time", "cublas"]),
    help="Compare times, or how they stood to cuBLAS in the same rounds. Default: cublas where it "
    "is the same cuBLAS on the same GPU, because clocks drift between sessions.",
)
@db_option
@listing_options
def compare(  # noqa: PLR0913, PLR0917  # one parameter for each option
    first: str, second: str, by: str | None, db: str | None, as_json: bool, as_csv: bool
) -> None:
    """The best kernels of two runs, GPUs or versions side by side.

    One row for each problem that both have. A and B are run:N, gpu:NAME or how a version begins:
    driver:580, cuda:13.0, nvrtc:, cublas:, cupy:, python:, autogemm:. speed_up is how many times as
    fast B is, with its 95 % interval from the samples. SAME: the interval lies within 1 % of 1.
    FAST, SLOW: it lies above or below 1. AMBG: it says neither, or a side has fewer than six
    samples (a recording has one).

    \b
    Examples:
      autogemm db compare run:3 run:8
      autogemm db compare gpu:a100 gpu:h100
      autogemm db compare driver:570 driver:580 --json
    """
    from autogemm.insight.analysis import compare_sides
    from autogemm.model.change import Figure

    with open_database(db) as store:
        pairs = compare_sides(store, first, second, Figure(by) if by else None)
    rows: list[FlatRow] = []
    for pair in pairs:
        sides = {"first": db_rows.best_row(pair.first), "second": db_rows.best_row(pair.second)}
        versions = {"first": pair.first.environment, "second": pair.second.environment}
        row = {**sides["first"], **speed_up(pair.compared, pair.by)}
        for side, facts in sides.items():
            everything = {**facts, **asdict(versions[side])}
            row |= {f"{side}_{name}": value for name, value in everything.items()}
            row[side] = f"run {facts['run_id']} {facts['gpu']}"
        rows.append(row)
    print_rows_as(rows, COMPARED, COMPARED_TABLE, as_json=as_json, as_csv=as_csv)
    if not (as_json or as_csv):
        print_words(rows)


def print_words(rows: Sequence[FlatRow]) -> None:
    """How often each word stands in the rows, and what it means."""
    counts = Counter(str(row["verdict"]) for row in rows if row.get("verdict"))
    click.echo()
    click.echo(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    click.echo(WORDS)


def speed_up(compared: Compared | None, by: object = None) -> FlatRow:
    """Columns SPEED_UP."""
    if compared is None:
        return {}
    values = (compared.change, compared.ratio, compared.low, compared.high, by)
    return dict(zip(SPEED_UP, values, strict=True))
