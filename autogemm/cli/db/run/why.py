"""``autogemm db why``: the rank of a kernel among its neighbours, and the reasons."""

import json
from contextlib import closing

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.db.run.changes import speed_up
from autogemm.cli.insight.run.explain import print_explanation, stored_request
from autogemm.cli.output import Form
from autogemm.cli.prose import say
from autogemm.cli.rows import Columns, FlatRow, open_database, print_rows_as
from autogemm.insight.analysis import Standing, standing
from autogemm.insight.explain import Explanation, Tools, explain
from autogemm.model.results.columns import Paths, row_of, under

NEIGHBOUR: Columns = (
    *("parameter", "before", "after", "status", "time_us", "verdict", "speed_up"),
    *("speed_up_low", "speed_up_high", "trial_id", "kernel_id", "reason"),
)
SHORT: Columns = ("parameter", "before", "after", "time_us", "speed_up", "reason")
_NEIGHBOUR: Paths = {
    **under("", ("parameter", "before", "after")),
    **under("trial", ("trial_id", "kernel_id")),
    **under("trial.outcome", ("status", "time_us", "reason")),
}


def run(identifier: str, db: str | None, form: Form, *, short: bool) -> None:
    """Print the kernel's place, its neighbours and, unless it is ``short``, the reasons."""
    with open_database(db) as store:
        kernel = store.stored_kernel(identifier)
        stands = standing(store, kernel.kernel_id)
    rows = _neighbours(stands)
    explained = None if short or form is Form.CSV else _explanation(identifier, db)
    if form is Form.CSV:
        print_rows_as(rows, NEIGHBOUR, NEIGHBOUR, form)
    elif form is Form.JSON:
        nested = [{name: db_rows.for_json(row).get(name) for name in NEIGHBOUR} for row in rows]
        everything = {"kernel_id": kernel.kernel_id, **_place(stands), "neighbours": nested}
        if explained is not None:
            everything["explanation"] = explained.as_dict()
        click.echo(json.dumps(everything, indent=2, default=str))
    else:
        _print(kernel.kernel_id, stands, rows)
        if explained is not None:
            say()
            print_explanation(explained)


def _print(kernel_id: int, stands: Standing, rows: list[FlatRow]) -> None:
    place = _place(stands)
    slower = place["times_the_fastest"]
    say(
        f"kernel {kernel_id}: place {stands.place} of {stands.num_ok} correct kernels in run "
        f"{place['run_id']} ({stands.provenance}), {place['time_us']:.4g} us, "
        + ("the fastest" if stands.place == 1 else f"{slower:.4g} times the fastest's")
    )
    say(f"neighbours tried in that run, with one parameter changed: {len(rows)}")
    if rows:
        say()
        print_rows_as(rows, NEIGHBOUR, NEIGHBOUR, Form.TABLE, short=SHORT)


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
    return [{**row_of(one, _NEIGHBOUR), **speed_up(one.compared)} for one in stands.neighbours]


def _explanation(identifier: str, db: str | None) -> Explanation:
    with closing(Tools.open()) as tools:
        return explain(stored_request(identifier, db), tools)
