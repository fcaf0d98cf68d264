"""Values of a file into a database: as rows, which are merged like those of another database."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment
from autogemm.store.queries.certificates import kernel_not_stored
from autogemm.store.queries.runs import same_request
from autogemm.store.tables import bench_models, models, records
from autogemm.store.tables.convert import (
    columns_of,
    device_key,
    entry_columns,
    kernel_columns,
    spec_columns,
)
from autogemm.store.tables.writing import now
from autogemm.store.transfer.merging import TABLES, Key, Merging, Row, identity, key_of
from autogemm.support.errors import NotFoundError, StoreError

# Rows that are held before they are merged together.
_BATCH = 2000

# A run that came from elsewhere is no process's here.
_NO_OWNER = ""

# The words for the rows of each table in counts.
_SAME = ("runs", "kernels", "finals", "certificates", "profiles", "ceilings")
_KINDS = {name: name for name in _SAME} | {"run_trials": "trials", "benches": "benchmarks"}


def add_copies(
    session: Session, copies: Iterable[records.Copy], is_written: Callable[[int], bool]
) -> records.Taken:
    """Add what is not there yet; `Merging` says what ``is_written`` is for.

    Raises StoreError for a trial whose number another config has, NotFoundError for a run or kernel
    that is named and did not come before.
    """
    incoming = _Incoming(session, is_written)
    for copy in copies:
        incoming.add(copy)
    incoming.merge()
    return incoming.taken()


class _Incoming:
    """One import: numbers the rows as the file's own database would, and merges them in batches."""

    def __init__(self, session: Session, is_written: Callable[[int], bool]) -> None:
        self._session = session
        self._merging = Merging(session.connection(), is_written, by_number=True)
        self._rows: dict[str, list[Row]] = defaultdict(list)
        self._num_rows = 0
        self._ids: dict[Key, int] = {}
        self._run_ids: dict[int, int] = {}
        # By the numbers of trials: hashes, because a file may hold millions.
        self._configs: dict[int, int] = {}
        self._repeated: Counter[str] = Counter()

    def add(self, copy: records.Copy) -> None:
        """Add one value."""
        match copy:
            case records.RunCopy():
                self._add_run(copy)
            case records.KernelCopy():
                kernel = kernel_columns(copy.source) | {"kernel_sha256": copy.kernel_sha256}
                self._add(models.KernelRecord, created_at=copy.created_at, **kernel)
            case records.TrialCopy():
                self._add_trial(copy)
            case records.FinalsCopy():
                self._add_finals(copy)
            case records.CertificateCopy():
                kernel_id = self._kernel_id(copy.kernel_sha256)
                if kernel_id is None:
                    raise kernel_not_stored(copy.kernel_sha256)
                columns = columns_of(models.CertificateRecord, copy.certificate)
                run_id = self._run_id(copy.run_id)
                self._add(models.CertificateRecord, run_id=run_id, kernel_id=kernel_id, **columns)
            case records.BenchCopy():
                self._add_bench(copy)
            case records.ProfileCopy():
                self._add_profile(copy)
            case records.CeilingsCopy():
                place = self._place(copy.device, copy.environment)
                self._add(bench_models.CeilingsRecord, **place, **asdict(copy.ceilings))
        if self._num_rows >= _BATCH:
            self.merge()

    def merge(self) -> None:
        """Bring the rows that are held into the database."""
        for table in TABLES:
            if rows := self._rows.pop(table.name, None):
                self._merging.copy(table, rows)
        self._num_rows = 0

    def taken(self) -> records.Taken:
        """The numbers of new values and of those known from the database or the file; and
        the runs' numbers.
        """
        merged, grown = self._merging.merged, Counter(benches=len(self._merging.merged.grown))
        new, known = merged.added + grown, merged.known + self._repeated - grown
        return records.Taken(
            {kind: new[table] for table, kind in _KINDS.items() if new[table]},
            {kind: known[table] for table, kind in _KINDS.items() if known[table]},
            {number: self._merging.ids["runs"][one] for number, one in self._run_ids.items()},
        )

    def _add(self, model: type[models.Base], **columns: Any) -> tuple[int, bool]:
        """The number of a row with an id of its own, and whether the file did not have it yet."""
        table = model.metadata.tables[model.__tablename__]
        key = (table.name, *key_of(columns, identity(table, by_number=True)))
        if (known := self._ids.get(key)) is not None:
            self._repeated[table.name] += 1
            return known, False
        number = self._ids[key] = len(self._ids)
        self._add_part(model, id=number, **columns)
        return number, True

    def _add_part(self, model: type[models.Base], **columns: Any) -> None:
        row = dict.fromkeys(model.__table__.columns.keys()) | columns
        self._rows[model.__tablename__].append(row)
        self._num_rows += 1

    def _add_run(self, copy: records.RunCopy) -> None:
        if copy.run_id in self._run_ids:
            raise StoreError(f"run {copy.run_id} comes twice")
        spec, started_at = copy.spec, copy.started_at
        if started_at is None:
            known = select(models.RunRecord.started_at).where(*same_request(spec)).limit(1)
            started_at = self._session.scalar(known) or now()
        # A run that is being written in its own database is not being written in this one.
        state = (
            records.RunState.INTERRUPTED if copy.state is records.RunState.RUNNING else copy.state
        )
        self._run_ids[copy.run_id], _ = self._add(
            models.RunRecord,
            problem_id=self._problem_id(spec.problem),
            **self._place(spec.device, spec.environment),
            **spec_columns(spec),
            command=spec.command,
            owner=_NO_OWNER,
            state=state.value,
            stopped_by=copy.stopped_by.value if copy.stopped_by else None,
            started_at=started_at,
            finished_at=copy.finished_at,
        )

    def _add_trial(self, copy: records.TrialCopy) -> None:
        outcome = copy.outcome
        number, is_new = self._add(
            models.TrialRecord,
            run_id=self._run_id(copy.run_id),
            number=copy.number,
            kernel_id=self._kernel_id(outcome.kernel_sha256),
            finished_at=copy.finished_at,
            **columns_of(models.TrialRecord, outcome),
        )
        config = hash(outcome.config)
        if self._configs.setdefault(number, config) != config:
            raise StoreError(
                f"trial {copy.number} of run {copy.run_id} comes twice, with another config"
            )
        if not is_new:
            return
        if (measured := outcome.measurement) is not None:
            columns = columns_of(models.MeasurementRecord, measured)
            self._add_part(models.MeasurementRecord, trial_id=number, **columns)
        for position, used in enumerate(outcome.resources):
            self._add_part(
                models.ResourcesRecord, trial_id=number, position=position, **asdict(used)
            )

    def _add_finals(self, copy: records.FinalsCopy) -> None:
        number, is_new = self._add(
            models.FinalsRecord,
            run_id=self._run_id(copy.run_id),
            measured_at=copy.measured_at,
            **columns_of(models.FinalsRecord, copy.finals),
        )
        contestants = (copy.finals.baseline, *copy.finals.entries) if is_new else ()
        for place, entry in enumerate(contestants):
            self._add_part(
                models.FinalsEntryRecord,
                finals_id=number,
                place=place,
                kernel_id=self._kernel_id(entry.kernel_sha256),
                **entry_columns(entry),
            )

    def _add_bench(self, copy: records.BenchCopy) -> None:
        bench, spec = copy.bench, copy.bench.spec
        number, is_new = self._add(
            bench_models.BenchRecord,
            **self._place(spec.device, spec.environment),
            **columns_of(bench_models.BenchRecord, spec),
            started_at=bench.started_at,
            finished_at=bench.finished_at,
        )
        for position, entry in enumerate(bench.entries if is_new else ()):
            self._add_part(
                bench_models.BenchEntryRecord,
                bench_id=number,
                position=position,
                problem_id=self._problem_id(entry.problem),
                kernel_id=self._kernel_id(entry.kernel_sha256),
                **columns_of(bench_models.BenchEntryRecord, entry),
            )

    def _add_profile(self, copy: records.ProfileCopy) -> None:
        profile = copy.profile
        kernel_id = self._kernel_id(profile.kernel_sha256)
        if kernel_id is None:
            raise NotFoundError(f"kernel {profile.kernel_sha256[:12]} is profiled before it comes")
        self._add(
            bench_models.ProfileRecord,
            kernel_id=kernel_id,
            problem_id=self._problem_id(profile.problem),
            **self._place(profile.device, profile.environment),
            **columns_of(bench_models.ProfileRecord, profile),
        )

    def _place(self, device: Device, environment: Environment) -> dict[str, int]:
        device_id, _ = self._add(models.DeviceRecord, facts=asdict(device), **device_key(device))
        versions = columns_of(models.EnvironmentRecord, environment)
        environment_id, _ = self._add(models.EnvironmentRecord, **versions)
        return {"device_id": device_id, "environment_id": environment_id}

    def _problem_id(self, problem: Problem) -> int:
        return self._add(models.ProblemRecord, **columns_of(models.ProblemRecord, problem))[0]

    def _run_id(self, number: int) -> int:
        if number not in self._run_ids:
            raise NotFoundError(f"run {number} is named before it comes")
        return self._run_ids[number]

    def _kernel_id(self, sha256: str) -> int | None:
        """The number of a kernel that came before or is in the database, None without."""
        key = ("kernels", sha256)
        if sha256 and key not in self._ids:
            stored = select(models.KernelRecord.id).filter_by(kernel_sha256=sha256)
            found = self._session.scalar(stored)
            if found is None:
                return None
            self._ids[key] = len(self._ids)
            self._merging.ids["kernels"][self._ids[key]] = found
        return self._ids.get(key)
