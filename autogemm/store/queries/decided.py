"""Runs that had finals: which there are, and what won.

A database of many runs is not read whole: `decided_runs` tells with few cells which are worth it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from sqlalchemy import select
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Objective
from autogemm.model.similarity import extents_within
from autogemm.store.queries.certificates import failed_kernels
from autogemm.store.queries.runs import Condition, conditions, in_chunks, newest_finals
from autogemm.store.tables import records
from autogemm.store.tables.convert import device_of, finals_of, problem_in, spec_of
from autogemm.store.tables.models import (
    CertificateRecord,
    DeviceRecord,
    FinalsRecord,
    ProblemRecord,
    RunRecord,
)


def decided_runs(session: Session, near: Problem | None, steps: float) -> list[records.DecidedRun]:
    """Runs that had finals, in the order of their numbers; with ``near`` those of its element type
    whose extents allow a distance of ``steps``.
    """
    statement = (
        select(RunRecord.id, RunRecord.objective, ProblemRecord, RunRecord.device_id)
        .join(ProblemRecord, ProblemRecord.id == RunRecord.problem_id)
        .where(select(FinalsRecord.id).where(FinalsRecord.run_id == RunRecord.id).exists())
        .order_by(RunRecord.id)
    )
    if near is not None:
        ranges = {name: extents_within(getattr(near, name), steps) for name in "mnk"}
        statement = statement.where(
            ProblemRecord.dtype == str(near.dtype),
            *(getattr(ProblemRecord, name).between(*ends) for name, ends in ranges.items()),
        )
    rows = session.execute(statement).all()
    # Many runs share a problem. All share a few GPUs, whose facts are too long for every row.
    problems = {one: problem_in(one) for one in {row[2] for row in rows}}
    used = DeviceRecord.id.in_({device_id for *_, device_id in rows})
    facts = session.execute(select(DeviceRecord.id, DeviceRecord.facts).where(used))
    devices: dict[int, Device] = {device_id: device_of(one) for device_id, one in facts}
    return [
        records.DecidedRun(run_id, problems[problem], devices[device], Objective(objective))
        for run_id, objective, problem, device in rows
    ]


def decided_rows(
    session: Session, query: records.BestQuery, run_ids: Collection[int] | None
) -> list[records.DecidedRow]:
    """Runs that had finals, in the order of their numbers, without kernels that failed since."""
    if run_ids is None:
        return _rows(session, conditions(query))
    chunks = in_chunks(sorted(run_ids))
    return list(chain.from_iterable(_rows(session, [RunRecord.id.in_(ids)]) for ids in chunks))


def _rows(session: Session, wanted: Sequence[Condition]) -> list[records.DecidedRow]:
    runs = select(RunRecord).where(*wanted)
    newest = newest_finals(session, runs.with_only_columns(RunRecord.id))
    kernels = {one.kernel_id for record in newest.values() for one in record.entries}
    failed = _failed_among(session, filter(None, kernels))
    rows = []
    for run in session.scalars(runs.order_by(RunRecord.id)):
        record = newest.get(run.id)
        if record is None:
            continue
        finals = finals_of(record)
        # The first record is the baseline's.
        pairs = zip(finals.entries, record.entries[1:], strict=True)
        left = tuple(one for one, kept in pairs if (kept.kernel_id, run.device_id) not in failed)
        if left:
            decided = replace(finals, entries=left)
            rows.append(records.DecidedRow(run.id, spec_of(run), decided, record.measured_at))
    return rows


def _failed_among(session: Session, kernel_ids: Iterable[int]) -> set[tuple[int, int]]:
    """The kernels whose newest certificate on a device is a failure, with the device."""
    failed: set[tuple[int, int]] = set()
    for ids in in_chunks(kernel_ids):
        statement = failed_kernels(CertificateRecord.kernel_id.in_(ids))
        failed |= {(kernel, device) for kernel, device in session.execute(statement)}
    return failed
