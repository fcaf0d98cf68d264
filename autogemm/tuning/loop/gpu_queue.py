"""The GPUs as a queue: a thread for each measures what waits, without a pause in between."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Generic, TypeVar

from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Outcome
from autogemm.tuning.loop.gpus import Gpus, running_mean

# Each GPU measures one, and so many wait: the next one begins whatever the rest of the program is
# doing. More would only be measured in ignorance of those before them.
NUM_WAITING = 2

Ticket = TypeVar("Ticket")


class GpuQueue(Generic[Ticket]):
    """Begins candidates in the order in which they are put in, each on the next free GPU.

    ``best_us`` is asked when a candidate's turn comes.
    """

    def __init__(self, gpus: Gpus, best_us: Callable[[], float | None]) -> None:
        self._gpus = gpus
        self._best_us = best_us
        self._threads = ThreadPoolExecutor(len(gpus), thread_name_prefix="measure")
        self._handed: list[tuple[Ticket, Future[Outcome]]] = []
        self._mean_compile_s = 0.0

    @property
    def tickets(self) -> list[Ticket]:
        """The tickets of what is measured or waits."""
        return [ticket for ticket, _ in self._handed]

    @property
    def depth(self) -> int:
        """The number of kernels that should be in it."""
        return len(self._gpus) + NUM_WAITING

    @property
    def has_room(self) -> bool:
        """Whether one more should be put in."""
        return len(self._handed) < self.depth

    @property
    def num_compiling(self) -> int | None:
        """The number to compile at once so that no GPU waits, by Little's law: compile time /
        measuring time for each GPU. None while nothing is known of them.
        """
        mean_measure_s = self._gpus.mean_measure_s
        if not (mean_measure_s and self._mean_compile_s):
            return None
        return math.ceil(len(self._gpus) * self._mean_compile_s / mean_measure_s)

    @property
    def measuring(self) -> list[Future[Outcome]]:
        """The measurements that have not been taken."""
        return [measuring for _, measuring in self._handed]

    def put(self, ticket: Ticket, candidate: Candidate) -> None:
        """Measure it when its turn comes."""
        # One from the cubin cache says nothing of those that are not in it: seeds mostly are.
        if candidate.compiled is not None and candidate.compiled.seconds > 0.0:
            self._mean_compile_s = running_mean(self._mean_compile_s, candidate.compiled.seconds)
        measuring = self._threads.submit(self._gpus.measure, candidate, self._best_us)
        self._handed.append((ticket, measuring))

    def take_finished(self) -> list[tuple[Ticket, Outcome]]:
        """Return what has been measured since the last time, in the order of putting in.

        Raises what a target raised, once everything that was measured has been taken.
        """
        done = [one for one in self._handed if one[1].done()]
        sound = [one for one in done if one[1].exception() is None]
        if done and not sound:
            done[0][1].result()
        taken = {measuring for _, measuring in sound}
        self._handed = [one for one in self._handed if one[1] not in taken]
        return [(ticket, measuring.result()) for ticket, measuring in sound]

    def finish(self) -> Iterator[tuple[Ticket, Outcome]]:
        """Drop what waits; what has been or is being measured, one by one, as it ends."""
        begun = {future: ticket for ticket, future in self._handed if not future.cancel()}
        self._handed.clear()
        failed: list[Future[Outcome]] = []
        for measuring in as_completed(begun):
            if measuring.exception() is not None:
                failed.append(measuring)
            else:
                yield begun[measuring], measuring.result()
        for measuring in failed:
            measuring.result()

    def close(self) -> None:
        """Drop what waits, and wait for nothing."""
        self._threads.shutdown(wait=False, cancel_futures=True)
