"""``autogemm db why``: where a kernel stands among those next to it, and the reasons."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.db.changes import speed_up
from autogemm.cli.filters import open_database, print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns, FlatRow
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.insight.analysis import Standing

NEIGHBOUR: Columns = (
    *("parameter", "before", "after", "status", "time_us", "verdict", "speed_up"),
    *("speed_up_low", "speed_up_high", "trial_id", "kernel_id", "reason"),
)
NEIGHBOUR_TABLE: Columns = NEIGHBOUR


@click.command()
@click.argument("identifier", metavar="ID")
@click.option("--short", is_flag=True, help="Only what the database knows, without the reasons.")
@db_option
@listing_options
def why(identifier: str, short: bool, db: str | None, as_json: bool, as_csv: bool) -> None:
    """Why a kernel is as fast as it is: neighbours and facts.

    ID is the kernel's number or the beginning of its sha256. First its place in its run, and every
    trial there that differs in one parameter (see `autogemm db compare -h` for the words; speed_up
    is how many times as fast the neighbour is); then what `autogemm explain` says of it. CSV has
    the neighbours only.

    \b
    Examples:
      autogemm db why 12
      autogemm db why 3f9c --short
      autogemm db why 12 --json
    """
    from autogemm.insight.analysis import standing

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: choose one")
    with open_database(db) as store:
        kernel = store.stored_kernel(identifier)
        stands = standing(store, kernel.kernel_id)
    rows = _neighbours(stands)
    explained = None if short or as_csv else _explanation(identifier, db)
    if as_csv:
        print_rows_as(rows, NEIGHBOUR, NEIGHBOUR_TABLE, as_json=False, as_csv=True)
    elif as_json:
        nested = [{name: db_rows.for_json(row).get(name) for name in NEIGHBOUR} for row in rows]
        everything = {"kernel_id": kernel.kernel_id, **_place(stands), "neighbours": nested}
        if explained is not None:
            everything["explanation"] = explained.as_dict()
        click.echo(json.dumps(everything, indent=2, default=str))
    else:
        _print(kernel.kernel_id, stands, rows)
        if explained is not None:
            from autogemm.cli.insight.explain import print_explanation

            click.echo()
            print_explanation(explained)


def _print(kernel_id: int, stands: Standing, rows: list[FlatRow]) -> None:
    place = _place(stands)
    slower = place["times_the_fastest"]
    click.echo(
        f"kernel {kernel_id}: place {stands.place} of {stands.num_ok} that ran well in run "
        f"{place['run_id']} ({stands.provenance}), {place['time_us']:.4g} us, "
        + ("the fastest" if stands.place == 1 else f"{slower:.4g} times the fastest's")
    )
    click.echo(f"neighbours that were tried there, one parameter changed: {len(rows)}")
    if rows:
        click.echo()
        print_rows_as(rows, NEIGHBOUR, NEIGHBOUR_TABLE, as_json=False, as_csv=False)


def _place(stands: Standing) -> FlatRow:
    time_us = stands.trial.outcome.time_us
    assert time_us is not None, "it ran well"
    return {
        "run_id": stands.trial.run_id,
        "provenance": stands.provenance,
        "place": stands.place,
        "num_ok": stands.num_ok,
        "time_us": time_us,
        "times_the_fastest": time_us / stands.fastest_us,
    }


def _neighbours(stands: Standing) -> list[FlatRow]:
    return [
        {
            **{name: getattr(one, name) for name in ("parameter", "before", "after")},
            **{name: getattr(one.trial, name) for name in ("trial_id", "kernel_id")},
            **{name: getattr(one.trial.outcome, name) for name in ("status", "time_us", "reason")},
            **speed_up(one.compared),
        }
        for one in stands.neighbours
    ]


def _explanation(identifier: str, db: str | None) -> Any:
    from autogemm.cli.insight.explain import stored_request
    from autogemm.insight.explain import Tools, explain

    with closing(Tools.open()) as tools:
        return explain(stored_request(identifier, db), tools)
