"""The store as the rest of the program sees it: one method, one transaction."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import URL, Engine
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from autogemm.benchmark import Bench, BenchEntry, BenchSpec
from autogemm.certificate import Certificate
from autogemm.device import Device
from autogemm.errors import StoreError
from autogemm.kernel import KernelSource
from autogemm.outcome import (
    CacheState,
    Environment,
    Fill,
    Finals,
    Outcome,
    Provenance,
    Status,
    StopRule,
)
from autogemm.problem import Problem
from autogemm.profile import Profile
from autogemm.resources import default_database_url
from autogemm.roofline import Ceilings
from autogemm.store import benches, best, certificates, queries, transfer, upkeep, writing
from autogemm.store.claims import Claims
from autogemm.store.connect import (
    connect,
    connect_immutable,
    driver_errors_in_one_line,
    is_sqlite,
    parse_address,
    shown_address,
    writer,
)
from autogemm.store.free_sql import Answer, answer
from autogemm.store.merging import Merged, merge_tables
from autogemm.store.models import RunRecord
from autogemm.store.records import (
    BestQuery,
    Copy,
    DecidedRow,
    ResultRow,
    RunRow,
    RunSpec,
    RunState,
    RunTimes,
    Taken,
    TrialRow,
)
from autogemm.store.schema import create_schema, nothing_there, require_schema
from autogemm.store.stats import StatsRow, stats_rows
from autogemm.store.upkeep import Prunable
from autogemm.stored_kernel import StoredKernel

Result = TypeVar("Result")

_EVERYTHING = BestQuery()

# How often a transaction is tried that another writer got in the way of.
_ATTEMPTS = 5


def open_store(url: str | None = None, *, create: bool = True, timeout_s: float = 60.0) -> "Store":
    """Open the database, by default the one of ``resources.default_database_url()``.

    A bare path is a SQLite file. With ``create`` it must be writable, and is made, with its
    folder, if it is not there; without, nothing is made. An older schema is migrated.
    ``timeout_s`` is how long each write waits for another process's lock.

    Raises NotFoundError (without ``create``) when there is no database, StoreError when it is
    none, is another program's, a newer version's, read-only, locked, or of an unknown kind.
    """
    address = parse_address(default_database_url() if url is None else url)
    where = shown_address(address)
    if is_sqlite(address):
        _prepare_file(Path(str(address.database)), create)
    engine = connect(address, timeout_s)
    try:
        with driver_errors_in_one_line(where):
            if create:
                create_schema(engine, where, timeout_s)
            else:
                engine = _readable(engine, address)
                require_schema(engine, where)
    except BaseException:
        engine.dispose()
        raise
    return Store(address, engine)


def database_place(url: str | None = None) -> str:
    """Where the database is or would be: a path, or a URL without its password."""
    return shown_address(parse_address(default_database_url() if url is None else url))


class Store:
    """The tuning database, opened by `open_store`. Threads may share it.

    Every method is one transaction and raises StoreError when the database fails it.
    """

    def __init__(self, address: URL, engine: Engine) -> None:
        self.url = address.render_as_string(hide_password=False)
        self._address = address
        self._where = shown_address(address)
        self._engine = engine
        self._writer = writer(engine)
        self._claims = Claims(engine)

    def begin_run(self, spec: RunSpec) -> int:
        """A new run in state ``running``, owned by this process; its id."""
        run_id = self.write(lambda session: writing.add_run(session, spec).id)
        self._claim(run_id)
        return run_id

    def find_unfinished_run(self, spec: RunSpec) -> int | None:
        """The newest run of the same request that was not finished and that nobody is writing.

        The same request: all of ``spec`` but its command. Follow with `resume_run`.
        """
        with self.reading() as session:
            for run in queries.unfinished_runs(session, spec):
                if not writing.is_written_elsewhere(run.owner) and self._claims.take(run.id):
                    return run.id
        return None

    def resume_run(self, run_id: int) -> None:
        """Go on with a run: it is ``running`` again, owned by this process.

        Raises StoreError when another process has gone on with it meanwhile.
        """
        self._claim(run_id)
        self.write(lambda session: writing.claim_run(session, run_id))

    def finish_run(self, run_id: int, state: RunState, stopped_by: StopRule | None = None) -> None:
        """The end of a run (``finished``) or of this attempt at it (``interrupted``).

        ``stopped_by`` is what ended the search, None if nothing did (an error).
        """
        self.write(lambda session: writing.end_run(session, run_id, state, stopped_by))
        self._claims.release(run_id)

    def record_trial(
        self, run_id: int, trial_number: int, outcome: Outcome, source: KernelSource | None
    ) -> int:
        """Store one trial; its id. Committed when this returns: a killed process keeps it.

        The same trial again is left as it is. Raises StoreError if that number holds another
        config, NotFoundError if there is no such run, ValueError for a time that is not finite or
        a source that is not the outcome's.
        """
        return self.write(
            lambda session: writing.add_trial(session, run_id, trial_number, outcome, source)
        )

    def record_finals(
        self, run_id: int, finals: Finals, sources: Mapping[str, KernelSource]
    ) -> None:
        """Store finals. ``sources`` by sha256; may lack those that are stored already."""
        self.write(lambda session: writing.add_finals(session, run_id, finals, sources))

    def record_certificate(self, run_id: int, kernel_sha256: str, certificate: Certificate) -> None:
        """Store what was checked of a kernel on the run's device.

        Raises NotFoundError for a kernel or run that is not stored.
        """
        self.write(
            lambda session: certificates.add_certificate(
                session, writing.get_run(session, run_id), kernel_sha256, certificate
            )
        )

    def begin_bench(self, spec: BenchSpec) -> int:
        """A new benchmark; its id."""
        return self.write(lambda session: benches.add_bench(session, spec))

    def record_entries(
        self, bench_id: int, entries: Iterable[BenchEntry], sources: Mapping[str, KernelSource]
    ) -> None:
        """Store entries of a benchmark, behind the others. ``sources`` by sha256."""
        kept = tuple(entries)
        self.write(lambda session: benches.add_entries(session, bench_id, kept, sources))

    def finish_bench(self, bench_id: int) -> None:
        """Nothing is missing any more. Raises NotFoundError if there is no such benchmark."""
        self.write(lambda session: benches.end_bench(session, bench_id))

    def benches(self, limit: int | None = None) -> list[Bench]:
        """Benchmarks, newest first."""
        with self.reading() as session:
            return benches.benches(session, limit)

    def bench(self, bench_id: int | None = None) -> Bench:
        """One benchmark, the newest if none is named. Raises NotFoundError."""
        with self.reading() as session:
            return benches.bench(session, bench_id)

    def record_profile(self, profile: Profile, source: KernelSource) -> int:
        """Store a profile with its kernel; the profile's id."""
        return self.write(lambda session: benches.add_profile(session, profile, source))

    def profiles(self, kernel_sha256: str | None = None, limit: int | None = None) -> list[Profile]:
        """Profiles of one kernel or of all, newest first."""
        with self.reading() as session:
            return benches.profiles(session, kernel_sha256, limit)

    def record_ceilings(self, device: Device, environment: Environment, found: Ceilings) -> None:
        """Store what a card reached."""
        self.write(lambda session: benches.add_ceilings(session, device, environment, found))

    def ceilings(self, device: Device) -> Ceilings | None:
        """The newest ceilings of a device, None if they were never measured."""
        with self.reading() as session:
            return benches.newest_ceilings(session, device)

    def trials(self, run_id: int) -> list[Outcome]:
        """The outcomes of a run in the order of their trial numbers."""
        with self.reading() as session:
            return queries.outcomes(session, run_id)

    def next_trial_number(self, run_id: int) -> int:
        """The first number after all those that trials of the run have."""
        with self.reading() as session:
            return queries.next_trial_number(session, run_id)

    def known_outcome(  # noqa: PLR0913, PLR0917  # a time holds for all of these together
        self,
        kernel_sha256: str,
        problem: Problem,
        device: Device,
        environment: Environment,
        provenance: Provenance,
        l2: CacheState | None = None,
        fill: Fill | None = None,
    ) -> Outcome | None:
        """What this kernel did earlier in the same place, if measuring again would repeat it.

        ``ok``, ``compile_failed`` and ``wrong_result`` repeat; other ends may be bad luck. ``l2``
        and ``fill`` ask for times of one cache state and one kind of inputs only.
        """
        with self.reading() as session:
            where = queries.same_place(problem, device, environment, provenance, l2, fill)
            return queries.known_outcome(session, kernel_sha256, where)

    def known_kernels(  # noqa: PLR0913, PLR0917  # as of `known_outcome`
        self,
        problem: Problem,
        device: Device,
        environment: Environment,
        provenance: Provenance,
        l2: CacheState | None = None,
        fill: Fill | None = None,
    ) -> frozenset[str]:
        """The sha256 of all kernels of which `known_outcome` would give something."""
        with self.reading() as session:
            where = queries.same_place(problem, device, environment, provenance, l2, fill)
            return queries.known_kernels(session, where)

    def best(self, query: BestQuery = _EVERYTHING) -> list[ResultRow]:
        """The best kernel for each device, problem, provenance, cache state and fill.

        It is the winner of finals with the highest ratio to the baseline among those in the newest
        environment, or, where there were none, the trial with the smallest median.
        """
        with self.reading() as session:
            return best.best_rows(session, query)

    def history(self, query: BestQuery = _EVERYTHING) -> list[ResultRow]:
        """As `best`, for each environment; of one place the oldest first."""
        with self.reading() as session:
            return best.history_rows(session, query)

    def stats(self, query: BestQuery = _EVERYTHING) -> list[StatsRow]:
        """How much there is, for each GPU and provenance."""
        with self.reading() as session:
            return stats_rows(session, query)

    def sql(self, query: str, *, timeout_s: float, limit: int | None = None) -> Answer:
        """One SELECT of a person's own, see `autogemm.store.free_sql.answer`."""
        with driver_errors_in_one_line(self._where):
            return answer(self._engine, self._address, query, timeout_s=timeout_s, limit=limit)

    def stored_kernel(self, what: BestQuery | int | str = _EVERYTHING) -> StoredKernel:
        """One kernel with its source, by query, id, or the beginning of its sha256.

        Of several results that match a query the newest is taken, measured before recorded.
        Raises NotFoundError when there is none.
        """
        with self.reading() as session:
            if isinstance(what, BestQuery):
                return best.best_kernel(session, what)
            if isinstance(what, str):
                what = best.find_kernel_id(session, what)
            return best.kernel_by_id(session, what)

    def runs(self, query: BestQuery = _EVERYTHING, limit: int | None = None) -> list[RunRow]:
        """Runs that match, newest first."""
        with self.reading() as session:
            return queries.run_rows(session, query, limit)

    def decided(self, query: BestQuery = _EVERYTHING) -> list[DecidedRow]:
        """Runs that match and had finals, in the order of their numbers."""
        with self.reading() as session:
            return queries.decided_rows(session, query)

    def run(self, run_id: int) -> RunRow:
        """One run. Raises NotFoundError."""
        with self.reading() as session:
            return queries.run_row(session, writing.get_run(session, run_id))

    def trial_rows(
        self,
        query: BestQuery = _EVERYTHING,
        status: Status | None = None,
        limit: int | None = None,
    ) -> list[TrialRow]:
        """Trials that match, newest first."""
        with self.reading() as session:
            return queries.trial_rows(session, query, status, limit)

    def run_times(self, problem: Problem, device: Device, family: str) -> list[RunTimes]:
        """Times of every run on that GPU and problem, for comparing configs within a run."""
        with self.reading() as session:
            return queries.run_times(session, problem, device, family)

    def kernel_trials(self, kernel_id: int) -> list[TrialRow]:
        """All trials of one kernel, newest first."""
        with self.reading() as session:
            return queries.kernel_trial_rows(session, kernel_id)

    def trial(self, trial_id: int) -> TrialRow:
        """One trial. Raises NotFoundError."""
        with self.reading() as session:
            return queries.trial_row(session, trial_id)

    def prunable(
        self, query: BestQuery, before: datetime | None = None, *, with_best: bool = False
    ) -> Prunable:
        """The runs that `prune` may take away, see `autogemm.store.upkeep.prunable`."""
        with self.reading() as session:
            return upkeep.prunable(session, query, before, self._is_written, with_best=with_best)

    def prune(self, run_ids: Collection[int]) -> None:
        """Delete runs with all that belongs to them, kernels that no other row needs too."""
        self.write(lambda session: upkeep.delete_runs(session, run_ids))

    def merge(self, other: "Store") -> Merged:
        """Add what another database has and this one lacks; all of it or nothing."""
        with other.reading() as source:
            return self.write(lambda to: merge_tables(source.connection(), to.connection()))

    def vacuum(self) -> tuple[int, int]:
        """Give back the space of deleted rows. Bytes on disk before and after."""
        with driver_errors_in_one_line(self._where):
            before = upkeep.size_bytes(self._engine)
            upkeep.vacuum(self._engine)
            return before, upkeep.size_bytes(self._engine)

    def copies(
        self, query: BestQuery = _EVERYTHING, status: Status | None = None
    ) -> Iterator[Copy]:
        """The runs that match with all that belongs to them, one by one, as they are now.

        ``status`` leaves trials out that ended otherwise.
        """
        with self.reading() as session:
            yield from transfer.copies(session, query, status)

    def import_copies(
        self, copies: Callable[[], Iterable[Copy]], *, dry_run: bool = False
    ) -> Taken:
        """Add what is not there yet, all or nothing; ``dry_run`` only finds out what that is.

        ``copies`` may be called again, when another writer got in the way. What it raises passes
        through, and nothing is added. Raises StoreError for a trial whose number has another config
        here, NotFoundError for a run that is named before it comes.
        """

        def add(session: Session) -> Taken:
            taken = transfer.add_copies(session, copies())
            if dry_run:
                session.rollback()
            return taken

        return self.write(add)

    def close(self) -> None:
        """Close all connections. May be called twice."""
        self._claims.close()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for the queries of this package, which live in modules of their own."""
        with driver_errors_in_one_line(self._where), Session(self._engine) as session:
            try:
                yield session
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(
                    f"the database {self._where} holds a row that cannot be understood, it is "
                    f"damaged or was edited by hand: {error}"
                ) from error

    def write(self, work: Callable[[Session], Result]) -> Result:
        """One transaction of this package; done again where another writer got in its way."""
        with driver_errors_in_one_line(self._where):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._transact(work)
                except IntegrityError:
                    # Another writer has just added a row that this one looked for in vain.
                    continue
            return self._transact(work)

    def _is_written(self, run: RunRecord) -> bool:
        if run.state != RunState.RUNNING:
            return False
        if writing.is_written_elsewhere(run.owner) or not self._claims.take(run.id):
            return True
        self._claims.release(run.id)
        return False

    def _claim(self, run_id: int) -> None:
        with driver_errors_in_one_line(self._where):
            if not self._claims.take(run_id):
                raise writing.written_elsewhere(run_id)

    def _transact(self, work: Callable[[Session], Result]) -> Result:
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            return work(session)


def _prepare_file(path: Path, create: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give the path of a database file in it")
    if path.exists():
        return
    if not create:
        raise nothing_there(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {path.parent} for the database cannot be made ({error.strerror}): give "
            "another path"
        ) from error


def _readable(engine: Engine, address: URL) -> Engine:
    """The engine, or one that needs no lock files if the file's folder cannot take them."""
    if not is_sqlite(address):
        return engine
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT name FROM sqlite_master").first()
    except OperationalError as error:
        path = Path(str(address.database))
        # With a log beside it the file alone is not the whole database.
        if "readonly" not in str(error.orig) or path.with_name(f"{path.name}-wal").exists():
            raise
        return connect_immutable(path)
    return engine
