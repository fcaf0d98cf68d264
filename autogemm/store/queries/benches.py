"""Benchmarks, profiles and ceilings: written once, read as values."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from autogemm.model.benchmark import Bench, BenchEntry, BenchSpec, KernelKind
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.hardware.roofline import Ceilings
from autogemm.model.kernel import KernelSource
from autogemm.model.outcome import CacheState, Environment, Fill, Provenance, Status
from autogemm.model.profile import Profile
from autogemm.model.stored_kernel import StoredKernel
from autogemm.store.tables.bench_models import (
    BenchEntryRecord,
    BenchRecord,
    CeilingsRecord,
    ProfileRecord,
)
from autogemm.store.tables.convert import (
    device_key,
    device_of,
    environment_of,
    finite_samples,
    kernel_of,
    problem_of,
    telemetry_of,
    verification_columns,
    verification_of,
)
from autogemm.store.tables.models import KernelRecord
from autogemm.store.tables.writing import (
    device_record,
    environment_record,
    kernel_record,
    now,
    problem_record,
)
from autogemm.support.errors import NotFoundError


def add_bench(session: Session, spec: BenchSpec, started_at: datetime | None = None) -> BenchRecord:
    """A new benchmark without entries, begun just now if it is not said when."""
    bench = BenchRecord(
        device=device_record(session, spec.device),
        environment=environment_record(session, spec.environment),
        preset=spec.preset,
        seed=spec.seed,
        l2=spec.l2.value,
        fill=spec.fill.value,
        provenance=spec.provenance.value,
        command=spec.command,
        started_at=started_at or now(),
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
                kernel=entry.kernel,
                kind=entry.kind.value,
                library=entry.library,
                kernel_source=kernel_record(session, entry.kernel_sha256, source),
                family=entry.config.family if entry.config else None,
                config=entry.config.as_dict() if entry.config else None,
                status=entry.status.value,
                reason=entry.reason,
                registers=entry.registers,
                median_us=entry.time_us,
                samples_us=finite_samples(entry.samples_us),
                method=entry.method,
                launches_per_sample=entry.launches_per_sample,
                ratio=entry.ratio,
                ratio_low=entry.ratio_low,
                ratio_high=entry.ratio_high,
                **verification_columns(entry.verification),
                **asdict(entry.telemetry),
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


def add_profile(session: Session, profile: Profile, source: KernelSource | None) -> int:
    """A profile with the kernel it is of, which may be stored already; its id."""
    record = ProfileRecord(
        kernel_source=kernel_record(session, profile.kernel_sha256, source),
        kernel=profile.kernel,
        problem=problem_record(session, profile.problem),
        device=device_record(session, profile.device),
        environment=environment_record(session, profile.environment),
        profiler=profile.profiler,
        counters=dict(profile.counters),
        made_at=profile.made_at,
    )
    session.add(record)
    session.flush()
    return record.id


def profiles(session: Session, kernel_sha256: str | None, limit: int | None) -> list[Profile]:
    """Of one kernel or of all, newest first."""
    newest_first = (ProfileRecord.made_at.desc(), ProfileRecord.id.desc())
    statement = select(ProfileRecord).order_by(*newest_first).limit(limit)
    if kernel_sha256 is not None:
        statement = statement.where(ProfileRecord.kernel_source.has(source_sha256=kernel_sha256))
    return [profile_of(record) for record in session.scalars(statement)]


def add_ceilings(
    session: Session, device: Device, environment: Environment, ceilings: Ceilings
) -> None:
    """What a card reached."""
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
    return None if record is None else ceilings_of(record)


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
        spec=_spec_of(record),
        started_at=record.started_at,
        finished_at=record.finished_at,
        entries=tuple(map(_entry_of, record.entries)),
    )


def _spec_of(record: BenchRecord) -> BenchSpec:
    return BenchSpec(
        device=device_of(record.device),
        environment=environment_of(record.environment),
        provenance=Provenance(record.provenance),
        command=record.command,
        preset=record.preset,
        seed=record.seed,
        l2=CacheState(record.l2),
        fill=Fill(record.fill),
    )


def _entry_of(record: BenchEntryRecord) -> BenchEntry:
    config = None if record.config is None else Config.of(record.family or "", record.config)
    return BenchEntry(
        kernel=record.kernel,
        kind=KernelKind(record.kind),
        problem=problem_of(record.problem),
        status=Status(record.status),
        reason=record.reason,
        config=config,
        kernel_sha256=record.kernel_source.source_sha256 if record.kernel_source else "",
        library=record.library,
        samples_us=tuple(record.samples_us),
        method=record.method,
        launches_per_sample=record.launches_per_sample,
        ratio=record.ratio,
        ratio_low=record.ratio_low,
        ratio_high=record.ratio_high,
        registers=record.registers,
        verification=verification_of(record),
        telemetry=telemetry_of(record),
    )


def profile_of(record: ProfileRecord) -> Profile:
    """The profile of a row."""
    source = record.kernel_source
    return Profile(
        kernel=record.kernel,
        config=Config.of(source.family, source.config),
        kernel_sha256=source.source_sha256,
        problem=problem_of(record.problem),
        device=device_of(record.device),
        environment=environment_of(record.environment),
        profiler=record.profiler,
        counters=tuple(record.counters.items()),
        made_at=record.made_at,
    )


def ceilings_of(record: CeilingsRecord) -> Ceilings:
    """The ceilings of a row."""
    names = Ceilings.__dataclass_fields__
    return Ceilings(**{name: getattr(record, name) for name in names})


def kernel_outside_runs(session: Session, kernel: KernelRecord) -> StoredKernel | None:
    """What a benchmark knows of a kernel that was in no run, else a profile; the newest."""
    entry = session.scalar(
        select(BenchEntryRecord)
        .filter_by(kernel_id=kernel.id)
        .order_by(BenchEntryRecord.median_us.is_(None), BenchEntryRecord.bench_id.desc())
        .limit(1)
    )
    if entry is not None:
        spec, timed = _spec_of(entry.bench), _entry_of(entry)
        return StoredKernel(
            kernel_id=kernel.id,
            source=kernel_of(kernel),
            problem=timed.problem,
            device=spec.device,
            environment=spec.environment,
            provenance=spec.provenance,
            l2=spec.l2,
            time_us=timed.time_us,
            ratio=timed.ratio,
            ratio_low=timed.ratio_low,
            ratio_high=timed.ratio_high,
            run_id=None,
            measured_at=entry.bench.started_at,
            verification=timed.verification,
        )
    profile = session.scalar(
        select(ProfileRecord).filter_by(kernel_id=kernel.id).order_by(ProfileRecord.id.desc())
    )
    if profile is None:
        return None
    counted = profile_of(profile)
    return StoredKernel(
        kernel_id=kernel.id,
        source=kernel_of(kernel),
        problem=counted.problem,
        device=counted.device,
        environment=counted.environment,
        provenance=Provenance.MEASURED,
        l2=CacheState.WARM,
        # A time under a profiler is none to compare.
        time_us=None,
        ratio=None,
        ratio_low=None,
        ratio_high=None,
        run_id=None,
        measured_at=counted.made_at,
        verification=None,
    )
