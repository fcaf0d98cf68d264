"""Benchmarks, profiles and ceilings out of a database and into one; nothing is there twice."""

from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment, Provenance
from autogemm.store.queries.benches import (
    add_bench,
    add_ceilings,
    add_entries,
    add_profile,
    bench_of,
    ceilings_of,
    profile_of,
)
from autogemm.store.tables.bench_models import BenchRecord, CeilingsRecord, ProfileRecord
from autogemm.store.tables.convert import device_of, environment_of
from autogemm.store.tables.identity import same
from autogemm.store.tables.models import KernelRecord
from autogemm.store.tables.records import (
    BenchCopy,
    BestQuery,
    CeilingsCopy,
    Copy,
    KernelCopy,
    ProfileCopy,
)
from autogemm.store.tables.writing import (
    device_record,
    environment_record,
    kernel_record,
    known_device,
    problem_record,
)
from autogemm.support.errors import NotFoundError

# Those kernels that have not come yet.
Kernels = Callable[[Iterable[KernelRecord | None]], Iterator[KernelCopy]]


def bench_copies(session: Session, query: BestQuery, kernels: Kernels) -> Iterator[Copy]:
    """What matches, oldest first; a benchmark whole, if one of its entries does.

    Ceilings are of a card and of no problem: they match what asks for none.
    """
    for bench_id in session.scalars(select(BenchRecord.id).order_by(BenchRecord.id)).all():
        record = session.get_one(BenchRecord, bench_id)
        bench = bench_of(record)
        spec = bench.spec
        if _is_there(query, spec.device, spec.environment, spec.provenance) and any(
            _is_about(query, entry.problem, entry.config.family if entry.config else None)
            for entry in bench.entries
        ):
            yield from kernels(entry.kernel_source for entry in record.entries)
            yield BenchCopy(bench)
        session.expunge_all()
    for profiled in session.scalars(select(ProfileRecord).order_by(ProfileRecord.id)):
        profile = profile_of(profiled)
        if _is_there(query, profile.device, profile.environment) and _is_about(
            query, profile.problem, profile.config.family
        ):
            yield from kernels([profiled.kernel_source])
            yield ProfileCopy(profile)
    if any((query.size, query.layout, query.dtype, query.family)):
        return
    for found in session.scalars(select(CeilingsRecord).order_by(CeilingsRecord.id)):
        device, environment = device_of(found.device), environment_of(found.environment)
        if _is_there(query, device, environment):
            yield CeilingsCopy(device, environment, ceilings_of(found))


def _is_there(
    query: BestQuery,
    device: Device,
    environment: Environment,
    provenance: Provenance = Provenance.MEASURED,
) -> bool:
    return (
        query.run_id is None
        and (query.gpu or "").casefold() in device.name.casefold()
        and query.provenance in (None, provenance)
        and all(getattr(environment, name).startswith(text) for name, text in query.versions)
    )


def _is_about(query: BestQuery, problem: Problem, family: str | None) -> bool:
    return (
        (query.size is None or Problem.parse_size(query.size) == (problem.m, problem.n, problem.k))
        and query.layout in (None, problem.layout)
        and query.dtype in (None, problem.dtype.label)
        and query.family in (None, family)
    )


def add_bench_copy(session: Session, copy: BenchCopy) -> bool:
    """Whether anything of it is new here: it may have gone on after it was last brought."""
    bench, spec = copy.bench, copy.bench.spec
    device_id, environment_id = _place(session, spec.device, spec.environment)
    there = same(
        BenchRecord,
        device_id=device_id,
        environment_id=environment_id,
        preset=spec.preset,
        started_at=bench.started_at,
    )
    record = session.scalar(select(BenchRecord).where(*there))
    is_new = record is None
    if record is None:
        record = add_bench(session, spec, bench.started_at)
    more = bench.entries[len(record.entries) :]
    add_entries(session, record.id, more, {})
    record.finished_at = record.finished_at or bench.finished_at
    return is_new or bool(more)


def add_profile_copy(session: Session, copy: ProfileCopy) -> bool:
    """Whether it is new here. Raises NotFoundError if its kernel did not come before."""
    profile = copy.profile
    kernel = kernel_record(session, profile.kernel_sha256, None)
    if kernel is None:
        raise NotFoundError(f"kernel {profile.kernel_sha256[:12]} is profiled before it comes")
    device_id, _ = _place(session, profile.device, profile.environment)
    problem = problem_record(session, profile.problem)
    session.flush()
    there = same(
        ProfileRecord,
        kernel_id=kernel.id,
        device_id=device_id,
        problem_id=problem.id,
        made_at=profile.made_at,
    )
    if session.scalar(select(ProfileRecord.id).where(*there)) is not None:
        return False
    add_profile(session, profile, None)
    return True


def add_ceilings_copy(session: Session, copy: CeilingsCopy) -> bool:
    """Whether they are new here."""
    device_id, environment_id = _place(session, copy.device, copy.environment)
    there = same(
        CeilingsRecord,
        device_id=device_id,
        environment_id=environment_id,
        measured_at=copy.ceilings.measured_at,
    )
    if session.scalar(select(CeilingsRecord.id).where(*there)) is not None:
        return False
    add_ceilings(session, known_device(session, copy.device), copy.environment, copy.ceilings)
    return True


def _place(session: Session, device: Device, environment: Environment) -> tuple[int, int]:
    """The numbers that device and environment have here."""
    found = device_record(session, known_device(session, device))
    where = environment_record(session, environment)
    session.flush()
    return found.id, where.id
