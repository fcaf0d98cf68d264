"""The GPU as a queue: one thread measures what waits, without a pause in between."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Outcome
from autogemm.targets import Target

# One is measured, two wait: the next one begins whatever the rest of the program is doing. More
# would only be measured in ignorance of those before them.
DEPTH = 3

Ticket = TypeVar("Ticket")


class GpuQueue(Generic[Ticket]):
    """Measures candidates in the order in which they are put in, one at a time.

    ``best_us`` is asked when a candidate's turn comes. ``busy_s`` are the seconds in which a
    candidate was verified and timed.
    """

    def __init__(self, target: Target, best_us: Callable[[], float | None]) -> None:
        self._target = target
        self._best_us = best_us
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="measure")
        self._handed: deque[tuple[Ticket, Future[Outcome]]] = deque()
        self.busy_s = 0.0
        self.mean_measure_s = 0.0
        self.mean_compile_s = 0.0

    @property
    def tickets(self) -> list[Ticket]:
        """The tickets of what is measured or waits."""
        return [ticket for ticket, _ in self._handed]

    @property
    def has_room(self) -> bool:
        """Whether one more should be put in."""
        return len(self._handed) < DEPTH

    @property
    def measuring(self) -> Future[Outcome] | None:
        """The measurement that ends next, None if nothing is there."""
        return self._handed[0][1] if self._handed else None

    def put(self, ticket: Ticket, candidate: Candidate) -> None:
        """Measure it when its turn comes."""
        self._handed.append((ticket, self._thread.submit(self._measure, candidate)))

    def take_finished(self) -> list[tuple[Ticket, Outcome]]:
        """Return what has been measured since the last time, in order.

        Raises what the target raised, once everything before that has been taken.
        """
        finished: list[tuple[Ticket, Outcome]] = []
        while (measuring := self.measuring) is not None and measuring.done():
            if finished and measuring.exception() is not None:
                break
            finished.append((self._handed.popleft()[0], measuring.result()))
        return finished

    def finish(self) -> Iterator[tuple[Ticket, Outcome]]:
        """Drop what waits; what has been or is being measured, one by one, in order."""
        begun = [one for one in self._handed if not one[1].cancel()]
        self._handed.clear()
        for ticket, measuring in begun:
            yield ticket, measuring.result()

    def close(self) -> None:
        """Drop what waits, and wait for nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _measure(self, candidate: Candidate) -> Outcome:
        """Measure one candidate; runs in the GPU's thread."""
        began = time.monotonic()
        outcome = self._target.measure(candidate, self._best_us())
        seconds = time.monotonic() - began
        self.busy_s += seconds
        self.mean_measure_s = _running_mean(self.mean_measure_s, seconds)
        if candidate.compiled is not None:
            self.mean_compile_s = _running_mean(self.mean_compile_s, candidate.compiled.seconds)
        return outcome


def _running_mean(mean: float, value: float) -> float:
    return value if not mean else 0.8 * mean + 0.2 * value
