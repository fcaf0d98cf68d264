"""Deletes runs, and gives back the space that they leave."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Engine, MetaData, Table, delete, func, inspect, select
from sqlalchemy.orm import Session

from autogemm.model.results.certificate import Verdict
from autogemm.store.queries.runs import conditions, in_chunks
from autogemm.store.queries.timings import best_places
from autogemm.store.tables.bench_models import BenchRecord
from autogemm.store.tables.models import CertificateRecord, RunRecord, TrialRecord
from autogemm.store.tables.records import BestQuery

# Rows that several others share, and that go with the last of them; kernels first, then what a run
# is made of.
_SHARED = ("kernels", "problems", "devices", "environments")


@dataclass(frozen=True, slots=True)
class Prunable:
    """Runs that may go, with their trials; and those that match but are kept, with the reason."""

    run_ids: tuple[int, ...]
    num_trials: int
    kept: tuple[tuple[int, str], ...]


def prunable(
    session: Session,
    query: BestQuery,
    before: datetime | None,
    is_written: Callable[[RunRecord], bool],
    *,
    with_best: bool,
) -> Prunable:
    """The runs that match and began ``before``.

    Kept are those that a process is writing, those with a certificate that failed (the kernel would
    pass for a good one), and, unless ``with_best``, those that hold the best kernel of a place.
    """
    wanted = conditions(query)
    if before is not None:
        wanted.append(RunRecord.started_at < before)
    matching = session.scalars(select(RunRecord).where(*wanted).order_by(RunRecord.id)).all()
    best = set() if with_best else {one.run_id for one in best_places(session, BestQuery())}
    failed = select(CertificateRecord.run_id).filter_by(verdict=Verdict.FAILED.value)
    with_failures = set(session.scalars(failed))
    reasons = {
        **dict.fromkeys(best, "holds the best kernel of a GPU and problem"),
        **dict.fromkeys(with_failures, "holds a certificate that failed"),
        **{run.id: "is being written" for run in matching if is_written(run)},
    }
    going = tuple(run.id for run in matching if run.id not in reasons)
    count = select(func.count()).select_from(TrialRecord)
    counts = (session.scalar(count.where(TrialRecord.run_id.in_(ids))) for ids in in_chunks(going))
    kept = tuple((run.id, reasons[run.id]) for run in matching if run.id in reasons)
    return Prunable(going, sum(number or 0 for number in counts), kept)


def delete_runs(session: Session, run_ids: Collection[int]) -> None:
    """Delete runs with all that belongs to them, kernels left over, and Optuna's studies."""
    metadata = BenchRecord.metadata
    for ids in in_chunks(run_ids):
        _delete(session, metadata, metadata.tables["runs"], RunRecord.__table__.c.id.in_(ids))
    for name in _SHARED:
        table = metadata.tables[name]
        session.execute(delete(table).where(*_unreferenced(metadata, table)))
    _delete_studies(session, run_ids)


def _delete(session: Session, metadata: MetaData, table: Table, which: ColumnElement[bool]) -> None:
    """Rows, and before them those of other tables that refer to them."""
    for other in metadata.tables.values():
        for key in other.foreign_keys:
            if key.column.table is table:
                chosen = select(key.column).where(which)
                _delete(session, metadata, other, key.parent.in_(chosen))
    session.execute(delete(table).where(which))


def _unreferenced(metadata: MetaData, table: Table) -> list[ColumnElement[bool]]:
    return [
        ~select(key.parent).where(key.parent == key.column).exists()
        for other in metadata.tables.values()
        for key in other.foreign_keys
        if key.column.table is table
    ]


def _delete_studies(session: Session, run_ids: Iterable[int]) -> None:
    """Delete studies of versions before 0.2, whose tables are in no model of ours."""
    connection = session.connection()
    if not inspect(connection).has_table("studies"):
        return
    theirs = MetaData()
    theirs.reflect(connection, only=lambda name, _: name not in BenchRecord.metadata.tables)
    studies = theirs.tables["studies"]
    for run_id in run_ids:
        _delete(session, theirs, studies, studies.c.study_name.startswith(f"run {run_id}: "))


def size_bytes(engine: Engine) -> int:
    """Size of the database on disk, without its log."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            return int(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one())
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())")
        return int(size.scalar_one())


def vacuum(engine: Engine) -> None:
    """Give back the space of deleted rows, and count anew what is in the tables."""
    if engine.dialect.name == "sqlite":
        statements = ["VACUUM", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"]
        outside = engine.execution_options(autogemm_begin=None)
    else:
        statements = ["VACUUM ANALYZE"]
        outside = engine.execution_options(isolation_level="AUTOCOMMIT")
    with outside.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
