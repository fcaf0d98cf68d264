"""Questions of people and the tuner about runs and trials, as selects."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby, islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session, selectinload

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Objective, Outcome, Provenance, Status
from autogemm.store.tables import records
from autogemm.store.tables.convert import (
    columns_of,
    device_in,
    device_key,
    environment_in,
    finals_of,
    outcome_of,
    problem_in,
    spec_columns,
    spec_of,
    trial_row_of,
    value_of,
)
from autogemm.store.tables.models import (
    DeviceRecord,
    EnvironmentRecord,
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    ProblemRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.support.errors import NotFoundError

# Ends that the same kernel reaches again. The others may have been bad luck (a hang, a crash), or
# depend on how fast the best was at that time (too slow).
_ENDS = (Status.OK, Status.INACCURATE, Status.COMPILE_FAILED, Status.WRONG_RESULT)
_REPEATABLE = [status.value for status in _ENDS]

Condition = ColumnElement[bool]
Part = TypeVar("Part")

# A statement of SQLite has 32766 parameters at most.
_MOST_IDS = 10_000
# Trials of which the rows are read and printed before the next.
_ROWS_AT_ONCE = 1_000
# Rows that many runs share are read once and not with every run.
SHARED = tuple(map(selectinload, (RunRecord.problem, RunRecord.device, RunRecord.environment)))


def in_chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    """Chunks as large as any database takes in one statement."""
    rest = iter(ids)
    while chunk := list(islice(rest, _MOST_IDS)):
        yield chunk


def _of_batch(text: str) -> Condition:
    """The condition of `BestQuery.is_of_batch` in SQL."""
    is_it = ProblemRecord.batch == ("" if text == "1" else text)
    return or_(is_it, ProblemRecord.batch.startswith(f"{text} "))


def _of_epilogue(query: records.BestQuery) -> Condition:
    """`BestQuery.epilogue_in` in SQL."""
    return or_(
        *(
            and_(
                ProblemRecord.dtype == dtype.label,
                ProblemRecord.epilogue == query.epilogue_in(dtype),
            )
            for dtype in DType
        )
    )


def _of_groups(text: str) -> Condition:
    """`BestQuery.is_of_groups` in SQL."""
    is_it = ProblemRecord.groups == ("" if text == records.NO_GROUPS else text)
    # A number of groups, however rows are spread.
    return or_(is_it, ProblemRecord.groups.startswith(f"{text} ")) if text.isdigit() else is_it


def conditions(query: records.BestQuery) -> list[Condition]:
    """Conditions that a run must meet to match. Raises UsageError for a size that is none."""
    problem: dict[str, Any] = {"layout": query.layout, "dtype": query.dtype}
    if query.size is not None:
        problem |= dict(zip("mnk", Problem.parse_size(query.size), strict=True))
    run = {"id": query.run_id, "provenance": query.provenance}
    wanted = [
        *(RunRecord.problem.has(**{name: value}) for name, value in problem.items() if value),
        *(getattr(RunRecord, name) == value for name, value in run.items() if value is not None),
    ]
    if query.epilogue is not None:
        wanted.append(RunRecord.problem.has(_of_epilogue(query)))
    if query.batch is not None:
        wanted.append(RunRecord.problem.has(_of_batch(query.batch)))
    if query.groups is not None:
        wanted.append(RunRecord.problem.has(_of_groups(query.groups)))
    if query.family is not None:
        padded = " " + RunRecord.families + " "
        wanted.append(padded.contains(f" {query.family} ", autoescape=True))
    for name, beginning in query.versions:
        version = getattr(EnvironmentRecord, name)
        wanted.append(RunRecord.environment.has(version.startswith(beginning, autoescape=True)))
    if query.gpu is not None:
        wanted.append(RunRecord.device.has(DeviceRecord.name.icontains(query.gpu, autoescape=True)))
    return wanted


def _same_place(spec: records.RunSpec) -> list[Condition]:
    """Conditions that a run must meet for its times to hold for the circumstances of ``spec``."""
    return [
        RunRecord.problem.has(**columns_of(ProblemRecord, spec.problem)),
        RunRecord.device.has(**device_key(spec.device)),
        RunRecord.environment.has(**columns_of(EnvironmentRecord, spec.environment)),
        RunRecord.provenance == spec.provenance.value,
        RunRecord.l2 == spec.l2.value,
        RunRecord.fill == spec.fill.value,
    ]


def same_request(spec: records.RunSpec) -> list[Condition]:
    """Conditions that a run of the same request in the same place meets."""
    columns = spec_columns(spec).items()
    return [*_same_place(spec), *(getattr(RunRecord, name) == value for name, value in columns)]


def unfinished_runs(session: Session, spec: records.RunSpec) -> Iterable[RunRecord]:
    """The runs that ``spec`` would go on with, newest first."""
    statement = (
        select(RunRecord)
        .where(RunRecord.state != records.RunState.FINISHED.value, *same_request(spec))
        .order_by(RunRecord.id.desc())
    )
    return session.scalars(statement)


def known_outcome(session: Session, kernel_sha256: str, spec: records.RunSpec) -> Outcome | None:
    """The newest outcome of a kernel that measuring it again would repeat."""
    statement = (
        select(TrialRecord)
        .join(TrialRecord.kernel)
        .join(TrialRecord.run)
        .where(
            KernelRecord.kernel_sha256 == kernel_sha256,
            TrialRecord.status.in_(_REPEATABLE),
            *_same_place(spec),
        )
        .order_by(TrialRecord.finished_at.desc(), TrialRecord.id.desc())
        .limit(1)
    )
    found = session.scalar(statement)
    return outcome_of(found) if found else None


def known_kernels(session: Session, spec: records.RunSpec) -> frozenset[str]:
    """The sha256 of all kernels of which `known_outcome` knows something."""
    statement = (
        select(KernelRecord.kernel_sha256)
        .join(TrialRecord, TrialRecord.kernel_id == KernelRecord.id)
        .join(TrialRecord.run)
        .where(TrialRecord.status.in_(_REPEATABLE), *_same_place(spec))
    )
    return frozenset(session.scalars(statement))


def outcomes(session: Session, run_id: int) -> list[Outcome]:
    """A run's outcomes in the order of their numbers."""
    statement = select(TrialRecord).filter_by(run_id=run_id).order_by(TrialRecord.number)
    return [outcome_of(trial) for trial in session.scalars(statement)]


def next_trial_number(session: Session, run_id: int) -> int:
    """One more than the largest number among a run's trials, 0 without any."""
    largest = session.scalar(select(func.max(TrialRecord.number)).filter_by(run_id=run_id))
    return 0 if largest is None else largest + 1


def trial_rows(
    session: Session, query: records.BestQuery, status: Status | None, limit: int | None
) -> list[records.TrialRow]:
    """Trials, newest first."""
    statement = _of_trials(select(TrialRecord), query, status, limit)
    return [trial_row_of(trial) for trial in session.scalars(statement)]


def each_trial_row(
    session: Session, query: records.BestQuery, status: Status | None, limit: int | None
) -> Iterator[records.TrialRow]:
    """Yield the same as `trial_rows`; only the numbers of all and a thousand rows are held."""
    rest = iter(session.scalars(_of_trials(select(TrialRecord.id), query, status, limit)).all())
    while some := list(islice(rest, _ROWS_AT_ONCE)):
        chosen = select(TrialRecord).where(TrialRecord.id.in_(some))
        for trial in session.scalars(chosen.order_by(TrialRecord.id.desc())).all():
            yield trial_row_of(trial)
        session.expunge_all()


def _of_trials(
    statement: Select[Any], query: records.BestQuery, status: Status | None, limit: int | None
) -> Select[Any]:
    """Select columns of the trials that match, newest first."""
    statement = statement.join(TrialRecord.run).where(*conditions(query))
    if query.family is not None:
        statement = statement.where(TrialRecord.family == query.family)
    if status is not None:
        statement = statement.where(TrialRecord.status == status.value)
    return statement.order_by(TrialRecord.id.desc()).limit(limit)


def run_times(
    session: Session, problem: Problem, device: Device, family: str
) -> list[records.RunTimes]:
    """The trials of a family by run on that GPU and problem; few columns of many rows."""
    statement = (
        select(RunRecord.id, RunRecord.provenance, TrialRecord.config, TrialRecord.time_us)
        .join(RunRecord, RunRecord.id == TrialRecord.run_id)
        .where(
            RunRecord.problem.has(**columns_of(ProblemRecord, problem)),
            RunRecord.device.has(**device_key(device)),
            TrialRecord.family == family,
            TrialRecord.time_us.is_not(None),
        )
        .order_by(RunRecord.id)
    )
    found = []
    for (run_id, provenance), rows in groupby(session.execute(statement), lambda row: row[:2]):
        times = {Config.of(family, config).sha256: time_us for *_, config, time_us in rows}
        found.append(records.RunTimes(run_id, Provenance(provenance), times))
    return found


def kernel_trial_rows(session: Session, kernel_id: int) -> list[records.TrialRow]:
    """Trials of one kernel, newest first."""
    statement = select(TrialRecord).filter_by(kernel_id=kernel_id).order_by(TrialRecord.id.desc())
    return [trial_row_of(trial) for trial in session.scalars(statement)]


def trial_row(session: Session, trial_id: int) -> records.TrialRow:
    """Raises NotFoundError for a number that is no trial's."""
    trial = session.get(TrialRecord, trial_id)
    if trial is None:
        raise NotFoundError(f"no trial {trial_id}: autogemm db list --trials shows the trials")
    return trial_row_of(trial)


def run_lines(
    session: Session, query: records.BestQuery, limit: int | None
) -> Iterator[records.RunLine]:
    """Runs, newest first; of each few cells are read, and of many runs a part at a time."""
    matching = select(RunRecord.id).where(*conditions(query)).order_by(RunRecord.id.desc())
    for ids in in_chunks(session.scalars(matching.limit(limit)).all()):
        counts, winners = _counts(session, ids), _winners(session, ids)
        for run, spec in runs_with_specs(session, ids):
            num_trials, num_ok, fastest_us = counts.get(run.id, (0, 0, None))
            winner = winners.get(run.id, (fastest_us, None, None, None))
            time_us, ratio, low, high = winner
            yield value_of(
                records.RunLine,
                run,
                run_id=run.id,
                spec=spec,
                num_trials=num_trials,
                num_ok=num_ok,
                time_us=time_us,
                ratio=ratio,
                ratio_low=low,
                ratio_high=high,
            )


def runs_with_specs(session: Session, ids: list[int]) -> Iterator[tuple[Any, records.RunSpec]]:
    """Yield the row of each of these runs, in their order, with its request."""
    # Many runs share a problem, a GPU and an environment: each becomes a value once.
    problems = _named_by(session, ids, ProblemRecord, RunRecord.problem_id, problem_in)
    devices = _named_by(session, ids, DeviceRecord, RunRecord.device_id, device_in)
    environments = _named_by(
        session, ids, EnvironmentRecord, RunRecord.environment_id, environment_in
    )
    # The table, not the class: an object for each row takes longer than reading it.
    found = session.execute(select(RunRecord.__table__).where(RunRecord.id.in_(ids)))
    runs = {run.id: run for run in found}
    # Another process may have removed one since its number was read.
    for run in (runs[one] for one in ids if one in runs):
        spec = spec_of(
            run,
            problem=problems[run.problem_id],
            device=devices[run.device_id],
            environment=environments[run.environment_id],
        )
        yield run, spec


def _named_by(
    session: Session,
    run_ids: list[int],
    kind: type[Any],
    key: InstrumentedAttribute[int],
    value_in: Callable[[Any], Part],
) -> dict[int, Part]:
    """The values of the rows of a table that the column ``key`` of these runs names."""
    named = select(key).where(RunRecord.id.in_(run_ids))
    return {
        record.id: value_in(record)
        for record in session.scalars(select(kind).where(kind.id.in_(named)))
    }


def newest_run_id(
    session: Session, query: records.BestQuery, objectives: Collection[Objective], *, tried: bool
) -> int | None:
    """The number of the newest run that matches, of these objectives, and if ``tried`` has a trial.

    None if there is none.
    """
    wanted = [*conditions(query), RunRecord.objective.in_([one.value for one in objectives])]
    if tried:
        wanted.append(select(TrialRecord.id).where(TrialRecord.run_id == RunRecord.id).exists())
    return session.scalar(select(func.max(RunRecord.id)).where(*wanted))


def run_row(session: Session, run: RunRecord) -> records.RunRow:
    """One run and what it found."""
    num_trials, num_ok, fastest_us = _counts(session, [run.id]).get(run.id, (0, 0, None))
    record = newest_finals(session, [run.id]).get(run.id)
    decided = finals_of(record) if record is not None else None
    return value_of(
        records.RunRow,
        run,
        run_id=run.id,
        spec=spec_of(run),
        num_trials=num_trials,
        num_ok=num_ok,
        time_us=decided.winner.time_us if decided else fastest_us,
        finals=decided,
    )


def _newest_finals_ids(runs: Select[int] | list[int]) -> Select[int]:
    """The newest by when it was measured, not by when it came into this database."""
    newest_first = func.row_number().over(
        partition_by=FinalsRecord.run_id,
        order_by=(FinalsRecord.measured_at.desc(), FinalsRecord.id.desc()),
    )
    of_runs = FinalsRecord.run_id.in_(runs)
    ranked = select(FinalsRecord.id, newest_first.label("rank")).where(of_runs).subquery()
    return select(ranked.c.id).where(ranked.c.rank == 1)


def newest_finals(session: Session, runs: Select[int] | list[int]) -> dict[int, FinalsRecord]:
    """The newest finals of each run that has any, by run."""
    newest = _newest_finals_ids(runs)
    found = session.scalars(select(FinalsRecord).where(FinalsRecord.id.in_(newest)))
    return {record.run_id: record for record in found}


# Time and ratio with its ends.
_Won = tuple[float, float | None, float | None, float | None]


def _winners(session: Session, ids: list[int]) -> dict[int, _Won]:
    """The finals by run, without samples. Raises ValueError without a baseline or a winner."""
    entry = FinalsEntryRecord
    statement = (
        select(FinalsRecord.run_id, entry.finals_id, entry.place)
        .add_columns(entry.time_us, entry.ratio, entry.ratio_low, entry.ratio_high)
        .join(
            entry, and_(entry.finals_id == FinalsRecord.id, entry.place.in_((0, 1))), isouter=True
        )
        .where(FinalsRecord.id.in_(_newest_finals_ids(ids)))
        .order_by(FinalsRecord.id, entry.place)
    )
    found = {}
    for run_id, rows in groupby(session.execute(statement), lambda row: row[0]):
        places = {place: won for _, _, place, *won in rows}
        if places.keys() != {0, 1}:
            raise ValueError(f"the finals of run {run_id} have no baseline or no contestant")
        time_us, *ratios = places[1]
        ratio, low, high = (math.nan if one is None else one for one in ratios)
        found[run_id] = (time_us, ratio, low, high) if low < high else (time_us, ratio, None, None)
    return found


def _counts(session: Session, ids: list[int]) -> dict[int, tuple[int, int, float | None]]:
    """The numbers of trials and of timed ones, and the smallest time, by run."""
    time_us = TrialRecord.time_us
    columns = (TrialRecord.run_id, func.count(), func.count(time_us), func.min(time_us))
    counted = select(*columns).where(TrialRecord.run_id.in_(ids)).group_by(TrialRecord.run_id)
    found = session.execute(counted)
    return {run_id: (num_trials, num_ok, least) for run_id, num_trials, num_ok, least in found}
