"""Which kernel is the best, and everything known of it.

A kernel whose newest certificate is a failure is never the best.
"""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import ScalarSelect, Select, and_, case, func, select
from sqlalchemy.orm import Session, aliased

from autogemm.config import Config
from autogemm.errors import NotFoundError, UsageError
from autogemm.outcome import CacheState, Fill, Provenance, Status
from autogemm.store.certificates import has_not_failed, newest_certificate
from autogemm.store.convert import (
    device_of,
    environment_of,
    kernel_of,
    problem_of,
    verification_of,
)
from autogemm.store.models import (
    FinalsEntryRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.store.queries import conditions
from autogemm.store.records import BestQuery, ResultRow
from autogemm.stored_kernel import StoredKernel

# A kernel's time is that of the finals it was in, or of one of its trials.
Timing = FinalsEntryRecord | TrialRecord

# Times that may be compared with each other: not across GPUs, problems, sources, cache states,
# contents of the matrices.
_GROUP = (
    RunRecord.device_id,
    RunRecord.problem_id,
    RunRecord.provenance,
    RunRecord.l2,
    RunRecord.fill,
)

# Ids have 32 bits; longer digits are the beginning of a sha256.
_MAX_DIGITS = 10
_MEASURED_FIRST = case((RunRecord.provenance == Provenance.MEASURED.value, 0), else_=1)


def best_rows(session: Session, query: BestQuery) -> list[ResultRow]:
    """One row for each device, problem, provenance, cache state and fill, sorted by these."""
    rows = [_result_row(timing) for timing in _best_timings(session, query)]
    return sorted(
        rows,
        key=lambda row: (
            *(row.device.name, row.problem.flops, row.problem.label),
            *(row.provenance, row.l2, row.fill),
        ),
    )


def best_kernel(session: Session, query: BestQuery) -> StoredKernel:
    """The best kernel of the newest match; a measured one before a recorded one, and before both
    none whose source was not kept.

    Raises NotFoundError when nothing matches, or there is no source of anything that does.
    """
    timings = list(_best_timings(session, query))
    if not timings:
        raise NotFoundError("no result matches: autogemm db best lists what there is")
    chosen = max(
        timings,
        key=lambda timing: (
            timing.kernel is not None,
            _run(timing).provenance == Provenance.MEASURED,
            _measured_at(timing),
        ),
    )
    if chosen.kernel is None:
        raise NotFoundError(
            f"run {_run(chosen).id} has times but no source of its best kernel (a recording from "
            "elsewhere has none): tune a family that ships, or one of your own"
        )
    return _stored_kernel(session, chosen, chosen.kernel)


def kernel_by_id(session: Session, kernel_id: int) -> StoredKernel:
    """A kernel with its newest finals, else its newest trial that ran well, else its newest."""
    kernel = session.get(KernelRecord, kernel_id)
    if kernel is None:
        raise NotFoundError(f"no kernel {kernel_id}: autogemm db best shows kernels")
    in_finals = (
        select(FinalsEntryRecord)
        .join(FinalsEntryRecord.finals)
        .join(FinalsRecord.run)
        .where(FinalsEntryRecord.kernel_id == kernel_id)
        .order_by(_MEASURED_FIRST, FinalsRecord.id.desc())
        .limit(1)
    )
    tried = (
        select(TrialRecord)
        .join(TrialRecord.run)
        .where(TrialRecord.kernel_id == kernel_id)
        .order_by(
            case((TrialRecord.status == Status.OK.value, 0), else_=1),
            _MEASURED_FIRST,
            TrialRecord.id.desc(),
        )
        .limit(1)
    )
    timing = session.scalar(in_finals) or session.scalar(tried)
    if timing is None:
        raise NotFoundError(f"kernel {kernel_id} was never tried")
    return _stored_kernel(session, timing, kernel)


def find_kernel_id(session: Session, text: str) -> int:
    """The id that ``text`` is, or the kernel whose sha256 begins with it.

    Raises NotFoundError when there is none, UsageError when there are several.
    """
    if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS:
        return int(text)
    begins = KernelRecord.source_sha256.startswith(text.lower(), autoescape=True)
    found = list(session.scalars(select(KernelRecord.id).where(begins).limit(2)))
    if not found or not text:
        raise NotFoundError(
            f"no kernel {text!r}: give its number or the beginning of its sha256 "
            "(autogemm db best shows kernels)"
        )
    if len(found) > 1:
        raise UsageError(
            f"several kernels have a sha256 that begins with {text!r}: give more of it"
        )
    return found[0]


def _best_timings(session: Session, query: BestQuery) -> Iterator[Timing]:
    wanted = conditions(query)
    decided = set()
    for winner in session.scalars(_best_winners(query)):
        decided.add(_group(winner.finals.run))
        yield winner
    fastest_first = func.row_number().over(
        partition_by=_GROUP, order_by=(TrialRecord.time_us, TrialRecord.id)
    )
    ranked = (
        select(TrialRecord.id, fastest_first.label("rank"))
        .join(TrialRecord.run)
        .where(TrialRecord.id == _fastest_of_run(query.family), *wanted)
        .subquery()
    )
    fastest = select(TrialRecord).join(ranked, ranked.c.id == TrialRecord.id)
    for trial in session.scalars(fastest.where(ranked.c.rank == 1)):
        if _group(trial.run) not in decided:
            yield trial


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


def _best_winners(query: BestQuery) -> Select[FinalsEntryRecord]:
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
        partition_by=_GROUP, order_by=FinalsRecord.id.desc()
    )
    winners = (
        select(
            FinalsEntryRecord.finals_id,
            *(column.label(f"group_{place}") for place, column in enumerate(_GROUP)),
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
    groups = [winners.c[f"group_{place}"] for place in range(len(_GROUP))]
    best_first = func.row_number().over(
        partition_by=groups,
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
    return select(FinalsEntryRecord).join(ranked, is_ranked).where(ranked.c.rank == 1)


def _group(run: RunRecord) -> tuple[int, int, str, str, str]:
    return (run.device_id, run.problem_id, run.provenance, run.l2, run.fill)


def _run(timing: Timing) -> RunRecord:
    return timing.run if isinstance(timing, TrialRecord) else timing.finals.run


def _measured_at(timing: Timing) -> datetime:
    return timing.finished_at if isinstance(timing, TrialRecord) else timing.finals.measured_at


def _ratios(timing: Timing) -> tuple[float | None, float | None, float | None]:
    if isinstance(timing, TrialRecord):
        return (None, None, None)
    return (timing.ratio, timing.ratio_low, timing.ratio_high)


def _time_us(timing: Timing) -> float | None:
    if isinstance(timing, FinalsEntryRecord):
        return timing.median_us
    if timing.status == Status.OK.value and timing.measurement is not None:
        return timing.measurement.median_us
    return None


def _result_row(timing: Timing) -> ResultRow:
    run, time_us = _run(timing), _time_us(timing)
    family, config = timing.family, timing.config
    if time_us is None or config is None or family is None:
        raise ValueError(f"the best of run {run.id} has no time or no config")
    ratio, ratio_low, ratio_high = _ratios(timing)
    return ResultRow(
        device=device_of(run.device),
        problem=problem_of(run.problem),
        provenance=Provenance(run.provenance),
        l2=CacheState(run.l2),
        fill=Fill(run.fill),
        family=family,
        config=Config.of(family, config),
        time_us=time_us,
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        kernel_id=timing.kernel_id,
        run_id=run.id,
        measured_at=_measured_at(timing),
    )


def _stored_kernel(session: Session, timing: Timing, kernel: KernelRecord) -> StoredKernel:
    run = _run(timing)
    ratio, ratio_low, ratio_high = _ratios(timing)
    return StoredKernel(
        kernel_id=kernel.id,
        source=kernel_of(kernel),
        problem=problem_of(run.problem),
        device=device_of(run.device),
        environment=environment_of(run.environment),
        provenance=Provenance(run.provenance),
        l2=CacheState(run.l2),
        time_us=_time_us(timing),
        ratio=ratio,
        ratio_low=ratio_low,
        ratio_high=ratio_high,
        run_id=run.id,
        measured_at=_measured_at(timing),
        verification=verification_of(timing),
        certificate=newest_certificate(session, kernel.id, run.device_id),
    )
