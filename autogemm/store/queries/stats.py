"""Counts of the database's contents for each GPU."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from autogemm.store.queries.runs import conditions
from autogemm.store.tables.models import DeviceRecord, RunRecord, TrialRecord
from autogemm.store.tables.records import BestQuery


@dataclass(frozen=True, slots=True)
class StatsRow:
    """The work of all runs on one GPU, of one provenance. ``hours`` are those of ended runs."""

    gpu: str
    provenance: str
    num_runs: int
    num_problems: int
    num_environments: int
    num_trials: int
    num_ok: int
    hours: float
    first_at: datetime
    last_at: datetime


def stats_rows(session: Session, query: BestQuery) -> list[StatsRow]:
    """One row for each GPU and provenance."""
    wanted = conditions(query)
    columns = (
        *(DeviceRecord.name, RunRecord.provenance, RunRecord.id, RunRecord.problem_id),
        *(RunRecord.environment_id, RunRecord.started_at, RunRecord.finished_at),
    )
    runs: dict[tuple[str, str], list[Any]] = {}
    found = select(*columns).join(RunRecord.device).where(*wanted).order_by(DeviceRecord.name)
    for row in session.execute(found):
        runs.setdefault((row.name, row.provenance), []).append(row)
    counted = (
        select(TrialRecord.run_id, func.count(), func.count(TrialRecord.time_us))
        .join(RunRecord, RunRecord.id == TrialRecord.run_id)
        .where(*wanted)
        .group_by(TrialRecord.run_id)
    )
    if query.family is not None:
        counted = counted.where(TrialRecord.family == query.family)
    trials = {run_id: (num, num_ok) for run_id, num, num_ok in session.execute(counted)}
    return [_row(*key, some, trials) for key, some in runs.items()]


def _row(
    gpu: str, provenance: str, runs: list[Any], trials: dict[int, tuple[int, int]]
) -> StatsRow:
    counts = [trials.get(run.id, (0, 0)) for run in runs]
    ended = (run.finished_at - run.started_at for run in runs if run.finished_at is not None)
    return StatsRow(
        gpu=gpu,
        provenance=provenance,
        num_runs=len(runs),
        num_problems=len({run.problem_id for run in runs}),
        num_environments=len({run.environment_id for run in runs}),
        num_trials=sum(num for num, _ in counts),
        num_ok=sum(num_ok for _, num_ok in counts),
        hours=sum(ended, timedelta()) / timedelta(hours=1),
        first_at=min(run.started_at for run in runs),
        last_at=max(run.finished_at or run.started_at for run in runs),
    )
