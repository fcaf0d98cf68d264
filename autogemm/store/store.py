"""The store as the rest of the program sees it: one method, one transaction."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy import URL, Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.kernel import KernelSource
from autogemm.model.results.benchmark import BenchEntry, BenchSpec
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import Environment, Finals, Outcome, StopRule
from autogemm.model.results.stored import Profile
from autogemm.store import upkeep
from autogemm.store.claims import Claims
from autogemm.store.connection.connect import writer
from autogemm.store.connection.faults import damage_in_one_line
from autogemm.store.queries import benches, certificates
from autogemm.store.queries import runs as queries
from autogemm.store.reader import Given, Reader, Result
from autogemm.store.tables import writing
from autogemm.store.tables.models import RunRecord
from autogemm.store.tables.records import BestQuery, Copy, RunSpec, RunState, Taken
from autogemm.store.transfer.incoming import add_copies
from autogemm.store.transfer.merging import Merged, merge_tables
from autogemm.store.upkeep import Prunable
from autogemm.support.interrupt import ctrl_c_held_back

# How often a transaction is tried that another writer got in the way of.
_ATTEMPTS = 5


class Store(Reader):
    """The tuning database, opened by `open_store`. Threads may share it.

    Every method is one transaction and raises StoreError when the database fails it.
    """

    def __init__(self, address: URL, engine: Engine) -> None:
        super().__init__(address, engine)
        self._writer = writer(engine)
        self._claims = Claims(engine)

    def begin_run(self, spec: RunSpec) -> int:
        """A new run in state ``running``, owned by this process; its id."""
        run_id = self.write(lambda session: writing.add_run(session, spec).id)
        self._claim(run_id)
        return run_id

    def find_unfinished_run(self, spec: RunSpec) -> int | None:
        """The newest run of the same request that was not finished and that no process is writing.

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
        self.write(writing.claim_run, run_id)

    def finish_run(self, run_id: int, state: RunState, stopped_by: StopRule | None = None) -> None:
        """The end of a run (``finished``) or of this attempt at it (``interrupted``).

        ``stopped_by`` is what ended the search, None if nothing did (an error).
        """
        self.write(writing.end_run, run_id, state, stopped_by)
        self._claims.release(run_id)

    def record_trial(
        self, run_id: int, trial_number: int, outcome: Outcome, source: KernelSource | None
    ) -> int:
        """Store one trial; its id. Committed when this returns: a killed process keeps it.

        The same trial again is left as it is. Raises StoreError if that number holds another
        config, NotFoundError if there is no such run, ValueError for a time that is not finite or
        a source that is not the outcome's.
        """
        return self.write(writing.add_trial, run_id, trial_number, outcome, source)

    def record_finals(
        self, run_id: int, finals: Finals, sources: Mapping[str, KernelSource]
    ) -> None:
        """Store finals. ``sources`` by sha256; may lack those that are stored already."""
        self.write(writing.add_finals, run_id, finals, sources)

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
        return self.write(lambda session: benches.add_bench(session, spec).id)

    def record_entries(
        self, bench_id: int, entries: Iterable[BenchEntry], sources: Mapping[str, KernelSource]
    ) -> None:
        """Store entries of a benchmark, behind the others. ``sources`` by sha256."""
        kept = tuple(entries)
        self.write(benches.add_entries, bench_id, kept, sources)

    def finish_bench(self, bench_id: int) -> None:
        """Nothing is missing any more. Raises NotFoundError if there is no such benchmark."""
        self.write(benches.end_bench, bench_id)

    def record_profile(self, profile: Profile, source: KernelSource) -> int:
        """Store a profile with its kernel; the profile's id."""
        return self.write(benches.add_profile, profile, source)

    def record_ceilings(self, device: Device, environment: Environment, found: Ceilings) -> None:
        """Store what a GPU reached."""
        self.write(benches.add_ceilings, device, environment, found)

    def prunable(
        self, query: BestQuery, before: datetime | None = None, *, with_best: bool = False
    ) -> Prunable:
        """The runs that `prune` may take away, see `autogemm.store.upkeep.prunable`."""
        with self.reading() as session:
            return upkeep.prunable(session, query, before, self._is_written, with_best=with_best)

    def prune(self, run_ids: Collection[int]) -> None:
        """Delete runs with all that belongs to them, kernels that no other row needs too."""
        self.write(upkeep.delete_runs, run_ids)

    def merge(self, other: "Store") -> Merged:
        """Add what another database has and this one lacks; all of it or nothing."""
        with other.reading() as source:
            return self.write(
                lambda target: merge_tables(
                    source.connection(), target.connection(), self._written_in(target)
                )
            )

    def vacuum(self) -> tuple[int, int]:
        """Give back the space of deleted rows. Bytes on disk before and after."""
        with damage_in_one_line(self._where, self._engine):
            before = upkeep.size_bytes(self._engine)
            upkeep.vacuum(self._engine)
            return before, upkeep.size_bytes(self._engine)

    def import_copies(
        self, copies: Callable[[], Iterable[Copy]], *, dry_run: bool = False
    ) -> Taken:
        """Add what is not there yet, all or nothing; ``dry_run`` only finds out what that is.

        ``copies`` may be called again, when another writer got in the way. Its exceptions pass
        through, and then nothing is added. Raises StoreError for a trial whose number has another
        config here, NotFoundError for a run that is named before it comes.
        """

        def add(session: Session) -> Taken:
            taken = add_copies(session, copies(), self._written_in(session))
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

    def write(self, work: Callable[[Session, *Given], Result], *given: *Given) -> Result:
        """Do work in one transaction; again where another writer got in its way."""
        with damage_in_one_line(self._where, self._engine):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._transact(work, *given)
                except IntegrityError:
                    # Another writer has just added a row that this one looked for in vain.
                    continue
            return self._transact(work, *given)

    def _is_written(self, run: RunRecord) -> bool:
        if run.state != RunState.RUNNING:
            return False
        if writing.is_written_elsewhere(run.owner) or not self._claims.take(run.id):
            return True
        self._claims.release(run.id)
        return False

    def _written_in(self, session: Session) -> Callable[[int], bool]:
        return lambda run_id: self._is_written(session.get_one(RunRecord, run_id))

    def _claim(self, run_id: int) -> None:
        with damage_in_one_line(self._where, self._engine):
            if not self._claims.take(run_id):
                raise writing.written_elsewhere(run_id)

    def _transact(self, work: Callable[[Session, *Given], Result], *given: *Given) -> Result:
        with (
            ctrl_c_held_back(),
            Session(self._writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            return work(session, *given)
