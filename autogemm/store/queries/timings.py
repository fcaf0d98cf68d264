"""The best stored timing of each group, as selects.

First where it stands (`best_places`: few columns of few rows), then, of those that are wanted, all
of it (`timings_at`). A kernel whose newest certificate is a failure is never the best.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Label, ScalarSelect, Select, and_, func, select
from sqlalchemy.orm import (
    InstrumentedAttribute,
    Session,
    aliased,
    joinedload,
    lazyload,
)

from autogemm.store.queries.certificates import has_not_failed
from autogemm.store.queries.runs import SHARED, conditions, in_chunks
from autogemm.store.tables.models import (
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.store.tables.records import BestQuery

# A kernel's time is that of the finals it was in, or of one of its trials.
Timing = FinalsEntryRecord | TrialRecord

Groups = tuple[InstrumentedAttribute[Any], ...]
Group = tuple[Any, ...]

# Times that may be compared with each other: not across GPUs, problems, sources, cache states,
# contents of the matrices.
GROUP: Groups = (
    RunRecord.device_id,
    RunRecord.problem_id,
    RunRecord.provenance,
    RunRecord.l2,
    RunRecord.fill,
)


@dataclass(frozen=True, slots=True)
class BestPlace:
    """The place of a group's best timing: an entry of finals, or a trial.

    ``group`` has the values of the columns that make the groups, in their order.
    """

    group: Group
    run_id: int
    measured_at: datetime
    entry: tuple[int, int] | None = None
    """Finals and place; None for a trial."""
    trial_id: int | None = None


def run_of(timing: Timing) -> RunRecord:
    """The run that a timing belongs to."""
    return timing.run if isinstance(timing, TrialRecord) else timing.finals.run


def best_places(session: Session, query: BestQuery, groups: Groups = GROUP) -> list[BestPlace]:
    """The best of the winners of finals of each group that matches, or else its fastest trial."""
    decided = list(_best_winners(session, query, groups))
    done = {place.group for place in decided}
    runs = session.execute(select(RunRecord.id, *groups).where(*conditions(query)))
    undecided = {run_id: group for run_id, *rest in runs if (group := tuple(rest)) not in done}
    return [*decided, *_fastest_trials(session, undecided, query.family)]


def timings_at(session: Session, places: Sequence[BestPlace]) -> list[Timing]:
    """The timings that stand there, in the same order."""
    kernel = joinedload(FinalsEntryRecord.kernel).load_only(KernelRecord.template_sha256)
    finals = joinedload(FinalsEntryRecord.finals).options(
        lazyload(FinalsRecord.entries), joinedload(FinalsRecord.run).options(*SHARED)
    )
    found: dict[object, Timing] = {}
    for finals_ids in in_chunks(place.entry[0] for place in places if place.entry):
        entries = select(FinalsEntryRecord).where(
            FinalsEntryRecord.finals_id.in_(finals_ids),
            FinalsEntryRecord.place.in_({place.entry[1] for place in places if place.entry}),
        )
        for entry in session.scalars(entries.options(finals, kernel)):
            found[entry.finals_id, entry.place] = entry
    for trial_ids in in_chunks(place.trial_id for place in places if place.trial_id is not None):
        for trial in session.scalars(select(TrialRecord).where(TrialRecord.id.in_(trial_ids))):
            found[trial.id] = trial
    return [found[place.entry or place.trial_id] for place in places]


def _fastest_trials(
    session: Session, group_of: Mapping[int, Group], family: str | None
) -> Iterator[BestPlace]:
    """One for each group of runs that has a trial with a time."""
    fastest: dict[Group, tuple[float, int, int, datetime]] = {}
    for run_ids in in_chunks(group_of):
        of_runs = (
            select(TrialRecord.time_us, TrialRecord.id, TrialRecord.run_id, TrialRecord.finished_at)
            .join(RunRecord, RunRecord.id == TrialRecord.run_id)
            .where(RunRecord.id.in_(run_ids), TrialRecord.id == _fastest_of_run(family))
        )
        for time_us, trial_id, run_id, finished_at in session.execute(of_runs):
            assert time_us is not None, "it is the fastest"
            group, candidate = group_of[run_id], (time_us, trial_id, run_id, finished_at)
            fastest[group] = min(fastest.get(group, candidate), candidate)
    for group, (_, trial_id, run_id, finished_at) in fastest.items():
        yield BestPlace(group, run_id, finished_at, trial_id=trial_id)


def _fastest_of_run(family: str | None) -> ScalarSelect[int]:
    """One look into an index for each run, however many trials it has."""
    trial = aliased(TrialRecord)
    fastest = (
        select(trial.id)
        .where(
            trial.run_id == RunRecord.id,
            trial.time_us.is_not(None),
            has_not_failed(trial.kernel_id, RunRecord.device_id),
        )
        .order_by(trial.time_us, trial.id)
        .limit(1)
    )
    if family is not None:
        fastest = fastest.where(trial.family == family)
    return fastest.correlate(RunRecord).scalar_subquery()


def _first_place(family: str | None) -> ScalarSelect[int]:
    """The winner of finals, of a family its best placed kernel: one look into an index."""
    entry = aliased(FinalsEntryRecord)
    first = select(entry.place).where(
        entry.finals_id == FinalsRecord.id,
        entry.place > 0,
        has_not_failed(entry.kernel_id, RunRecord.device_id),
    )
    if family is not None:
        first = first.where(entry.family == family)
    first = first.order_by(entry.place).limit(1)
    return first.correlate(FinalsRecord, RunRecord).scalar_subquery()


def _winners(query: BestQuery, groups: Groups) -> Select[Any]:
    """Select the kernels that won finals in the newest environment of their group.

    A new driver or compiler changes both sides of a ratio. The newest by when it was measured: what
    came from another database has larger numbers, whenever that was.
    """
    newest_environment = func.first_value(RunRecord.environment_id).over(
        partition_by=groups, order_by=(FinalsRecord.measured_at.desc(), FinalsRecord.id.desc())
    )
    columns = _standing_columns(groups)
    winners = (
        select(*columns, (RunRecord.environment_id == newest_environment).label("is_newest"))
        .select_from(RunRecord)
        .join(FinalsRecord, FinalsRecord.run_id == RunRecord.id)
        .join(
            FinalsEntryRecord,
            and_(
                FinalsEntryRecord.finals_id == FinalsRecord.id,
                FinalsEntryRecord.place == _first_place(query.family),
            ),
        )
        .where(*conditions(query))
        .subquery()
    )
    return select(*(winners.c[column.name] for column in columns)).where(winners.c.is_newest)


def _standing_columns(groups: Groups) -> list[Label[Any]]:
    """The columns of `_Standing`, each under a name of its own."""
    named = (
        FinalsEntryRecord.finals_id,
        FinalsEntryRecord.place,
        FinalsEntryRecord.kernel_id,
        FinalsEntryRecord.ratio,
        FinalsRecord.run_id,
        FinalsRecord.measured_at,
        RunRecord.environment_id,
        *groups,
    )
    return [column.label(f"column_{number}") for number, column in enumerate(named)]


@dataclass(frozen=True, slots=True)
class _Standing:
    """The result of one finals for a kernel. ``kernel_id`` is None where no source was kept."""

    finals_id: int
    place: int
    kernel_id: int | None
    ratio: float | None
    run_id: int
    measured_at: datetime
    environment_id: int
    group: Group

    @property
    def kernel(self) -> tuple[object, ...]:
        """The kernel in its group and environment: without a source each stands for itself."""
        known = self.kernel_id if self.kernel_id is not None else (self.finals_id, self.place)
        return (self.group, self.environment_id, known)

    @property
    def age(self) -> tuple[datetime, int]:
        """The newest has the largest."""
        return (self.measured_at, self.finals_id)

    @property
    def merit(self) -> tuple[float, datetime, int]:
        """The best has the largest."""
        return (-math.inf if self.ratio is None else self.ratio, *self.age)


def _standings(session: Session, statement: Select[Any]) -> Iterator[_Standing]:
    """The result of a select of `_standing_columns`."""
    for row in session.execute(statement):
        finals_id, place, kernel_id, ratio, run_id, measured_at, environment_id, *group = row
        yield _Standing(
            finals_id, place, kernel_id, ratio, run_id, measured_at, environment_id, tuple(group)
        )


def _best_winners(session: Session, query: BestQuery, groups: Groups) -> Iterator[BestPlace]:
    """Return for each group the kernel with the highest newest ratio, among those that won finals.

    Paired ratios to the baseline compare across runs, times do not. The newest ratio of each kernel
    counts, whatever its rank, because the largest of many is the luckiest.
    """
    newest: dict[tuple[object, ...], _Standing] = {}
    for one in _standings(session, _winners(query, groups)):
        newest[one.kernel] = max(newest.get(one.kernel, one), one, key=lambda it: it.age)
    columns = _standing_columns(groups)
    kernel_ids = {one.kernel_id for one in newest.values() if one.kernel_id is not None}
    for chunk in in_chunks(sorted(kernel_ids)):
        statement = (
            select(*columns)
            .select_from(FinalsEntryRecord)
            .join(FinalsRecord, FinalsRecord.id == FinalsEntryRecord.finals_id)
            .join(RunRecord, RunRecord.id == FinalsRecord.run_id)
            .where(FinalsEntryRecord.kernel_id.in_(chunk), *conditions(query))
        )
        for one in _standings(session, statement):
            if one.kernel in newest:
                newest[one.kernel] = max(newest[one.kernel], one, key=lambda it: it.age)
    best: dict[Group, _Standing] = {}
    for one in newest.values():
        best[one.group] = max(best.get(one.group, one), one, key=lambda it: it.merit)
    for group, one in best.items():
        yield BestPlace(group, one.run_id, one.measured_at, entry=(one.finals_id, one.place))
