"""Rows that are added in one transaction: of a run, a trial, finals."""

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import and_, bindparam, select
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Disqualified, Environment, Finals, Outcome, StopRule
from autogemm.store.tables import models
from autogemm.store.tables.convert import (
    columns_of,
    device_key,
    entry_columns,
    kernel_columns,
    spec_columns,
    trial_columns,
)
from autogemm.store.tables.records import RunSpec, RunState
from autogemm.support.errors import NotFoundError, StoreError

Row = TypeVar("Row", bound=models.Base)

# The run and a trial in one question. It and the next are asked for every trial: making a statement
# takes longer than the database does.
_RUN_AND_TRIAL = (
    select(models.TrialRecord.id, models.TrialRecord.config)
    .select_from(models.RunRecord)
    .outerjoin(
        models.TrialRecord,
        and_(
            models.TrialRecord.run_id == models.RunRecord.id,
            models.TrialRecord.number == bindparam("number"),
        ),
    )
    .where(models.RunRecord.id == bindparam("run"))
)
_KERNEL = select(models.KernelRecord).where(
    models.KernelRecord.kernel_sha256 == bindparam("sha256")
)


def now() -> datetime:
    """The time that rows are stamped with."""
    return datetime.now(UTC)


def this_process() -> str:
    """``host:pid``, the owner of the runs that this process writes."""
    return f"{socket.gethostname()}:{os.getpid()}"


def is_written_elsewhere(owner: str) -> bool:
    """Whether another process of this machine, still alive, owns a run.

    Nothing is known here of a process on another machine: see `autogemm.store.claims`.
    """
    host, _, pid = owner.rpartition(":")
    if owner == this_process() or host != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def written_elsewhere(run_id: int) -> StoreError:
    """The error for a run that another process goes on with."""
    return StoreError(
        f"another process has just resumed run {run_id}: run the same command again for a new run"
    )


def add_run(session: Session, spec: RunSpec) -> models.RunRecord:
    """A new run, owned by this process."""
    run = models.RunRecord(
        problem=problem_record(session, spec.problem),
        device=device_record(session, spec.device),
        environment=environment_record(session, spec.environment),
        **spec_columns(spec),
        state=RunState.RUNNING.value,
        owner=this_process(),
        command=spec.command,
        started_at=now(),
    )
    session.add(run)
    session.flush()
    return run


def get_run(session: Session, run_id: int) -> models.RunRecord:
    """Raises NotFoundError for a number that is no run's."""
    run = session.get(models.RunRecord, run_id)
    if run is None:
        raise no_such_run(run_id)
    return run


def no_such_run(run_id: int) -> NotFoundError:
    """The error for a number that is no run's."""
    return NotFoundError(f"no run {run_id}: autogemm db list shows the runs")


def claim_run(session: Session, run_id: int) -> None:
    """This process goes on with the run. Raises StoreError when another one has done so."""
    run = get_run(session, run_id)
    if is_written_elsewhere(run.owner):
        raise written_elsewhere(run_id)
    run.state = RunState.RUNNING.value
    run.owner = this_process()
    run.finished_at = None
    run.stopped_by = None


def end_run(session: Session, run_id: int, state: RunState, stopped_by: StopRule | None) -> None:
    """The run ends in ``state``."""
    run = get_run(session, run_id)
    run.state = state.value
    run.stopped_by = stopped_by.value if stopped_by else None
    run.finished_at = now()


def add_trial(
    session: Session, run_id: int, number: int, outcome: Outcome, source: KernelSource | None
) -> int:
    """The trial's id; one that is there already, with the same config, is left as it is.

    Raises StoreError if it is there with another config.
    """
    found = session.execute(_RUN_AND_TRIAL, {"run": run_id, "number": number}).first()
    if found is None:
        raise no_such_run(run_id)
    if found.id is not None:
        if found.config != outcome.config.as_dict():
            raise StoreError(
                f"trial {number} of run {run_id} is stored already, with another config: two "
                "processes are writing to one run; end one of them"
            )
        return int(found.id)
    trial = models.TrialRecord(
        run_id=run_id,
        number=number,
        kernel=kernel_record(session, outcome.kernel_sha256, source),
        finished_at=now(),
        **trial_columns(outcome),
    )
    session.add(trial)
    session.flush()
    return trial.id


def add_finals(
    session: Session, run_id: int, finals: Finals, sources: Mapping[str, KernelSource]
) -> None:
    """Add finals of a run. A contestant's source comes from ``sources`` or is stored already."""
    record = models.FinalsRecord(
        run=get_run(session, run_id),
        measured_at=now(),
        **columns_of(models.FinalsRecord, finals),
    )
    session.add(record)
    for place, entry in enumerate((finals.baseline, *finals.entries)):
        kernel = kernel_record(session, entry.kernel_sha256, sources.get(entry.kernel_sha256))
        columns = entry_columns(entry)
        record.entries.append(models.FinalsEntryRecord(place=place, kernel=kernel, **columns))
    for lost in finals.disqualified:
        _withdraw(session, run_id, lost)


def _withdraw(session: Session, run_id: int, lost: Disqualified) -> None:
    """So that no later run takes the kernel's time for granted."""
    of_kernel = models.KernelRecord.kernel_sha256 == lost.kernel_sha256
    statement = select(models.TrialRecord).join(models.TrialRecord.kernel).where(of_kernel)
    for trial in session.scalars(statement.where(models.TrialRecord.run_id == run_id)):
        trial.status = lost.status.value
        trial.reason = lost.reason
        trial.time_us = None


def problem_record(session: Session, problem: Problem) -> models.ProblemRecord:
    """The row of a problem, new if need be."""
    return _get_or_add(session, models.ProblemRecord, columns_of(models.ProblemRecord, problem))


def device_record(session: Session, device: Device) -> models.DeviceRecord:
    """The row of a device, with its facts as they are now."""
    facts = asdict(device)
    record = _get_or_add(session, models.DeviceRecord, device_key(device), {"facts": facts})
    # As last seen: a newer driver or version may know better.
    record.facts = facts
    return record


def environment_record(session: Session, environment: Environment) -> models.EnvironmentRecord:
    """The row of an environment, new if need be."""
    return _get_or_add(
        session, models.EnvironmentRecord, columns_of(models.EnvironmentRecord, environment)
    )


def kernel_record(
    session: Session, sha256: str, source: KernelSource | None
) -> models.KernelRecord | None:
    """The row of a kernel, new if there is a source; None if it is not known without.

    Raises ValueError for a source of another sha256.
    """
    if source is None:
        return session.scalar(_KERNEL, {"sha256": sha256})
    if sha256 not in ("", source.sha256):
        raise ValueError(f"the outcome is of source {sha256}, got source {source.sha256}")
    found = session.scalar(_KERNEL, {"sha256": source.sha256})
    if found is not None:
        return found
    columns = {**kernel_columns(source), "created_at": now()}
    return _added(session, models.KernelRecord(kernel_sha256=source.sha256, **columns))


def _get_or_add(
    session: Session, model: type[Row], key: dict[str, Any], rest: dict[str, Any] | None = None
) -> Row:
    found = session.scalar(select(model).filter_by(**key))
    return _added(session, model(**key, **(rest or {}))) if found is None else found


def _added(session: Session, row: Row) -> Row:
    """The new row.

    Another writer may add the same one in between (PostgreSQL; in SQLite we hold the write lock):
    the transaction then fails on the unique key and Store runs it again.
    """
    session.add(row)
    return row
