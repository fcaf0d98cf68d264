"""The code of a worker process, which tunes one problem after the other on one GPU."""

import asyncio
import contextlib
import os
import pickle
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distributed import get_worker

from autogemm.cluster.compiling import PATIENCE_S, opened_compilers
from autogemm.cluster.files import copy_blank, take_over
from autogemm.cluster.messages import Done, Place, Work
from autogemm.compile import Compiler
from autogemm.store import Store, open_store
from autogemm.support.errors import AutogemmError, ClusterError
from autogemm.support.interrupt import RemoteCtrlC
from autogemm.targets import Target
from autogemm.tuning import (
    Begun,
    Event,
    FinalsRound,
    Sweeper,
    TrialDone,
    TuneRequest,
    environment_of,
    open_target,
)

# Set for worker processes of this machine: the GPU's number, and cores as 0,1,2.
GPU_VARIABLE = "AUTOGEMM_WORKER_GPU"
CORES_VARIABLE = "AUTOGEMM_WORKER_CORES"
# Seconds between two trials, or rounds of finals, that are reported.
TELL_EVERY_S = 0.5
# By these Dask looks at the stacks of a busy worker a hundred times a second, and at the delay of
# its loop fifty times; both together take 3% of a core, beside a GPU that is being timed.
_LOOKS = ("profile", "tick")
_LOOK_EVERY_MS = 1000.0


@dataclass(frozen=True, slots=True)
class _Gpu:
    """The open target of this process; it serves all problems."""

    target: Target
    compiler: Compiler | None
    stack: ExitStack
    place: Place


@dataclass(frozen=True, slots=True)
class _Server:
    """The open database of a session whose results are on a server."""

    session: str
    store: Store


_lock = threading.Lock()
# Problems in the order in which they came: the first is at work, however many threads the worker
# has; of the second begins what needs no GPU.
_line: dict[str, Work | None] = {}
_moved = threading.Condition()
_begun = Begun()
_gpu: _Gpu | None = None
_server: _Server | None = None
_pressed: dict[str, RemoteCtrlC] = {}


async def describe() -> Place | str:
    """Return the place of this worker, or in one line why it cannot work."""
    return await asyncio.to_thread(_described)


def press_ctrl_c(session: str) -> None:
    """End the search that goes on for a session after the candidate on the GPU."""
    _pressed.setdefault(session, RemoteCtrlC()).press()


def forget(session: str) -> None:
    """Delete the files on this machine of a session that is over, and leave its database."""
    _pressed.pop(session, None)
    # While another session has a problem here, its database has taken the place already.
    with _moved:
        if not _line:
            _begun.close()
            if _server is not None and _server.session == session:
                _leave_server()
    shutil.rmtree(_own_folder(session), ignore_errors=True)


def tune_one(packed: bytes) -> Done:
    """Tune the problem of a pickled `Work`. Errors of this worker itself are in the answer."""
    with _turn(packed) as work, _rarely_looked_at():
        # The program may have ended while this waited for its turn.
        return _answer(work) if _is_wanted() else Done(work.number, "")


@contextlib.contextmanager
def _turn(packed: bytes) -> Iterator[Work]:
    """Stand in line, and yield the work when all before it is done."""
    ticket = uuid.uuid4().hex
    with _moved:
        _line[ticket] = None
    try:
        _line[ticket] = work = pickle.loads(packed)
        with _moved:
            _moved.wait_for(lambda: next(iter(_line)) == ticket)
        yield work
    finally:
        with _moved:
            del _line[ticket]
            _moved.notify_all()


def _is_wanted() -> bool:
    """Whether anybody waits for what this thread is to do."""
    dask: Any = get_worker()
    task = dask.state.tasks.get(dask.get_current_task())
    return task is not None and task.state != "cancelled"


def _following() -> TuneRequest | None:
    """The request behind the one that is at work."""
    with _moved:
        _, work = [*_line.values(), None, None][:2]
    return work.request if work is not None else None


@contextlib.contextmanager
def _rarely_looked_at() -> Iterator[None]:
    """Have Dask look at this process once a second only."""
    callbacks: dict[str, Any] = get_worker().periodic_callbacks
    # A worker may be configured to have no profile.
    looks = {name: callbacks[name] for name in _LOOKS if name in callbacks}
    usual = {name: look.callback_time for name, look in looks.items()}
    for look in looks.values():
        look.callback_time = max(look.callback_time, _LOOK_EVERY_MS)
    try:
        yield
    finally:
        for name, look in looks.items():
            look.callback_time = usual[name]


def _answer(work: Work) -> Done:
    worker = str(get_worker().name)
    remote = _pressed.setdefault(work.session, RemoteCtrlC())
    if remote.pressed:
        _begun.close()
        return Done(work.number, worker)
    try:
        gpu = _opened()
        with remote.heeding(), _helped(gpu, work):
            if work.database is not None:
                return _tuned(work, worker, gpu, _store_of(work.session, work.database))
            return _tuned_in_file(work, worker, gpu)
    except AutogemmError as error:
        _close_gpu()
        _leave_server()
        return Done(work.number, worker, error=str(error))


@contextlib.contextmanager
def _helped(gpu: _Gpu, work: Work) -> Iterator[None]:
    """Have others compile for this problem, too, if they are there."""
    if gpu.compiler is None or work.compilers is None:
        yield
        return
    with ExitStack() as stack:
        # Without them this machine compiles alone.
        with contextlib.suppress(ClusterError):
            opening = opened_compilers(work.compilers, work.sharers, PATIENCE_S)
            gpu.compiler.use(stack.enter_context(opening))
            stack.callback(gpu.compiler.use, None)
        yield


def _store_of(session: str, url: str) -> Store:
    """The server's database, opened once for all problems of a session.

    Connecting and comparing its tables takes longer than storing a result. The caller is at work.
    """
    global _server  # noqa: PLW0603
    if _server is None or _server.session != session:
        _leave_server()
        _server = _Server(session, open_store(url))
    return _server.store


def _leave_server() -> None:
    global _server  # noqa: PLW0603
    if _server is not None:
        with contextlib.suppress(AutogemmError):
            _server.store.close()
    _server = None


def _tuned(work: Work, worker: str, gpu: _Gpu, store: Store) -> Done:
    tell = _Telling(work, worker)
    sweeper = Sweeper(
        gpu.target,
        gpu.compiler,
        store,
        on_step=lambda step: tell.on_event,
        on_swept=lambda swept: None,
        following=_following,
        begun=_begun,
    )
    (swept,) = sweeper.run([work.request]).problems
    return Done(work.number, worker, gpu.place, swept)


def _tuned_in_file(work: Work, worker: str, gpu: _Gpu) -> Done:
    """Tune with a database of the problem's own.

    A worker that died at the same problem left its file: the run goes on from there, and is not
    begun anew.
    """
    folder = Path(work.folder) if work.folder is not None else _own_folder(work.session)
    folder.mkdir(parents=True, exist_ok=True)
    left = sorted(folder.glob(f"{work.number}-*.db"))
    own = folder / f"{work.number}-{uuid.uuid4().hex}.db"
    copy_blank(own)
    with open_store(str(own)) as store:
        store.import_copies(lambda: work.history)
        if sum(take_over(store, path) for path in left):
            work = replace(work, request=replace(work.request, fresh=False))
        done = _tuned(work, worker, gpu, store)
    if work.folder is not None:
        return replace(done, file=own.name)
    content = own.read_bytes()
    return replace(done, file=own.name, content=content)


class _Telling:
    """Sends events of a search to the coordinator; of trials and rounds only some."""

    def __init__(self, work: Work, worker: str) -> None:
        self._dask: Any = get_worker()
        # Dask adds its own ``worker``, an address.
        self._topic, self._about = work.session, {"name": worker, "number": work.number}
        self._told_at = 0.0

    def on_event(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, TrialDone | FinalsRound):
            if now - self._told_at < TELL_EVERY_S:
                return
            self._told_at = now
        self._dask.log_event(self._topic, {**self._about, "event": pickle.dumps(event)})


def _described() -> Place | str:
    try:
        return _opened().place
    except AutogemmError as error:
        return str(error)


def _opened() -> _Gpu:
    """Open the GPU, once. Raises what `open_target` raises."""
    global _gpu  # noqa: PLW0603  # one GPU for each process
    with _lock:
        if _gpu is None:
            if cores := os.environ.get(CORES_VARIABLE):
                _stay_on([int(core) for core in cores.split(",")])
            with ExitStack() as stack:
                # No notice names the attached GPU, and no recording replaces a missing one.
                gpu = os.environ.get(GPU_VARIABLE, "auto")
                chosen, compiler = open_target(stack, gpu, (), True, notify=lambda notice: None)
                target = chosen.target
                environment = environment_of(target, compiler)
                place = Place(target.device, environment, target.provenance)
                _gpu = _Gpu(target, compiler, stack.pop_all(), place)
        return _gpu


def _stay_on(cores: list[int]) -> None:
    """Have all threads of this process, and those and processes that they start, on these cores.

    The compiler starts as many processes as it may use cores.
    """
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread.name), cores)


def _close_gpu() -> None:
    """Close the GPU: the next problem opens it anew."""
    global _gpu  # noqa: PLW0603
    _begun.close()
    with _lock, contextlib.suppress(AutogemmError):
        if _gpu is not None:
            _gpu.stack.close()
        _gpu = None


def _own_folder(session: str) -> Path:
    return Path(tempfile.gettempdir()) / f"autogemm-{session}"
