"""Benchmarks, profiles and ceilings: written once, read as values."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from autogemm.model.config import Config
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import KernelSource
from autogemm.model.results.benchmark import Bench, BenchEntry, BenchSpec
from autogemm.model.results.outcome import CacheState, Environment, Provenance
from autogemm.model.results.stored import Profile, StoredKernel
from autogemm.store.tables.bench_models import (
    BenchEntryRecord,
    BenchRecord,
    CeilingsRecord,
    ProfileRecord,
)
from autogemm.store.tables.convert import columns_of, device_key, kernel_of, value_of
from autogemm.store.tables.models import KernelRecord
from autogemm.store.tables.writing import (
    device_record,
    environment_record,
    kernel_record,
    now,
    problem_record,
)
from autogemm.support.errors import NotFoundError


def add_bench(session: Session, spec: BenchSpec) -> BenchRecord:
    """Add a benchmark without entries, begun just now."""
    bench = BenchRecord(
        device=device_record(session, spec.device),
        environment=environment_record(session, spec.environment),
        **columns_of(BenchRecord, spec),
        started_at=now(),
    )
    session.add(bench)
    session.flush()
    return bench


def add_entries(
    session: Session,
    bench_id: int,
    entries: Iterable[BenchEntry],
    sources: Mapping[str, KernelSource],
) -> None:
    """Behind those that are there. A kernel's source comes from ``sources`` or is stored."""
    bench = _record(session, bench_id)
    for position, entry in enumerate(entries, len(bench.entries)):
        source = sources.get(entry.kernel_sha256)
        bench.entries.append(
            BenchEntryRecord(
                position=position,
                problem=problem_record(session, entry.problem),
                kernel_source=kernel_record(session, entry.kernel_sha256, source),
                **columns_of(BenchEntryRecord, entry),
            )
        )


def end_bench(session: Session, bench_id: int) -> None:
    """All its entries are there."""
    _record(session, bench_id).finished_at = now()


def benches(session: Session, limit: int | None) -> list[Bench]:
    """Newest first."""
    return [bench_of(record) for record in session.scalars(_newest_first().limit(limit))]


def bench(session: Session, bench_id: int | None) -> Bench:
    """One, or the newest. Raises NotFoundError."""
    if bench_id is not None:
        return bench_of(_record(session, bench_id))
    newest = session.scalar(_newest_first().limit(1))
    if newest is None:
        raise NotFoundError("no benchmark is stored: run autogemm bench first")
    return bench_of(newest)


def _newest_first() -> Select[BenchRecord]:
    return select(BenchRecord).order_by(BenchRecord.started_at.desc(), BenchRecord.id.desc())


def add_profile(session: Session, profile: Profile, source: KernelSource) -> int:
    """Add a profile with its kernel, which may be stored already; its id."""
    record = ProfileRecord(
        kernel_source=kernel_record(session, profile.kernel_sha256, source),
        problem=problem_record(session, profile.problem),
        device=device_record(session, profile.device),
        environment=environment_record(session, profile.environment),
        **columns_of(ProfileRecord, profile),
    )
    session.add(record)
    session.flush()
    return record.id


def profiles(session: Session, kernel_sha256: str | None, limit: int | None) -> list[Profile]:
    """The profiles of one kernel or of all, newest first."""
    newest_first = (ProfileRecord.made_at.desc(), ProfileRecord.id.desc())
    statement = select(ProfileRecord).order_by(*newest_first).limit(limit)
    if kernel_sha256 is not None:
        statement = statement.where(ProfileRecord.kernel_source.has(kernel_sha256=kernel_sha256))
    return [profile_of(record) for record in session.scalars(statement)]


def add_ceilings(
    session: Session, device: Device, environment: Environment, ceilings: Ceilings
) -> None:
    """Add what a GPU reached."""
    record = CeilingsRecord(
        device=device_record(session, device),
        environment=environment_record(session, environment),
        **asdict(ceilings),
    )
    session.add(record)


def newest_ceilings(session: Session, device: Device) -> Ceilings | None:
    """The newest of a device, None if they were never measured."""
    record = session.scalar(
        select(CeilingsRecord)
        .where(CeilingsRecord.device.has(**device_key(device)))
        .order_by(CeilingsRecord.measured_at.desc(), CeilingsRecord.id.desc())
        .limit(1)
    )
    return None if record is None else value_of(Ceilings, record)


def _record(session: Session, bench_id: int) -> BenchRecord:
    found = session.get(BenchRecord, bench_id)
    if found is None:
        raise NotFoundError(
            f"no benchmark {bench_id}: autogemm db sql 'SELECT id, preset, started_at FROM "
            "benches' lists them"
        )
    return found


def bench_of(record: BenchRecord) -> Bench:
    """The benchmark of a row, with its entries."""
    return Bench(
        bench_id=record.id,
        spec=value_of(BenchSpec, record),
        started_at=record.started_at,
        finished_at=record.finished_at,
        entries=tuple(value_of(BenchEntry, entry) for entry in record.entries),
    )


def profile_of(record: ProfileRecord) -> Profile:
    """The profile of a row."""
    source = record.kernel_source
    return value_of(
        Profile,
        record,
        config=Config.of(source.family, source.config),
        kernel_sha256=source.kernel_sha256,
    )


def kernel_outside_runs(session: Session, kernel: KernelRecord) -> StoredKernel | None:
    """The newest that a benchmark, else a profile, knows of a kernel that was in no run."""
    known = {"kernel_id": kernel.id, "source": kernel_of(kernel), "run_id": None}
    entry = session.scalar(
        select(BenchEntryRecord)
        .filter_by(kernel_id=kernel.id)
        .order_by(BenchEntryRecord.time_us.is_(None), BenchEntryRecord.bench_id.desc())
        .limit(1)
    )
    if entry is not None:
        spec = value_of(BenchSpec, entry.bench)
        place = {
            name: getattr(spec, name) for name in ("device", "environment", "provenance", "l2")
        }
        measured_at = entry.bench.started_at
        none = {"certificate": None, "baseline": None, "kept_error": None}
        return value_of(StoredKernel, entry, **known, **place, **none, measured_at=measured_at)
    profile = session.scalar(
        select(ProfileRecord).filter_by(kernel_id=kernel.id).order_by(ProfileRecord.id.desc())
    )
    if profile is None:
        return None
    # A time under a profiler is none to compare.
    timed = ("time_us", "ratio", "ratio_low", "ratio_high", "baseline")
    untimed = (*timed, "verification", "certificate", "kept_error")
    return value_of(
        StoredKernel,
        profile,
        **known,
        **dict.fromkeys(untimed),
        provenance=Provenance.MEASURED,
        l2=CacheState.WARM,
        measured_at=profile.made_at,
    )
