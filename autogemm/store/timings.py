"""Which of the stored timings is the best of a group, as selects.

A kernel whose newest certificate is a failure is never the best.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import ScalarSelect, Select, and_, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased, joinedload, lazyload

from autogemm.store.certificates import has_not_failed
from autogemm.store.models import (
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.store.queries import conditions
from autogemm.store.records import BestQuery

# A kernel's time is that of the finals it was in, or of one of its trials.
Timing = FinalsEntryRecord | TrialRecord

# A statement of SQLite has 32766 parameters at most.
_MOST_IDS = 10_000

Groups = tuple[InstrumentedAttribute[Any], ...]

# Times that may be compared with each other: not across GPUs, problems, sources, cache states,
# contents of the matrices.
GROUP: Groups = (
    RunRecord.device_id,
    RunRecord.problem_id,
    RunRecord.provenance,
    RunRecord.l2,
    RunRecord.fill,
)


def run_of(timing: Timing) -> RunRecord:
    """The run that a timing belongs to."""
    return timing.run if isinstance(timing, TrialRecord) else timing.finals.run


def best_timings(session: Session, query: BestQuery, groups: Groups = GROUP) -> Iterator[Timing]:
    """Of each group that matches the winner of its finals, or else its fastest trial."""
    decided = set()
    for winner in session.scalars(_best_winners(query, groups)):
        decided.add(tuple(getattr(winner.finals.run, column.key) for column in groups))
        yield winner
    undecided: dict[int, tuple[object, ...]] = {}
    for run_id, *group in session.execute(select(RunRecord.id, *groups).where(*conditions(query))):
        if tuple(group) not in decided:
            undecided[run_id] = tuple(group)
    yield from _fastest_trials(session, undecided, query.family)


def _fastest_trials(
    session: Session, group_of: Mapping[int, tuple[object, ...]], family: str | None
) -> Iterator[TrialRecord]:
    """One for each group of runs that has a trial with a time."""
    fastest: dict[tuple[object, ...], tuple[float, int]] = {}
    for run_ids in in_chunks(group_of):
        of_runs = (
            select(TrialRecord.run_id, TrialRecord.time_us, TrialRecord.id)
            .join(RunRecord, RunRecord.id == TrialRecord.run_id)
            .where(RunRecord.id.in_(run_ids), TrialRecord.id == _fastest_of_run(family))
        )
        for run_id, time_us, trial_id in session.execute(of_runs):
            group = group_of[run_id]
            assert time_us is not None, "it is the fastest"
            fastest[group] = min(fastest.get(group, (time_us, trial_id)), (time_us, trial_id))
    for trial_ids in in_chunks([trial_id for _, trial_id in fastest.values()]):
        yield from session.scalars(select(TrialRecord).where(TrialRecord.id.in_(trial_ids)))


def in_chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    """As many at a time as any database takes in one statement."""
    rest = iter(ids)
    while chunk := list(islice(rest, _MOST_IDS)):
        yield chunk


def _fastest_of_run(family: str | None) -> ScalarSelect[int]:
    """One look into an index for each run, however many trials it has."""
    trial = aliased(TrialRecord)
    fastest = (
        select(trial.id)
        .where(
            trial.run_id == RunRecord.id,
            trial.time_us.is_not(None),
            has_not_failed(trial.kernel_id),
        )
        .order_by(trial.time_us, trial.id)
        .limit(1)
    )
    if family is not None:
        fastest = fastest.where(trial.family == family)
    return fastest.correlate(RunRecord).scalar_subquery()


def _best_winners(query: BestQuery, groups: Groups) -> Select[FinalsEntryRecord]:
    """Of each group the winner of finals with the highest paired ratio to the baseline.

    Ratios compare across runs, times do not; and only within the newest environment, because a
    new driver or compiler changes both sides. Where a family is asked for, the winner is its best
    placed kernel.
    """
    may_win = has_not_failed(FinalsEntryRecord.kernel_id)
    wanted = [FinalsEntryRecord.place > 0, may_win, *conditions(query)]
    if query.family is not None:
        wanted.append(FinalsEntryRecord.family == query.family)
    first_place = func.min(FinalsEntryRecord.place).over(partition_by=FinalsEntryRecord.finals_id)
    newest_environment = func.first_value(RunRecord.environment_id).over(
        partition_by=groups, order_by=FinalsRecord.id.desc()
    )
    winners = (
        select(
            FinalsEntryRecord.finals_id,
            *(column.label(f"group_{place}") for place, column in enumerate(groups)),
            FinalsEntryRecord.place,
            FinalsEntryRecord.ratio,
            (FinalsEntryRecord.place == first_place).label("is_first"),
            (RunRecord.environment_id == newest_environment).label("is_newest"),
        )
        .join(FinalsEntryRecord.finals)
        .join(FinalsRecord.run)
        .where(*wanted)
        .subquery()
    )
    best_first = func.row_number().over(
        partition_by=[winners.c[f"group_{place}"] for place in range(len(groups))],
        order_by=(winners.c.ratio.desc().nulls_last(), winners.c.finals_id.desc()),
    )
    ranked = (
        select(winners.c.finals_id, winners.c.place, best_first.label("rank"))
        .where(winners.c.is_newest, winners.c.is_first)
        .subquery()
    )
    is_ranked = and_(
        ranked.c.finals_id == FinalsEntryRecord.finals_id,
        ranked.c.place == FinalsEntryRecord.place,
    )
    # Its finals and run in the same query; without the other contestants, and what many runs have
    # in common once and not with every row.
    run = joinedload(FinalsRecord.run).options(
        *map(lazyload, (RunRecord.problem, RunRecord.device, RunRecord.environment))
    )
    finals = joinedload(FinalsEntryRecord.finals).options(lazyload(FinalsRecord.entries), run)
    kernel = joinedload(FinalsEntryRecord.kernel).load_only(KernelRecord.template_sha256)
    winner = select(FinalsEntryRecord).join(ranked, is_ranked).where(ranked.c.rank == 1)
    return winner.options(finals, kernel)


def _group(run: RunRecord, groups: Groups) -> tuple[object, ...]:
    return tuple(getattr(run, column.key) for column in groups)
