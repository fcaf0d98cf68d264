"""``autogemm db pareto``: which kernels no other beats in both time and energy."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autogemm.cli import rows as db_rows
from autogemm.cli.files import write_output
from autogemm.cli.output import Form
from autogemm.cli.rows import Columns, FlatRow, open_database, print_rows_as
from autogemm.insight.plots import Point, check_plot, front_picture
from autogemm.model.results.columns import PLACE, Paths, row_of, under
from autogemm.model.results.outcome import FinalsEntry, Objective, Status
from autogemm.store import BestQuery, RunRow, Store, TrialRow
from autogemm.support.errors import NotFoundError

SPEED: Columns = ("time_us", "tflops", "energy_mj", "edp_mj_us")
TABLE: Columns = (*SPEED, "on_front", "kernel_id", "family", "config")
SHORT: Columns = ("time_us", "energy_mj", "edp_mj_us", "on_front", "kernel_id", "config")
COLUMNS: Columns = ("run_id", *PLACE, "name", *TABLE)
_BASELINE: Paths = {**under("", ("name", "time_us", "energy_mj")), "family": "name"}


@dataclass(frozen=True, slots=True)
class ParetoCommand:
    """One call of the command. ``plot`` is the file of a picture."""

    query: BestQuery
    of_all: bool
    plot: str | None
    force: bool
    db: str | None
    form: Form


def run(command: ParetoCommand) -> None:
    """Print the front, and draw it where asked to."""
    if command.plot:
        check_plot(Path(command.plot))
    with open_database(command.db) as store:
        measured = _run_with_energy(store, command.query)
        rows = _trial_rows(store, measured.run_id)
    if measured.finals is not None:
        rows += _baseline_rows(measured, measured.finals.baseline)
    chosen = [row for row in rows if command.of_all or row["on_front"] is not False]
    print_rows_as(chosen, COLUMNS, TABLE, command.form, short=SHORT)
    if command.plot:
        content = _picture(rows, measured, Path(command.plot).suffix.lower())
        write_output(command.plot, content, force=command.force)


def _run_with_energy(store: Store, query: BestQuery) -> RunRow:
    run = store.newest_run(query, objectives=(Objective.ENERGY, Objective.EDP))
    if run is None:
        raise NotFoundError("no run that matches measured energy: autogemm tune --objective energy")
    return run


def _trial_rows(store: Store, run_id: int) -> list[FlatRow]:
    """Return all trials with an energy, the fastest first, each kernel once."""
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
    """Return cuBLAS as measured in the finals; the front consists of the search's kernels alone."""
    if baseline.energy_mj is None:
        return []
    return [
        {
            **db_rows.run_row(run),
            **row_of(baseline, _BASELINE),
            "tflops": run.spec.problem.tflops(baseline.time_us),
            "edp_mj_us": baseline.energy_mj * baseline.time_us,
            "on_front": None,
        }
    ]


def _picture(rows: Sequence[FlatRow], run: RunRow, suffix: str) -> bytes:
    points = [Point(row["time_us"], row["energy_mj"], row["on_front"]) for row in rows]
    caption = f"{run.spec.problem.label} on {run.spec.device.name}, run {run.run_id}"
    return front_picture(suffix, points, caption)
