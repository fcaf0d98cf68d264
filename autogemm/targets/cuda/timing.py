"""How one contestant is timed: events around launches, or a CUDA graph of many of them.

Work is queued ahead of the card, behind an untimed run, so that the time from one event to the
next holds the kernel and nothing of this process.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autogemm.outcome import CacheState
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.card import Card

# Below this one launch is too short for events: their own cost would show.
SHORT_LAUNCH_US = 200.0
SAMPLE_US = 1000.0
MAX_GRAPH_LAUNCHES = 2000

# Sampling ends early once the median is known this well, or enough time went into it.
MIN_SAMPLES = 5
SETTLED_RELATIVE_ERROR = 0.001
ENOUGH_US = 60_000.0
SAMPLES_PER_BATCH = 4


@dataclass(frozen=True, slots=True)
class Method:
    """``graph`` (of that many launches) or ``events`` (around that many launches)."""

    name: str = "events"
    launches: int = 1


def method_for(launch_us: float, l2: CacheState, sample_us: float = SAMPLE_US) -> Method:
    """The method for a launch that takes about ``launch_us``.

    With a cold L2 each launch is timed alone, behind a flush.
    """
    if l2 is CacheState.COLD or launch_us >= SHORT_LAUNCH_US:
        return Method()
    launches = math.ceil(sample_us / max(launch_us, 0.1))
    return Method("graph", min(launches, MAX_GRAPH_LAUNCHES))


class Stopwatch:
    """Times what ``queue`` puts on the stream: one GEMM per call.

    ``flush`` is called before each launch to be timed with a cold L2, and not timed.
    """

    def __init__(
        self,
        card: Card,
        queue: Callable[[], None],
        method: Method,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._card, self.method, self._flush = card, method, flush
        self._work = self._prepared(queue)

    def _prepared(self, queue: Callable[[], None]) -> Callable[[], None]:
        launches = self.method.launches  # no reference to self: a cycle would keep buffers alive

        def repeat() -> None:
            for _ in range(launches):
                queue()

        if self.method.name != "graph":
            return repeat
        graph = self._card.capture(repeat)
        stream = self._card.stream
        return lambda: graph.launch(stream)

    def samples(self, count: int, meanwhile: Callable[[], None] | None = None) -> list[float]:
        """Microseconds for one GEMM, ``count`` times.

        ``meanwhile`` runs here while the card works.
        """
        self._work()  # warm, and keeps the card busy while the rest is queued
        ends: list[tuple[Any, Any]] = []
        last = self._card.event()
        for _ in range(count):
            if self._flush is not None:
                self._flush()
                last = self._card.event()
            self._work()
            now = self._card.event()
            ends.append((last, now))
            last = now
        if meanwhile is not None:
            meanwhile()
        return [self._card.microseconds(begin, end) / self.method.launches for begin, end in ends]


def adaptive_samples(
    stopwatch: Stopwatch,
    options: MeasureOptions,
    best_us: float | None,
    meanwhile: Callable[[], None],
) -> tuple[float, ...]:
    """Samples until the median has settled; a hopeless candidate is timed once."""
    samples = stopwatch.samples(1, meanwhile)
    if best_us is not None and samples[0] > options.hopeless_ratio * best_us:
        return tuple(samples)
    while len(samples) < options.max_samples:
        if len(samples) >= MIN_SAMPLES and settled(samples, stopwatch.method.launches):
            break
        samples += stopwatch.samples(min(SAMPLES_PER_BATCH, options.max_samples - len(samples)))
    return tuple(samples)


def settled(samples: list[float], launches: int) -> bool:
    """The standard error of the median is small enough, or enough time was spent."""
    median = statistics.median(samples)
    spread = statistics.median(abs(sample - median) for sample in samples)
    # 1.4826: from median absolute deviation to standard deviation; 1.2533: mean to median.
    error = 1.4826 * 1.2533 * spread / math.sqrt(len(samples))
    return error <= SETTLED_RELATIVE_ERROR * median or sum(samples) * launches >= ENOUGH_US
