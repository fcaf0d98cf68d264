"""The workers and their scheduler."""

import logging
import os
import pickle
import signal
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from multiprocessing import active_children, resource_tracker
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, Nanny, Scheduler, SpecCluster

from autogemm.cluster import worker as remote
from autogemm.cluster.client import CLOSE_S, opened_client, silence_dask
from autogemm.cluster.messages import AHEAD, Done, Place, Work
from autogemm.cluster.request import ClusterRequest
from autogemm.support.errors import ClusterError
from autogemm.support.messages import message
from autogemm.targets import several_gpus

# Workers that are started here cannot be reached from other machines.
HOST = "127.0.0.1"
# Processes that start others may not be daemons in the sense of multiprocessing. A worker is given
# as many problems as it has threads: the next one goes to the first that is free. Libraries use the
# threads that they would use without Dask.
SETTINGS = {
    "distributed.nanny.pre-spawn-environ": {},
    "distributed.worker.daemon": False,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.logging": {"distributed": "critical"},
}
# Errors that Dask raises when the scheduler is not there.
_GONE = (OSError, TimeoutError)


class Crew:
    """Workers, by their names. Methods raise ClusterError when the scheduler is gone."""

    def __init__(self, client: Any, session: str) -> None:
        self._client = client
        self._session = session
        self._retired: set[str] = set()

    def listen(self, on_event: Callable[[str, int, Any], None]) -> None:
        """Report each event: worker, number of the problem, event. It is called from another
        thread."""

        def on_message(told: tuple[float, dict[str, Any]]) -> None:
            about = told[1]
            on_event(about["name"], about["number"], pickle.loads(about["event"]))

        self._client.subscribe_topic(self._session, on_message)

    def names(self) -> dict[str, str]:
        """The names of the workers that are present and were not dismissed, by address."""
        found = self._asked(self._client.scheduler_info, n_workers=-1)["workers"]
        names = {address: str(one["name"]) for address, one in found.items()}
        return {address: name for address, name in names.items() if name not in self._retired}

    def places(self) -> dict[str, Place | str]:
        """The place of each worker that is present now, or why it cannot work, by name."""
        names = self.names()
        found = self._asked(
            self._client.run, remote.describe, workers=list(names), on_error="return"
        )
        return {
            names[address]: one if isinstance(one, Place) else message(str(one))
            for address, one in found.items()
        }

    def submit(
        self, work: Work, attempt: int, not_on: Collection[str], on_done: Callable[[Any], None]
    ) -> "Future[Any]":
        """Hand out a problem, to none of the workers in ``not_on`` if there is another."""
        others = None
        if not_on:
            named = self.names().items()
            others = [address for address, name in named if name not in not_on] or None
        future = self._asked(
            self._client.submit,
            remote.tune_one,
            pickle.dumps(work),
            key=f"tune-{self._session}-{work.number}-{attempt}",
            pure=False,
            workers=others,
        )
        future.add_done_callback(on_done)
        return future  # type: ignore[no-any-return]

    def result(self, future: "Future[Any]", number: int) -> Done:
        """The answer to a problem. An exception of ours in a worker is a bug and is raised."""
        if future.status in ("cancelled", "lost"):
            raise ClusterError("the scheduler of the workers is gone")
        try:
            found: Done = self._asked(future.result)
        except KilledWorker:
            return Done(number, "", error="every worker process that tuned it died")
        return found

    def send_away(self, name: str) -> None:
        """Stop using this worker."""
        addresses = [address for address, own in self.names().items() if own == name]
        self._retired.add(name)
        if addresses:
            self._asked(self._client.retire_workers, addresses, close_workers=True)

    def press_ctrl_c(self) -> None:
        """Have each search end after the candidate on its GPU."""
        self._asked(self._client.run, remote.press_ctrl_c, self._session, on_error="ignore")

    def forget(self) -> None:
        """Have workers delete their files of this session, if they can be reached."""
        with suppress(ClusterError):
            self._asked(self._client.run, remote.forget, self._session, on_error="ignore")

    def _asked(self, ask: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self._client.status != "running":
            raise ClusterError("the scheduler of the workers is gone")
        try:
            return ask(*given, **named)
        except _GONE as error:
            raise ClusterError(
                f"the scheduler of the workers is gone: {message(str(error))}"
            ) from error


@contextmanager
def opened_crew(request: ClusterRequest, session: str) -> Iterator[Crew]:
    """Yield the workers; those that were started for it end with the block.

    Raises ClusterError for a scheduler that does not answer, and what `several_gpus` raises.
    """
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(SETTINGS))
        silence_dask()
        if request.is_running:
            client = stack.enter_context(opened_client(request.scheduler, request.scheduler_file))
        else:
            client = stack.enter_context(_local([gpu.number for gpu in several_gpus(request.gpu)]))
        crew = Crew(client, session)
        yield crew
        if request.is_running:
            crew.forget()


@contextmanager
def _local(gpus: Sequence[int]) -> Iterator[Any]:
    """A client of a scheduler in this process, with a worker process for each GPU."""
    cores = shared_cores(len(gpus))
    with tempfile.TemporaryDirectory(prefix="autogemm-workers-") as folder:
        workers = {
            gpu: {
                "cls": Nanny,
                "options": {
                    "host": HOST,
                    "nthreads": AHEAD,
                    "memory_limit": 0,
                    "local_directory": folder,
                    "dashboard": False,
                    "env": {
                        remote.GPU_VARIABLE: str(gpu),
                        remote.CORES_VARIABLE: ",".join(map(str, own)),
                    },
                    "silence_logs": logging.CRITICAL,
                },
            }
            for gpu, own in zip(gpus, cores, strict=True)
        }
        options = {"host": HOST, "port": 0, "dashboard": False, "dashboard_address": None}
        before = set(active_children())
        with _deaf_to_ctrl_c():
            cluster = SpecCluster(  # type: ignore[no-untyped-call]
                workers, {"cls": Scheduler, "options": options}, silence_logs=logging.CRITICAL
            )
        try:
            with Client(cluster, set_as_default=False) as client:  # type: ignore[no-untyped-call]
                yield client
        finally:
            # If a worker that died is being restarted, Dask waits for it in vain.
            with suppress(TimeoutError):
                cluster.close(CLOSE_S)
            for process in set(active_children()) - before:
                process.kill()


def shared_cores(count: int) -> list[tuple[int, ...]]:
    """Return the cores that this process may use in ``count`` parts side by side; each part has
    one at least, so that with fewer cores than parts some are in several.
    """
    cores = sorted(os.sched_getaffinity(0))
    begins = [len(cores) * part // count for part in range(count + 1)]
    return [tuple(cores[begin : max(end, begin + 1)]) for begin, end in pairwise(begins)]


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Threads and processes that are started meanwhile ignore Ctrl-C, which a terminal sends to all
    of them; this process handles it.
    """
    # Starting this helper of multiprocessing would unblock the signal again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
