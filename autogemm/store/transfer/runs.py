"""Runs with all that belongs to them, out of a database and into one; nothing is there twice.

`autogemm.store.tables.identity` says what makes two rows the same. Only what is missing is added to
a run that is there already.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session, joinedload, lazyload, undefer

from autogemm.model.outcome import Status, StopRule
from autogemm.store.queries.certificates import add_certificate, certificate_of
from autogemm.store.queries.runs import conditions, same_request
from autogemm.store.tables.convert import (
    finals_of,
    kernel_columns,
    kernel_of,
    outcome_of,
    spec_of,
    trial_columns,
)
from autogemm.store.tables.identity import same
from autogemm.store.tables.models import (
    CertificateRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
    TrialRecord,
)
from autogemm.store.tables.records import (
    BenchCopy,
    BestQuery,
    CeilingsCopy,
    CertificateCopy,
    Copy,
    FinalsCopy,
    KernelCopy,
    ProfileCopy,
    RunCopy,
    RunState,
    Taken,
    TrialCopy,
)
from autogemm.store.tables.writing import add_finals, add_run, known_device
from autogemm.store.transfer.benches import (
    add_bench_copy,
    add_ceilings_copy,
    add_profile_copy,
    bench_copies,
)
from autogemm.support.errors import NotFoundError, StoreError

# Trials that are held before they go to the database, or come from it, together.
BATCH = 1000

# Written down by nobody: a run that came from elsewhere is no process's here.
_NOBODY = ""


def copies(session: Session, query: BestQuery, status: Status | None) -> Iterator[Copy]:
    """The runs that match, oldest first, each followed by what belongs to it; then benchmarks,
    profiles and ceilings, but where ``status`` asks for trials.

    A kernel comes once, before the first that names it.
    """
    seen: set[int] = set()

    def kernels(wanted: Iterable[KernelRecord | None]) -> Iterator[KernelCopy]:
        for kernel in wanted:
            if kernel is not None and kernel.id not in seen:
                seen.add(kernel.id)
                yield KernelCopy(kernel.kernel_sha256, kernel_of(kernel), kernel.created_at)

    runs = select(RunRecord).where(*conditions(query)).order_by(RunRecord.id)
    for run in session.scalars(runs).all():
        yield _run_copy(run)
        for trial in _trials(session, run.id, query, status):
            yield from kernels([trial.kernel])
            yield TrialCopy(run.id, trial.number, outcome_of(trial), trial.finished_at)
        for finals in session.scalars(select(FinalsRecord).filter_by(run_id=run.id)):
            yield from kernels(entry.kernel for entry in finals.entries)
            yield FinalsCopy(run.id, finals_of(finals), finals.measured_at)
        certificates = select(CertificateRecord).filter_by(run_id=run.id)
        for certificate in session.scalars(certificates.order_by(CertificateRecord.id)):
            kernel = session.get_one(KernelRecord, certificate.kernel_id)
            yield from kernels([kernel])
            made = certificate_of(certificate.checks, certificate.made_at)
            yield CertificateCopy(run.id, kernel.kernel_sha256, made)
        session.expunge_all()
    if status is None:
        yield from bench_copies(session, query, kernels)


def _run_copy(run: RunRecord) -> RunCopy:
    return RunCopy(
        run_id=run.id,
        spec=spec_of(run),
        state=RunState(run.state),
        stopped_by=StopRule(run.stopped_by) if run.stopped_by else None,
        started_at=run.started_at,
        finished_at=run.finished_at,
    )


def _trials(
    session: Session, run_id: int, query: BestQuery, status: Status | None
) -> Iterator[TrialRecord]:
    statement = (
        select(TrialRecord)
        .filter_by(run_id=run_id)
        .options(
            lazyload(TrialRecord.run),
            joinedload(TrialRecord.kernel).options(undefer(KernelRecord.source)),
        )
        .order_by(TrialRecord.number)
        .execution_options(yield_per=BATCH)
    )
    if query.family is not None:
        statement = statement.where(TrialRecord.family == query.family)
    if status is not None:
        statement = statement.where(TrialRecord.status == status.value)
    return iter(session.scalars(statement))


def add_copies(session: Session, wanted: Iterable[Copy]) -> Taken:
    """Adds what is not there yet.

    Raises StoreError for a trial whose number another config has, NotFoundError for a run or kernel
    that is named and did not come before.
    """
    adder = _Adder(session)
    for copy in wanted:
        adder.add(copy)
    session.flush()
    return Taken(dict(adder.new), dict(adder.known))


@dataclass(frozen=True, slots=True)
class _Known:
    """A trial that is here. A file without sources names kernels that may not be here."""

    config: dict[str, Any]
    status: str
    lacks_kernel: bool


class _Adder:
    """One import. Rows are written in batches and let go; their ids are kept."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._run_ids: dict[int, int] = {}
        self._trials: dict[int, dict[int, _Known]] = {}
        self._kernel_ids: dict[str, int] = {}
        self._num_pending = 0
        self.new: Counter[str] = Counter()
        self.known: Counter[str] = Counter()

    def add(self, copy: Copy) -> None:
        """One more."""
        match copy:
            case RunCopy():
                self._count("runs", self._add_run(copy))
            case KernelCopy():
                self._count("kernels", self._add_kernel(copy))
            case TrialCopy():
                self._count("trials", self._add_trial(copy))
            case FinalsCopy():
                self._count("finals", self._add_finals(copy))
            case CertificateCopy():
                self._count("certificates", self._add_certificate(copy))
            case BenchCopy():
                self._count("benchmarks", add_bench_copy(self._session, copy))
            case ProfileCopy():
                self._count("profiles", add_profile_copy(self._session, copy))
            case CeilingsCopy():
                self._count("ceilings", add_ceilings_copy(self._session, copy))

    def _count(self, kind: str, is_new: bool) -> None:
        (self.new if is_new else self.known)[kind] += 1

    def _add_run(self, copy: RunCopy) -> bool:
        if copy.run_id in self._run_ids:
            raise StoreError(f"run {copy.run_id} comes twice")
        run = self._session.scalar(select(RunRecord).where(*_same_run(copy)).limit(1))
        is_new = run is None
        if run is None:
            device = known_device(self._session, copy.spec.device)
            run = add_run(self._session, replace(copy.spec, device=device))
            run.owner = _NOBODY
            run.started_at = copy.started_at or run.started_at
            self._trials[copy.run_id] = {}
        else:
            columns = (TrialRecord.number, TrialRecord.config, TrialRecord.status)
            rows = self._session.execute(
                select(*columns, TrialRecord.kernel_id).where(TrialRecord.run_id == run.id)
            )
            self._trials[copy.run_id] = {
                number: _Known(config, status, kernel_id is None)
                for number, config, status, kernel_id in rows
            }
        if is_new or _is_further(copy, run):
            # Whatever went on where it comes from, nobody goes on with it here.
            ended = RunState.INTERRUPTED if copy.state is RunState.RUNNING else copy.state
            run.state = ended.value
            run.stopped_by = copy.stopped_by.value if copy.stopped_by else None
            run.finished_at = copy.finished_at
        self._session.flush()
        self._run_ids[copy.run_id] = run.id
        return is_new

    def _add_kernel(self, copy: KernelCopy) -> bool:
        source = copy.source
        if self._kernel_id(source.sha256) is not None:
            return False
        kernel = KernelRecord(
            kernel_sha256=source.sha256, created_at=copy.created_at, **kernel_columns(source)
        )
        self._session.add(kernel)
        self._session.flush()
        self._kernel_ids[source.sha256] = kernel.id
        return True

    def _add_trial(self, copy: TrialCopy) -> bool:
        run_id, outcome = self._run_id(copy.run_id), copy.outcome
        there = self._trials[copy.run_id]
        config = outcome.config.as_dict()
        kernel_id = self._kernel_id(outcome.kernel_sha256)
        if (known := there.get(copy.number)) is not None:
            if known.config != config:
                raise StoreError(
                    f"trial {copy.number} of run {copy.run_id} is in the database with another "
                    "config: the two are not the same run"
                )
            found = select(TrialRecord).filter_by(run_id=run_id, number=copy.number)
            if known.lacks_kernel and kernel_id is not None:
                # It came from a file without sources, and now here is its own.
                self._session.scalars(found).one().kernel_id = kernel_id
            if known.status == Status.OK != outcome.status:
                # Found wrong where it comes from, after it was last brought here.
                trial = self._session.scalars(found).one()
                trial.status, trial.reason, trial.time_us = (
                    outcome.status.value,
                    outcome.reason,
                    None,
                )
            return False
        there[copy.number] = _Known(config, outcome.status, kernel_id is None)
        self._session.add(
            TrialRecord(
                run_id=run_id,
                number=copy.number,
                kernel_id=kernel_id,
                finished_at=copy.finished_at,
                **trial_columns(outcome),
            )
        )
        self._num_pending += 1
        if self._num_pending >= BATCH:
            self._session.flush()
            self._session.expunge_all()
            self._num_pending = 0
        return True

    def _add_finals(self, copy: FinalsCopy) -> bool:
        run_id = self._run_id(copy.run_id)
        there = same(FinalsRecord, run_id=run_id, measured_at=copy.measured_at)
        if self._session.scalar(select(FinalsRecord.id).where(*there)) is not None:
            return False
        add_finals(self._session, run_id, copy.finals, {}, copy.measured_at)
        return True

    def _add_certificate(self, copy: CertificateCopy) -> bool:
        run_id = self._run_id(copy.run_id)
        there = same(
            CertificateRecord,
            run_id=run_id,
            kernel_id=self._kernel_id(copy.kernel_sha256),
            made_at=copy.certificate.made_at,
        )
        if self._session.scalar(select(CertificateRecord.id).where(*there)) is not None:
            return False
        run = self._session.get_one(RunRecord, run_id)
        add_certificate(self._session, run, copy.kernel_sha256, copy.certificate)
        return True

    def _run_id(self, key: int) -> int:
        if key not in self._run_ids:
            raise NotFoundError(f"run {key} is named before it comes")
        return self._run_ids[key]

    def _kernel_id(self, sha256: str) -> int | None:
        if sha256 and sha256 not in self._kernel_ids:
            of_text = select(KernelRecord.id).filter_by(kernel_sha256=sha256)
            found = self._session.scalar(of_text)
            if found is None:
                return None
            self._kernel_ids[sha256] = found
        return self._kernel_ids.get(sha256)


def _same_run(copy: RunCopy) -> list[ColumnElement[bool]]:
    same = same_request(copy.spec)
    return same if copy.started_at is None else [*same, RunRecord.started_at == copy.started_at]


def _is_further(copy: RunCopy, run: RunRecord) -> bool:
    """Whether the run went on, where it comes from, after it was last brought here."""
    if run.state == RunState.RUNNING.value or copy.finished_at is None:
        return False
    return run.finished_at is None or copy.finished_at > run.finished_at
