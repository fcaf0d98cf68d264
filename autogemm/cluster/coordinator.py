"""Hands problems to workers, stores their results, and survives the loss of a worker."""

import tempfile
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from autogemm.cluster.files import remove, take_run
from autogemm.cluster.helped import needs_dask
from autogemm.cluster.history import history_of, parts_folder, recovered
from autogemm.cluster.messages import AHEAD, Done, Place, Spread, Work
from autogemm.cluster.request import ClusterRequest
from autogemm.model.problem import Problem
from autogemm.store import DecidedRow, DecidedRun, Store, database_place
from autogemm.support.errors import ClusterError
from autogemm.support.interrupt import stop_on_ctrl_c
from autogemm.support.version import __version__
from autogemm.tuning import Event, Sweep, Swept, TuneRequest, known_row

if TYPE_CHECKING:
    from autogemm.cluster.crew import Crew

# How often workers are counted, and Ctrl-C is checked.
TICK_S = 0.25
# How long searches may take to end after Ctrl-C: a candidate, or finals that have begun.
END_S = 30.0
# A worker that fails at so many problems one after the other is given up, and so is a problem at
# which so many workers fail.
MOST_STRIKES = 2
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Listener:
    """Listens to the events of a sweep. ``on_event`` is called from another thread, with the name
    of the worker; ``on_swept`` with a problem that is done, by which worker (empty: known before),
    and how many are.
    """

    on_event: Callable[[str, Problem, Event], None]
    on_swept: Callable[[Swept, str, int], None]
    on_notice: Callable[[str], None]


def tune_over(
    requests: Sequence[TuneRequest],
    cluster: ClusterRequest,
    store: Store,
    db: str | None,
    listener: Listener,
) -> Spread:
    """Tune each request on one of the workers, the longest first, and store all in one database.

    Only this process writes to a SQLite database ``db``; workers write to a database server
    themselves. A request that already has a result on the GPU model of one of the workers is not
    tuned again. A problem whose worker dies goes to another one. Ctrl-C ends all searches; the
    workers are ended by a second one, or if they take too long. Without workers the sweep ends
    early with a failure.

    Raises ClusterError without Dask, without a scheduler, or if no worker can work at all, and what
    `autogemm.targets.several_gpus` raises.
    """
    try:
        from autogemm.cluster.crew import opened_crew
    except ImportError as error:
        raise needs_dask("tuning on several GPUs") from error
    place = database_place(db)
    is_server = "://" in place
    path = None if is_server or not Path(place).is_absolute() else Path(place)
    session = uuid.uuid4().hex[:12]
    with ExitStack() as stack:
        if path is not None:
            stack.callback(recovered, store, path)
            recovered(store, path)
        folder = None
        if path is not None and not cluster.is_running:
            folder = str(stack.enter_context(parts_folder(path, session)))
        crew = stack.enter_context(opened_crew(cluster, session))
        url = store.url if is_server else None
        where = _Where(session, url, folder, cluster.compilers)
        parts = _Parts(crew, store, where, listener, cluster.patience_s)
        return _Coordinator(parts, requests).run()


@dataclass(frozen=True, slots=True)
class _Where:
    """The session, the place where its workers write, and who compiles for them."""

    session: str
    database: str | None
    folder: str | None
    compilers: str | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """The workers that a coordinator hands problems to."""

    crew: "Crew"
    store: Store
    where: _Where
    listener: Listener
    patience_s: float


@dataclass(slots=True)
class _State:
    """The problems by their numbers, which are their positions in the request."""

    waiting: deque[int] = field(default_factory=deque)
    running: dict[Any, int] = field(default_factory=dict)
    swept: dict[int, Swept] = field(default_factory=dict)
    failed_at: dict[int, list[str]] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    strikes: Counter[str] = field(default_factory=Counter)
    places: dict[str, Place] = field(default_factory=dict)
    interrupted: bool = False


class _Coordinator:
    """One call of `tune_over`, once the workers are there."""

    def __init__(self, parts: _Parts, requests: Sequence[TuneRequest]) -> None:
        self._crew, self._store, self._where = parts.crew, parts.store, parts.where
        self._listener, self._patience_s = parts.listener, parts.patience_s
        self._requests = requests
        self._state = _State()
        # The runs that had finals, of which the nearest to a problem go with it.
        self._decided = self._store.decided_runs()
        self._finished: SimpleQueue[Any] = SimpleQueue()
        self._num_workers = 0
        self._alone_since: float | None = None

    def run(self) -> Spread:
        """Hand out all problems, and wait for their results."""
        state, failure = self._state, ""
        self._crew.listen(self._on_event)
        self._meet_workers()
        by_size = sorted(range(len(self._requests)), key=self._flops, reverse=True)
        known = self._known_rows()
        state.waiting.extend(n for n in by_size if not self._is_known(n, known))
        try:
            with stop_on_ctrl_c() as stop:
                self._work(stop.is_set)
                state.interrupted = stop.is_set()
        except KeyboardInterrupt:
            state.interrupted = True
        except ClusterError as error:
            failure = str(error)
        swept = tuple(state.swept[number] for number in sorted(state.swept))
        places = tuple(state.places[name] for name in sorted(state.places))
        if failure:
            left = len(self._requests) - len(swept)
            failure += (
                f"; problems left: {left} of {len(self._requests)}, with which the same command "
                "goes on"
            )
        return Spread(Sweep(swept, state.interrupted), places, failure)

    def _work(self, is_stopped: Callable[[], bool]) -> None:
        """Run until nothing is left, or until the searches have ended after Ctrl-C."""
        state = self._state
        ends_at: float | None = None
        self._look()
        self._hand_out()
        while state.running or (state.waiting and ends_at is None):
            if is_stopped():
                if ends_at is None:
                    ends_at = time.monotonic() + END_S
                    self._crew.press_ctrl_c()
                if time.monotonic() > ends_at:
                    return
            future = self._next_finished()
            if future is None:
                self._look()
            else:
                done = self._crew.result(future, state.running.pop(future))
                self._judge(done)
            if ends_at is None and not is_stopped():
                # The worker that is free goes on while this process stores.
                self._hand_out()
            if future is not None and done.swept is not None:
                self._keep(done, done.swept)

    def _next_finished(self) -> Any | None:
        try:
            return self._finished.get(timeout=TICK_S)
        except Empty:
            return None

    def _meet_workers(self) -> None:
        """Dismiss workers that cannot work. Raises ClusterError if none is left."""
        deadline = time.monotonic() + self._patience_s
        while not (found := self._crew.places()):
            if time.monotonic() > deadline:
                raise ClusterError("the scheduler has no workers: start some and try again")
            time.sleep(TICK_S)
        faults = {}
        for name, place in sorted(found.items()):
            fault = place if isinstance(place, str) else _misfit(place)
            if fault or isinstance(place, str):
                faults[name] = fault
            else:
                self._state.places[name] = place
        if not self._state.places:
            raise ClusterError(f"all workers fail: {_first(faults)}")
        for name, fault in faults.items():
            self._send_away(name, fault)

    def _flops(self, number: int) -> int:
        return self._requests[number].problem.flops

    def _known_rows(self) -> Mapping[Problem, Sequence[DecidedRow]]:
        """The results that there are for the problems."""
        asked = {request.problem for request in self._requests if not request.fresh}
        run_ids = [run.run_id for run in self._decided if run.problem in asked]
        rows: dict[Problem, list[DecidedRow]] = {}
        for row in self._store.decided(run_ids=run_ids):
            rows.setdefault(row.spec.problem, []).append(row)
        return rows

    def _is_known(self, number: int, known: Mapping[Problem, Sequence[DecidedRow]]) -> bool:
        """Whether the problem has a result already, which is then reported."""
        request = self._requests[number]
        if request.fresh:
            return False
        for place in dict.fromkeys(self._state.places.values()):
            row = known_row(request, place, None, known.get(request.problem, ()))
            if row is not None:
                swept = Swept(request.problem, row.run_id, row.finals, is_known=True)
                self._tell(number, swept, "")
                return True
        return False

    def _look(self) -> None:
        """Count the workers. Raises ClusterError where there were none for too long."""
        self._num_workers = len(self._crew.names())
        if self._num_workers:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > self._patience_s:
            raise ClusterError("all workers are lost")

    def _hand_out(self) -> None:
        """Give each worker a problem and the next one, so that its GPU is never idle."""
        state = self._state
        while state.waiting and len(state.running) < AHEAD * self._num_workers:
            number = state.waiting.popleft()
            state.attempts[number] += 1
            work = Work(
                self._where.session,
                number,
                self._requests[number],
                self._where.database,
                self._where.folder,
                self._history(number),
                self._where.compilers,
                self._num_workers,
            )
            future = self._crew.submit(
                work,
                state.attempts[number],
                state.failed_at.get(number, ()),
                self._finished.put,
            )
            state.running[future] = number

    def _history(self, number: int) -> tuple[Any, ...]:
        if self._where.database is not None:
            return ()
        devices = [place.device for place in self._state.places.values()]
        request = self._requests[number]
        return history_of(self._store, request, self._decided, list(dict.fromkeys(devices)))

    def _judge(self, done: Done) -> None:
        """Give up a worker that always fails, and hand a problem that failed to another one."""
        state = self._state
        if not done.error:
            state.strikes[done.worker] = 0
            if done.place is not None:
                state.places[done.worker] = done.place
            return
        failed_at = state.failed_at.setdefault(done.number, [])
        failed_at.append(done.worker)
        state.strikes[done.worker] += 1
        if done.worker and state.strikes[done.worker] >= MOST_STRIKES:
            self._send_away(done.worker, done.error)
        if not done.worker or len(failed_at) >= MOST_ATTEMPTS:
            problem = self._requests[done.number].problem
            self._tell(done.number, Swept(problem, reason=done.error), done.worker)
        else:
            state.waiting.appendleft(done.number)

    def _send_away(self, name: str, why: str) -> None:
        self._listener.on_notice(f"{label(name)} is given up: {why}")
        self._crew.send_away(name)
        self._look()
        if not self._num_workers:
            raise ClusterError(f"no worker is left, the last one gave up: {why}")

    def _keep(self, done: Done, swept: Swept) -> None:
        """Store a worker's result, and report it to the listener."""
        if done.file and swept.run_id is not None:
            swept = replace(swept, run_id=self._taken(done, swept.run_id))
        if self._where.database is None and done.place is not None:
            self._note(done.number, swept, done.place)
        self._tell(done.number, swept, done.worker)

    def _note(self, number: int, swept: Swept, place: Place) -> None:
        """Let the result go with problems like it; workers with a server ask that themselves."""
        if swept.run_id is not None and swept.finals is not None:
            objective = self._requests[number].measure.objective
            self._decided.append(DecidedRun(swept.run_id, swept.problem, place.device, objective))

    def _taken(self, done: Done, run_id: int) -> int:
        """Bring a run from the file of a worker into the database; its number here."""
        if self._where.folder is not None:
            path = Path(self._where.folder) / done.file
            number = take_run(self._store, path, run_id)
            remove(path)
            return number
        with tempfile.TemporaryDirectory(prefix="autogemm-") as folder:
            path = Path(folder) / done.file
            path.write_bytes(done.content)
            return take_run(self._store, path, run_id)

    def _tell(self, number: int, swept: Swept, worker: str) -> None:
        self._state.swept[number] = swept
        self._listener.on_swept(swept, worker, len(self._state.swept))

    def _on_event(self, worker: str, number: int, event: Event) -> None:
        self._listener.on_event(worker, self._requests[number].problem, event)


def label(worker: str) -> str:
    """A worker's name for people: processes for GPUs of this machine have their numbers."""
    return f"GPU {worker}" if worker.isdecimal() else f"worker {worker}"


def _misfit(place: Place) -> str:
    if place.version == __version__:
        return ""
    return f"it has autogemm {place.version}, and this is {__version__}"


def _first(faults: dict[str, str]) -> str:
    name, fault = next(iter(faults.items()))
    return f"{label(name)}: {fault}"
