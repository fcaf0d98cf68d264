"""The values of a database, one by one: for files, and for another database."""

from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, lazyload, undefer

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import Environment, Provenance, Status
from autogemm.store.queries.benches import bench_of, profile_of
from autogemm.store.queries.runs import conditions
from autogemm.store.tables import records
from autogemm.store.tables.bench_models import BenchRecord, CeilingsRecord, ProfileRecord
from autogemm.store.tables.convert import finals_of, kernel_of, outcome_of, spec_of, value_of
from autogemm.store.tables.models import (
    CertificateRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
    TrialRecord,
)

# Trials that come from the database together.
_BATCH = 1000

# Yields those kernels that have not come yet.
_Kernels = Callable[[Iterable[KernelRecord | None]], Iterator[records.KernelCopy]]


def copies(
    session: Session, query: records.BestQuery, status: Status | None
) -> Iterator[records.Copy]:
    """Yield the runs that match, oldest first, each followed by what belongs to it.

    Then benchmarks, profiles and ceilings, unless ``status`` asks for trials. A kernel comes once,
    before the first that names it.
    """
    seen: set[int] = set()

    def kernels(wanted: Iterable[KernelRecord | None]) -> Iterator[records.KernelCopy]:
        for kernel in wanted:
            if kernel is not None and kernel.id not in seen:
                seen.add(kernel.id)
                yield records.KernelCopy(kernel.kernel_sha256, kernel_of(kernel), kernel.created_at)

    runs = select(RunRecord).where(*conditions(query)).order_by(RunRecord.id)
    for run in session.scalars(runs).all():
        yield value_of(records.RunCopy, run, record="run", run_id=run.id, spec=spec_of(run))
        for trial in _trials(session, run.id, query, status):
            yield from kernels([trial.kernel])
            yield records.TrialCopy(run.id, trial.number, outcome_of(trial), trial.finished_at)
        for finals in session.scalars(select(FinalsRecord).filter_by(run_id=run.id)):
            yield from kernels(entry.kernel for entry in finals.entries)
            yield records.FinalsCopy(run.id, finals_of(finals), finals.measured_at)
        certificates = select(CertificateRecord).filter_by(run_id=run.id)
        for certificate in session.scalars(certificates.order_by(CertificateRecord.id)):
            kernel = session.get_one(KernelRecord, certificate.kernel_id)
            yield from kernels([kernel])
            made = value_of(Certificate, certificate)
            yield records.CertificateCopy(run.id, kernel.kernel_sha256, made)
        session.expunge_all()
    if status is None:
        yield from _bench_copies(session, query, kernels)


def _trials(
    session: Session, run_id: int, query: records.BestQuery, status: Status | None
) -> Iterator[TrialRecord]:
    statement = (
        select(TrialRecord)
        .filter_by(run_id=run_id)
        .options(
            lazyload(TrialRecord.run),
            joinedload(TrialRecord.kernel).options(undefer(KernelRecord.source)),
        )
        .order_by(TrialRecord.number)
        .execution_options(yield_per=_BATCH)
    )
    if query.family is not None:
        statement = statement.where(TrialRecord.family == query.family)
    if status is not None:
        statement = statement.where(TrialRecord.status == status.value)
    return iter(session.scalars(statement))


def _bench_copies(
    session: Session, query: records.BestQuery, kernels: _Kernels
) -> Iterator[records.Copy]:
    """Yield what matches, oldest first; a benchmark whole, if one of its entries does.

    Ceilings are of a GPU and of no problem: they match what asks for none.
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
            yield records.BenchCopy(bench)
        session.expunge_all()
    for profiled in session.scalars(select(ProfileRecord).order_by(ProfileRecord.id)):
        profile = profile_of(profiled)
        if _is_there(query, profile.device, profile.environment) and _is_about(
            query, profile.problem, profile.config.family
        ):
            yield from kernels([profiled.kernel_source])
            yield records.ProfileCopy(profile)
    if any((query.size, query.layout, query.dtype, query.family)):
        return
    for found in session.scalars(select(CeilingsRecord).order_by(CeilingsRecord.id)):
        ceilings = value_of(Ceilings, found)
        copy = value_of(records.CeilingsCopy, found, record="ceilings", ceilings=ceilings)
        if _is_there(query, copy.device, copy.environment):
            yield copy


def _is_there(
    query: records.BestQuery,
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


def _is_about(query: records.BestQuery, problem: Problem, family: str | None) -> bool:
    return (
        (query.size is None or Problem.parse_size(query.size) == (problem.m, problem.n, problem.k))
        and query.layout in (None, problem.layout)
        and query.dtype in (None, problem.dtype.label)
        and query.family in (None, family)
    )
