"""Timing one contestant: events around launches, or a CUDA graph of many of them; how often.

Work is queued ahead of the GPU, behind an untimed run, so that the time from one event to the
next holds the kernel and nothing of this process.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autogemm.model.results.outcome import CacheState, Telemetry
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.worker.gpu.gpu import Gpu
from autogemm.targets.cuda.worker.gpu.telemetry import is_throttled, summary

# Below this one launch is too short for events: their own cost would show.
SHORT_LAUNCH_US = 200.0
SAMPLE_US = 1000.0
MAX_GRAPH_LAUNCHES = 2000

# Load that brings the clocks of an idle GPU up; launches queued at once.
WARM_UP_US = 200_000.0
MAX_WARM_UP_LAUNCHES = 512

# Sampling ends early once the median is known this well, or enough time went into it.
MIN_SAMPLES = 4
SETTLED_RELATIVE_ERROR = 0.001
ENOUGH_US = 60_000.0
SAMPLES_PER_BATCH = 4
# Pauses before samples of a throttled GPU are taken again. Then it stays so, and they are kept.
COOLING_S = (0.05, 0.1, 0.2)


@dataclass(frozen=True, slots=True)
class Method:
    """``graph`` (of that many launches) or ``events`` (around that many launches)."""

    name: str = "events"
    launches: int = 1


def method_for(
    launch_us: float, l2: CacheState, sample_us: float = SAMPLE_US, num_rotated: int = 1
) -> Method:
    """The method for a launch that takes about ``launch_us``.

    With a cold L2 each launch is timed alone, behind a flush. A graph goes through all of
    ``num_rotated`` sets of inputs, as often as through each other.
    """
    if l2 is CacheState.COLD or launch_us >= SHORT_LAUNCH_US:
        return Method()
    launches = min(math.ceil(sample_us / max(launch_us, 0.1)), MAX_GRAPH_LAUNCHES)
    return Method("graph", math.ceil(launches / num_rotated) * num_rotated)


class Stopwatch:
    """Times what ``queue`` puts on the stream: one GEMM per call.

    ``flush`` is called before each launch to be timed with a cold L2, and not timed. ``spent`` is
    told the microseconds that the GPU worked for it.
    """

    def __init__(
        self,
        gpu: Gpu,
        queue: Callable[[], None],
        method: Method,
        flush: Callable[[], None] | None = None,
        spent: Callable[[float], None] = lambda us: None,
    ) -> None:
        self._gpu, self.method, self._flush, self._spent = gpu, method, flush, spent
        self._work = self._prepared(queue)
        self.probed_us: float | None = None

    def _prepared(self, queue: Callable[[], None]) -> Callable[[], None]:
        launches = self.method.launches  # no reference to self: a cycle would keep buffers alive

        def repeat() -> None:
            for _ in range(launches):
                queue()

        if self.method.name != "graph":
            return repeat
        graph = self._gpu.capture(repeat)
        stream = self._gpu.stream
        return lambda: graph.launch(stream)

    def probe(self) -> float:
        """Take a sample that a first look needs, and keep it: `probed_us`."""
        (sample_us,) = self.samples(1)
        self.probed_us = sample_us
        return sample_us

    def samples(self, count: int, meanwhile: Callable[[], None] | None = None) -> list[float]:
        """Microseconds for one GEMM, ``count`` times.

        ``meanwhile`` runs here while the GPU works.
        """
        self._work()  # warm, and keeps the GPU busy while the rest is queued
        ends: list[tuple[Any, Any]] = []
        last = self._gpu.event()
        for _ in range(count):
            if self._flush is not None:
                self._flush()
                last = self._gpu.event()
            self._work()
            now = self._gpu.event()
            ends.append((last, now))
            last = now
        if meanwhile is not None:
            meanwhile()
        found = [self._gpu.microseconds(begin, end) for begin, end in ends]
        # The untimed run took about as long as one that was timed.
        self._spent(sum(found) + found[-1] if found else 0.0)
        return [one / self.method.launches for one in found]


def warm_up(run: Callable[[int], float]) -> float:
    """Load the GPU until its clocks are up; microseconds of one launch at the end.

    ``run`` does so many launches and returns the microseconds that they took on the GPU. The first
    one does not count: code may be loaded then, and the GPU idle.
    """
    run(1)
    load_us, launches = 0.0, 1
    while True:
        batch_us = run(launches)
        load_us += batch_us
        if load_us >= WARM_UP_US:
            return batch_us / launches
        launches = min(2 * launches, MAX_WARM_UP_LAUNCHES)


@dataclass(frozen=True, slots=True)
class Sampled:
    """The samples that count, what the GPU told beside them, and how many did not count."""

    samples_us: tuple[float, ...]
    telemetry: Telemetry
    throttled_samples: int


class Sampling:
    """Takes samples of one contestant, again where the GPU was throttled.

    ``read`` is called beside every batch.
    """

    def __init__(
        self,
        timer: Stopwatch,
        read: Callable[[], Telemetry],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timer, self._read, self._pause = timer, read, pause
        self._readings: list[Telemetry] = []
        self._samples_us: list[float] = []
        self._num_thrown = 0
        self._pauses = iter(COOLING_S)

    def note(self, sample_us: float, reading: Telemetry) -> None:
        """Count a sample that was taken before, unless the GPU was throttled."""
        if not is_throttled(reading):
            self._samples_us.append(sample_us)
            self._readings.append(reading)

    def adaptive(self, options: MeasureOptions, best_us: float | None, first: int = 1) -> Sampled:
        """Few samples of the hopeless, more of contenders: until the median has settled.

        After n samples a candidate that is slower than the best by more than an n-th of what
        ``options`` let through at first is dropped, so that each further one is spent on fewer.
        ``first`` is how many are taken before that is asked.
        """
        samples = self._samples_us
        if len(samples) < first:
            self._take(min(first, options.max_samples) - len(samples))
        while len(samples) < options.max_samples and not self._is_enough(options, best_us):
            count = SAMPLES_PER_BATCH - len(samples) % SAMPLES_PER_BATCH
            self._take(min(count, options.max_samples - len(samples)))
        return Sampled(tuple(samples), summary(self._readings), self._num_thrown)

    def _is_enough(self, options: MeasureOptions, best_us: float | None) -> bool:
        samples = self._samples_us
        excess = (options.hopeless_ratio - 1.0) / len(samples)
        if best_us is not None and statistics.median(samples) > (1.0 + excess) * best_us:
            return True
        return len(samples) >= MIN_SAMPLES and settled(samples, self._timer.method.launches)

    def _take(self, count: int) -> None:
        readings: list[Telemetry] = []
        while True:
            samples = self._timer.samples(count, lambda: readings.append(self._read()))
            pause_s = next(self._pauses, None) if is_throttled(readings[-1]) else None
            if pause_s is None:
                break
            self._num_thrown += count
            self._pause(pause_s)
        self._samples_us += samples
        self._readings.append(readings[-1])


def settled(samples: list[float], launches: int) -> bool:
    """The standard error of the median is small enough, or enough time was spent."""
    median = statistics.median(samples)
    spread = statistics.median(abs(sample - median) for sample in samples)
    # 1.4826: from median absolute deviation to standard deviation; 1.2533: mean to median.
    error = 1.4826 * 1.2533 * spread / math.sqrt(len(samples))
    return error <= SETTLED_RELATIVE_ERROR * median or sum(samples) * launches >= ENOUGH_US
