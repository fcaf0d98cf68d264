"""The values of a database, one by one: for files, and for another database."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import Environment, Provenance, Status
from autogemm.store.queries.benches import bench_of, profile_of
from autogemm.store.queries.runs import conditions, runs_with_specs
from autogemm.store.tables import records
from autogemm.store.tables.bench_models import BenchRecord, CeilingsRecord, ProfileRecord
from autogemm.store.tables.convert import finals_of, kernel_of, value_of
from autogemm.store.tables.models import (
    CertificateRecord,
    FinalsRecord,
    KernelRecord,
    RunRecord,
)
from autogemm.store.transfer.trials import TrialColumns, TrialReader, by_run

# Runs whose trials come from the database together.
_RUNS = 200

# Yields those kernels that have not come yet.
_Kernels = Callable[[Iterable[KernelRecord | None]], Iterator[records.KernelCopy]]
Leaving = records.Copy | TrialColumns
# Some runs, or trials of the runs before, in one batch those of several runs.
RunsOrTrials = Sequence[records.RunCopy] | TrialColumns


def copies(
    session: Session, query: records.BestQuery, status: Status | None
) -> Iterator[records.Copy]:
    """Yield the runs that match, oldest first, each followed by what belongs to it.

    Then benchmarks, profiles and ceilings, unless ``status`` asks for trials. A kernel comes once,
    before the first that names it.
    """
    for one in leaving(session, query, status):
        if isinstance(one, TrialColumns):
            for number, trial in enumerate(one.copies()):
                if number in one.kernels:
                    yield one.kernels[number]
                yield trial
        else:
            yield one


def leaving(session: Session, query: records.BestQuery, status: Status | None) -> Iterator[Leaving]:
    """Yield the same as `copies`, the trials in columns."""
    seen: set[int] = set()

    def kernels(wanted: Iterable[KernelRecord | None]) -> Iterator[records.KernelCopy]:
        for kernel in wanted:
            if kernel is not None and kernel.id not in seen:
                seen.add(kernel.id)
                yield _kernel(kernel)

    reader = TrialReader(session, query, status)
    each = (_each_with_trials(reader, runs) for runs in _runs(session, query))
    for run, parts in chain.from_iterable(each):
        yield run
        for part in parts:
            yield replace(part, kernels=_new_kernels(session, part, seen))
        for finals in session.scalars(select(FinalsRecord).filter_by(run_id=run.run_id)):
            yield from kernels(entry.kernel for entry in finals.entries)
            yield records.FinalsCopy(run.run_id, finals_of(finals), finals.measured_at)
        certificates = select(CertificateRecord).filter_by(run_id=run.run_id)
        for certificate in session.scalars(certificates.order_by(CertificateRecord.id)):
            kernel = session.get_one(KernelRecord, certificate.kernel_id)
            yield from kernels([kernel])
            made = value_of(Certificate, certificate)
            yield records.CertificateCopy(run.run_id, kernel.kernel_sha256, made)
    if status is None:
        yield from _bench_copies(session, query, kernels)


def runs_and_trials(
    session: Session, query: records.BestQuery, status: Status | None
) -> Iterator[RunsOrTrials]:
    """Yield some of the runs that match, oldest first, then their trials, without sources."""
    reader = TrialReader(session, query, status)
    for runs in _runs(session, query):
        yield runs
        yield from reader.batches([run.run_id for run in runs])


def _kernel(kernel: KernelRecord) -> records.KernelCopy:
    return records.KernelCopy(kernel.kernel_sha256, kernel_of(kernel), kernel.created_at)


def _runs(session: Session, query: records.BestQuery) -> Iterator[list[records.RunCopy]]:
    """Yield some runs at a time; what was read of them is forgotten before the next."""
    ids = session.scalars(select(RunRecord.id).where(*conditions(query)).order_by(RunRecord.id))
    rest = iter(ids.all())
    while some := list(islice(rest, _RUNS)):
        yield [
            value_of(records.RunCopy, run, record="run", run_id=run.id, spec=spec)
            for run, spec in runs_with_specs(session, some)
        ]
        session.expunge_all()


def _each_with_trials(
    reader: TrialReader, runs: Sequence[records.RunCopy]
) -> Iterator[tuple[records.RunCopy, Iterator[TrialColumns]]]:
    """Yield each run and its trials."""
    found = by_run(reader.batches([run.run_id for run in runs]))
    run_id, parts = next(found, (None, iter(())))
    for run in runs:
        if run.run_id == run_id:
            yield run, parts
            run_id, parts = next(found, (None, iter(())))
        else:
            yield run, iter(())


def _new_kernels(
    session: Session, part: TrialColumns, seen: set[int]
) -> dict[int, records.KernelCopy]:
    """The kernels that this part is the first to name, by the position of the trial."""
    first: dict[int, int] = {}
    for position, kernel_id in enumerate(part.cells["kernel_id"]):
        if kernel_id is not None and kernel_id not in seen:
            seen.add(kernel_id)
            first[kernel_id] = position
    if not first:
        return {}
    statement = select(KernelRecord).where(KernelRecord.id.in_(first))
    found = session.scalars(statement.options(undefer(KernelRecord.source)))
    return {first[kernel.id]: _kernel(kernel) for kernel in found}


def _bench_copies(
    session: Session, query: records.BestQuery, kernels: _Kernels
) -> Iterator[records.Copy]:
    """Yield what matches, oldest first; a benchmark whole, if one of its entries does.

    Ceilings belong to a GPU and to no problem: they match queries without one.
    """
    for bench_id in session.scalars(select(BenchRecord.id).order_by(BenchRecord.id)).all():
        record = session.get_one(BenchRecord, bench_id)
        bench = bench_of(record)
        spec = bench.spec
        if _is_there(query, spec.device, spec.environment, spec.provenance) and any(
            query.is_about(entry.problem, entry.config.family if entry.config else None)
            for entry in bench.entries
        ):
            yield from kernels(entry.kernel_source for entry in record.entries)
            yield records.BenchCopy(bench)
        session.expunge_all()
    for profiled in session.scalars(select(ProfileRecord).order_by(ProfileRecord.id)):
        profile = profile_of(profiled)
        if _is_there(query, profile.device, profile.environment) and query.is_about(
            profile.problem, profile.config.family
        ):
            yield from kernels([profiled.kernel_source])
            yield records.ProfileCopy(profile)
    about = (query.size, query.layout, query.dtype, query.epilogue, query.batch, query.groups)
    if any((*about, query.family)):
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
