"""``autogemm db pareto``: which kernels no other beats in both time and energy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.files import write_output
from autogemm.cli.filters import filter_options, open_database, print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns, FlatRow
from autogemm.model.columns import PLACE
from autogemm.model.outcome import Objective, Status
from autogemm.support.errors import NotFoundError

if TYPE_CHECKING:
    from autogemm.model.outcome import FinalsEntry
    from autogemm.store import BestQuery, RunRow, Store, TrialRow

SPEED: Columns = ("time_us", "tflops", "energy_mj", "edp_mj_us")
TABLE: Columns = (*SPEED, "on_front", "kernel_id", "family", "config")
COLUMNS: Columns = ("run_id", *PLACE, "name", *TABLE)


@click.command()
@click.option("--all", "of_all", is_flag=True, help="Not the front only, but all with an energy.")
@click.option(
    "--plot",
    metavar="FILE",
    help="Draw all of them, and the front as a line, into a .png, .svg or .pdf file.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
@listing_options
def pareto(  # noqa: PLR0913, PLR0917  # one parameter for each option
    query: BestQuery,
    db: str | None,
    of_all: bool,
    plot: str | None,
    force: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Kernels that none beats in both time and energy.

    Of the newest run that measured energy (`tune --objective energy` or `edp`), or the one that
    --run names; the fastest first, cuBLAS last. Energy is that of the whole card.

    \b
    Examples:
      autogemm db pareto
      autogemm db pareto --run 3 --plot front.png
      autogemm db pareto --all --json
    """
    if plot:
        from autogemm.insight.plots import check_plot

        check_plot(Path(plot))
    with open_database(db) as store:
        run = _run_with_energy(store, query)
        rows = _trial_rows(store, run.run_id)
    if run.finals is not None:
        rows += _baseline_rows(run, run.finals.baseline)
    chosen = [row for row in rows if of_all or row["on_front"] is not False]
    print_rows_as(chosen, COLUMNS, TABLE, as_json=as_json, as_csv=as_csv)
    if plot:
        write_output(plot, _picture(rows, run, Path(plot).suffix.lower()), force=force)


def _run_with_energy(store: Store, query: BestQuery) -> RunRow:
    for run in store.runs(query):
        if run.spec.objective is not Objective.TIME:
            return run
    raise NotFoundError("no run that matches measured energy: autogemm tune --objective energy")


def _trial_rows(store: Store, run_id: int) -> list[FlatRow]:
    """All trials with an energy, the fastest first, each kernel once."""
    from autogemm.store import BestQuery

    kernels: dict[str, TrialRow] = {}
    for trial in store.trial_rows(BestQuery(run_id=run_id), Status.OK):
        measurement = trial.outcome.measurement
        if measurement is not None and measurement.energy_mj is not None:
            kernels.setdefault(trial.outcome.kernel_sha256, trial)
    rows = sorted(map(_row, kernels.values()), key=lambda row: (row["time_us"], row["energy_mj"]))
    least_mj = float("inf")
    for row in rows:
        row["on_front"] = row["energy_mj"] < least_mj
        least_mj = min(least_mj, row["energy_mj"])
    return rows


def _row(trial: TrialRow) -> FlatRow:
    row = db_rows.trial_row(trial)
    return {**row, "name": None, "edp_mj_us": row["energy_mj"] * row["time_us"]}


def _baseline_rows(run: RunRow, baseline: FinalsEntry) -> list[FlatRow]:
    """cuBLAS as the finals saw it; no member of the front, which is of one search's kernels."""
    if baseline.energy_mj is None:
        return []
    time_us, energy_mj = baseline.time_us, baseline.energy_mj
    return [
        {
            **db_rows.run_row(run),
            "name": baseline.name,
            "time_us": time_us,
            "tflops": run.spec.problem.tflops(time_us),
            "energy_mj": energy_mj,
            "edp_mj_us": energy_mj * time_us,
            "on_front": None,
            "family": baseline.name,
        }
    ]


def _picture(rows: Sequence[FlatRow], run: RunRow, suffix: str) -> bytes:
    from autogemm.insight.plots import Point, front_picture

    points = [Point(row["time_us"], row["energy_mj"], row["on_front"]) for row in rows]
    caption = f"{run.spec.problem.label} on {run.spec.device.name}, run {run.run_id}"
    return front_picture(points, caption, suffix)
