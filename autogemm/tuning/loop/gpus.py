"""The GPUs that measure the candidates of one run: which is free, how fast each is, what is lost.

GPUs of one model differ by some per cent, and so do their clocks from minute to minute. The
baseline runs on each of them; the ratio of its times is the pace by which theirs compare.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from autogemm.model.kernel import Candidate
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.support.errors import DeviceError
from autogemm.support.phases import Phases
from autogemm.targets import MeasureOptions, Target

# Times of the baseline that count, the newest: one that was taken in a bad moment does not.
NUM_BASELINES = 5
# A candidate at which so many GPUs were lost is not given to another one.
MOST_LOST = 2


class _Gpu:
    """One GPU, used by one thread at a time."""

    def __init__(self, target: Target, phases: Phases) -> None:
        self.target = target
        self._phases = phases
        self.busy_s = 0.0
        self.mean_measure_s = 0.0
        self._baselines_us: deque[float] = deque(maxlen=NUM_BASELINES)
        self._note_baseline()

    @property
    def name(self) -> str:
        """The GPUs' name in messages."""
        return "the GPU" if self.target.number is None else f"GPU {self.target.number}"

    @property
    def baseline_us(self) -> float | None:
        """The median of the newest times of the baseline."""
        return statistics.median(self._baselines_us) if self._baselines_us else None

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """Verify and time it."""
        began = time.monotonic()
        outcome = self.target.measure(candidate, best_us)
        seconds = time.monotonic() - began
        self.busy_s += seconds
        # The rest is communication with the worker.
        known = dict(self.target.phase_s)
        self._phases.add_all({**known, "hand over": seconds - sum(known.values())})
        self._phases.add("launches", self.target.launches_s)
        self.mean_measure_s = running_mean(self.mean_measure_s, seconds)
        self._note_baseline()
        return outcome

    def _note_baseline(self) -> None:
        """Keep the target's time of the baseline, if that is a new one."""
        newest = self.target.baseline_us
        if newest is not None and (not self._baselines_us or newest != self._baselines_us[-1]):
            self._baselines_us.append(newest)


class Gpus:
    """GPUs of one model, each prepared for the problem. The first one sets the pace.

    ``phases`` are the seconds that candidates took, those that the search adds included.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self.phases = Phases()
        self._every = [_Gpu(target, self.phases) for target in targets]
        self._pacemaker = self._every[0]
        self._living = self._every
        self._idle = deque(self._every)
        self._changed = threading.Condition()
        self._lost: deque[str] = deque()
        self._last_error = DeviceError("no GPU is left")

    def __len__(self) -> int:
        """The number of GPUs that are left."""
        return len(self._living)

    @property
    def num_at_start(self) -> int:
        """The number of GPUs at the start."""
        return len(self._every)

    @property
    def busy_s(self) -> float:
        """Seconds in which candidates were verified and timed, of all GPUs together."""
        return sum(gpu.busy_s for gpu in self._every)

    @property
    def mean_measure_s(self) -> float:
        """The seconds that a GPU takes for a recent candidate, 0 while that is not known."""
        known = [gpu.mean_measure_s for gpu in self._living if gpu.mean_measure_s]
        return statistics.mean(known) if known else 0.0

    @property
    def first(self) -> Target:
        """The first that is left. Raises DeviceError where none is."""
        if not self._living:
            raise self._last_error
        return self._living[0].target

    @property
    def baseline_us(self) -> float | None:
        """The newest time of the baseline on the GPU that sets the pace."""
        return self._pacemaker.target.baseline_us

    def measure(self, candidate: Candidate, best_us: Callable[[], float | None]) -> Outcome:
        """Measure on the next free GPU; on another one if that is lost meanwhile.

        ``best_us`` is asked when a GPU is free, for a time at the pace of the first. Raises
        DeviceError where no GPU is left.
        """
        error = self._last_error
        for _ in range(MOST_LOST):
            gpu = self._take()
            try:
                outcome = self._measured(gpu, candidate, best_us())
            except DeviceError as failure:
                error = failure
                self._lose(gpu, error)
            else:
                return outcome
            finally:
                self._give_back(gpu)
        if not self._living:
            raise error
        reason = f"{MOST_LOST} GPUs were lost at it, the last one: {error}"
        compiled = candidate.compiled
        return Outcome(
            candidate.config,
            Status.CRASHED,
            reason,
            candidate.source.sha256,
            resources=compiled.resources if compiled is not None else (),
        )

    def lose_first(self, error: DeviceError) -> bool:
        """Go on without the first that is left. False where it was the last one."""
        self._lose(self._living[0], error)
        return bool(self._living)

    def news(self) -> list[str]:
        """A line for each GPU that was lost since the last time."""
        return [self._lost.popleft() for _ in range(len(self._lost))]

    def _measured(self, gpu: _Gpu, candidate: Candidate, best_us: float | None) -> Outcome:
        if len(self._every) == 1:
            return gpu.measure(candidate, best_us)
        own_best_us = None if best_us is None else best_us / self._pace(gpu)
        outcome = gpu.measure(candidate, own_best_us)
        if outcome.status is Status.CRASHED and len(self._living) > 1:
            # It may be the GPU that broke down, and not the candidate.
            gpu.target.revive()
        return replace(outcome, gpu_number=gpu.target.number, pace=self._pace(gpu))

    def _pace(self, gpu: _Gpu) -> float:
        own_us, first_us = gpu.baseline_us, self._pacemaker.baseline_us
        return first_us / own_us if own_us and first_us and gpu is not self._pacemaker else 1.0

    def _take(self) -> _Gpu:
        with self._changed:
            self._changed.wait_for(lambda: self._idle or not self._living)
            if not self._living:
                raise self._last_error
            return self._idle.popleft()

    def _give_back(self, gpu: _Gpu) -> None:
        with self._changed:
            if gpu in self._living:
                self._idle.append(gpu)
            self._changed.notify_all()

    def _lose(self, gpu: _Gpu, error: DeviceError) -> None:
        with self._changed:
            self._living = [one for one in self._living if one is not gpu]
            self._idle = deque(one for one in self._idle if one is not gpu)
            self._last_error = error
            if self._living:
                left = ", ".join(one.name for one in self._living)
                self._lost.append(f"{gpu.name} is given up: {error}; going on with {left}")


def prepared_gpus(
    targets: Sequence[Target], problem: Problem, options: MeasureOptions
) -> tuple[Gpus, list[str]]:
    """Prepare all GPUs at the same time: those that can be, and a line for each other.

    Raises what the first raises where none can be prepared.
    """
    if len(targets) == 1:
        targets[0].prepare(problem, options)
        return Gpus(targets), []
    with ThreadPoolExecutor(len(targets)) as threads:
        begun = [(one, threads.submit(one.prepare, problem, options)) for one in targets]
    errors = [(one, future.exception()) for one, future in begun]
    ready = [one for one, error in errors if error is None]
    for _, error in errors:
        if error is not None and (not ready or not isinstance(error, DeviceError)):
            raise error
    left_out = [f"GPU {one.number} is left out: {error}" for one, error in errors if error]
    return Gpus(ready), left_out


def running_mean(mean: float, value: float) -> float:
    """The mean with one more value, the newest count most; 0 is no value yet."""
    return value if not mean else 0.8 * mean + 0.2 * value
