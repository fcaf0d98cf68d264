"""The questions that the store answers: one method, one transaction that reads."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session

from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import Bench
from autogemm.model.results.outcome import Objective, Outcome, Status
from autogemm.model.results.stored import Profile, StoredKernel
from autogemm.store.connection.connect import shown_address
from autogemm.store.connection.faults import (
    driver_errors_in_one_line,
    reading_faults_in_one_line,
)
from autogemm.store.queries import benches, best, decided
from autogemm.store.queries import runs as queries
from autogemm.store.queries.free_sql import Answer, answer
from autogemm.store.queries.stats import StatsRow, stats_rows
from autogemm.store.tables import records, writing
from autogemm.store.transfer.outgoing import (
    Leaving,
    RunsOrTrials,
    copies,
    leaving,
    runs_and_trials,
)

Result = TypeVar("Result")
Given = TypeVarTuple("Given")

_EVERYTHING = records.BestQuery()


class Reader:
    """An open database, as those see it who ask. Threads may share it.

    Every method raises StoreError when the database fails it.
    """

    def __init__(self, address: URL, engine: Engine) -> None:
        self.url = address.render_as_string(hide_password=False)
        self._address = address
        self._where = shown_address(address)
        self._engine = engine

    def best(self, query: records.BestQuery = _EVERYTHING) -> list[records.ResultRow]:
        """The best kernel for each device, problem, provenance, cache state and fill.

        It is the winner of finals with the highest newest ratio to the baseline in the newest
        environment, or, where there were none, the trial with the smallest median.
        """
        return self._ask(best.best_rows, query)

    def history(
        self, query: records.BestQuery = _EVERYTHING, limit: int | None = None
    ) -> list[records.ResultRow]:
        """As `best`, for each environment; of one place the oldest first. The first ``limit``."""
        return self._ask(best.history_rows, query, limit)

    def stored_kernel(self, what: records.BestQuery | int | str = _EVERYTHING) -> StoredKernel:
        """One kernel with its source, by query, id, or the beginning of its sha256.

        The newest of several results that match a query is taken, measured before recorded.
        Raises NotFoundError when there is none.
        """
        with self.reading() as session:
            if isinstance(what, records.BestQuery):
                return best.best_kernel(session, what)
            if isinstance(what, str):
                what = best.find_kernel_id(session, what)
            return best.kernel_by_id(session, what)

    def runs(
        self, query: records.BestQuery = _EVERYTHING, limit: int | None = None
    ) -> list[records.RunLine]:
        """Runs that match, newest first."""
        return self._ask(lambda session: list(queries.run_lines(session, query, limit)))

    def newest_run(
        self,
        query: records.BestQuery = _EVERYTHING,
        *,
        objectives: Collection[Objective] = tuple(Objective),
        tried: bool = False,
    ) -> records.RunRow | None:
        """The newest run that matches, of these objectives, and with ``tried`` one with trials."""
        with self.reading() as session:
            run_id = queries.newest_run_id(session, query, objectives, tried=tried)
            if run_id is None:
                return None
            return queries.run_row(session, writing.get_run(session, run_id))

    def decided(
        self,
        query: records.BestQuery = _EVERYTHING,
        *,
        run_ids: Collection[int] | None = None,
    ) -> list[records.DecidedRow]:
        """Runs that match and had finals, in the order of their numbers; with ``run_ids`` those.

        Finals are without kernels that failed a check since; a run with no other is left out.
        """
        return self._ask(decided.decided_rows, query, run_ids)

    def decided_runs(
        self, near: Problem | None = None, steps: float = 0.0
    ) -> list[records.DecidedRun]:
        """Runs that had finals, in the order of their numbers, without reading the finals.

        With ``near`` only runs whose extents and element type allow a
        `autogemm.model.similarity.distance` of at most ``steps`` from that problem.
        """
        return self._ask(decided.decided_runs, near, steps)

    def run(self, run_id: int) -> records.RunRow:
        """One run. Raises NotFoundError."""
        with self.reading() as session:
            return queries.run_row(session, writing.get_run(session, run_id))

    def trials(self, run_id: int) -> list[Outcome]:
        """The outcomes of a run in the order of their trial numbers."""
        return self._ask(queries.outcomes, run_id)

    def next_trial_number(self, run_id: int) -> int:
        """The first number after all those that trials of the run have."""
        return self._ask(queries.next_trial_number, run_id)

    def trial_rows(
        self,
        query: records.BestQuery = _EVERYTHING,
        status: Status | None = None,
        limit: int | None = None,
    ) -> list[records.TrialRow]:
        """Trials that match, newest first."""
        return self._ask(queries.trial_rows, query, status, limit)

    def each_trial_row(
        self,
        query: records.BestQuery = _EVERYTHING,
        status: Status | None = None,
        limit: int | None = None,
    ) -> Iterator[records.TrialRow]:
        """The same as `trial_rows`, of any number of trials one after the other."""
        with self.reading() as session:
            yield from queries.each_trial_row(session, query, status, limit)

    def trial(self, trial_id: int) -> records.TrialRow:
        """One trial. Raises NotFoundError."""
        return self._ask(queries.trial_row, trial_id)

    def kernel_trials(self, kernel_id: int) -> list[records.TrialRow]:
        """All trials of one kernel, newest first."""
        return self._ask(queries.kernel_trial_rows, kernel_id)

    def run_times(self, problem: Problem, device: Device, family: str) -> list[records.RunTimes]:
        """Times of every run on that GPU and problem, for comparing configs within a run."""
        return self._ask(queries.run_times, problem, device, family)

    def known_outcome(self, kernel_sha256: str, spec: records.RunSpec) -> Outcome | None:
        """The outcome of this kernel earlier in the same place, if measuring again would repeat it.

        A place is the problem, GPU, environment, provenance, cache state and fill of ``spec``.
        ``ok``, ``compile_failed`` and ``wrong_result`` repeat; other ends may be bad luck.
        """
        return self._ask(queries.known_outcome, kernel_sha256, spec)

    def known_kernels(self, spec: records.RunSpec) -> frozenset[str]:
        """The sha256 of all kernels of which `known_outcome` would give something."""
        return self._ask(queries.known_kernels, spec)

    def stats(self, query: records.BestQuery = _EVERYTHING) -> list[StatsRow]:
        """Counts of the contents for each GPU and provenance."""
        return self._ask(stats_rows, query)

    def sql(self, query: str, *, timeout_s: float, limit: int | None = None) -> Answer:
        """One SELECT of a person's own, see `autogemm.store.queries.free_sql.answer`."""
        with driver_errors_in_one_line(self._where):
            return answer(self._engine, self._address, query, timeout_s=timeout_s, limit=limit)

    def benches(self, limit: int | None = None) -> list[Bench]:
        """Benchmarks, newest first."""
        return self._ask(benches.benches, limit)

    def bench(self, bench_id: int | None = None) -> Bench:
        """One benchmark, the newest if none is named. Raises NotFoundError."""
        return self._ask(benches.bench, bench_id)

    def profiles(self, kernel_sha256: str | None = None, limit: int | None = None) -> list[Profile]:
        """Profiles of one kernel or of all, newest first."""
        return self._ask(benches.profiles, kernel_sha256, limit)

    def ceilings(self, device: Device) -> Ceilings | None:
        """The newest ceilings of a device, None if they were never measured."""
        return self._ask(benches.newest_ceilings, device)

    def copies(
        self, query: records.BestQuery = _EVERYTHING, status: Status | None = None
    ) -> Iterator[records.Copy]:
        """The runs that match with all that belongs to them, one by one, as they are now.

        ``status`` leaves trials out that ended otherwise.
        """
        with self.reading() as session:
            yield from copies(session, query, status)

    def leaving(
        self, query: records.BestQuery = _EVERYTHING, status: Status | None = None
    ) -> Iterator[Leaving]:
        """The same, the trials in columns."""
        with self.reading() as session:
            yield from leaving(session, query, status)

    def runs_and_trials(
        self, query: records.BestQuery = _EVERYTHING, status: Status | None = None
    ) -> Iterator[RunsOrTrials]:
        """Some of the runs that match at a time, and their trials, without sources and finals."""
        with self.reading() as session:
            yield from runs_and_trials(session, query, status)

    def _ask(self, question: Callable[[Session, *Given], Result], *given: *Given) -> Result:
        with self.reading() as session:
            return question(session, *given)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session for the queries of this package, which live in modules of their own."""
        with (
            reading_faults_in_one_line(self._where, self._engine),
            Session(self._engine) as session,
        ):
            yield session
