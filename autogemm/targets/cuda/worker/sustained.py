"""The sustained regime: winner and baseline each alone, back to back, on a GPU that is hot.

In the interleaved rounds of the finals kernels share the clocks that all of them together leave; a
kernel that draws less power gains nothing by it there. Alone, at the power limit, it runs at its
own clocks, as in a program that calls it all the time.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from autogemm.model.results.outcome import Sustained
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.messages import RunSustained
from autogemm.targets.cuda.worker.gpu.energy import POLL_S, Moves, ReadEnergy, used_between
from autogemm.targets.cuda.worker.gpu.timing import Stopwatch
from autogemm.targets.cuda.worker.interleave import INTERLEAVED_SAMPLE_US
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem

# Each runs so often, in turn: what drifts over all runs drifts for both.
TURNS = 2
# The share of a run in which clocks and temperature settle, and the power reading follows.
SETTLING = 1 / 3
# The last of so many tells how long one takes: the first may be slower.
FIRST_SAMPLES = 3
# Queued at a time. Between two batches the GPU idles for as long as this process takes to notice.
BATCH_US = 50_000.0
# The counter is read for so much of a batch, which is at work for a little longer.
READ_SHARE = 0.95


@dataclass(slots=True)
class Alone:
    """The measurements of one contestant over its runs."""

    stopwatch: Stopwatch
    times_us: list[float] = field(default_factory=list)
    seconds: float = 0.0
    energy_mj: float = 0.0

    @property
    def time_us(self) -> float:
        """Mean for one GEMM."""
        return sum(self.times_us) / len(self.times_us)

    @property
    def gemm_mj(self) -> float | None:
        """Millijoules for one GEMM; None where the counter did not tell."""
        if not self.seconds:
            return None
        return 1e-6 * self.energy_mj / self.seconds * self.time_us


class Runner:
    """Runs contestants alone; ``read_mj`` reads the GPU's energy counter, None if it has none."""

    def __init__(
        self,
        read_mj: ReadEnergy,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_mj, self._clock, self._sleep = read_mj, clock, sleep

    def run(self, alone: Alone, seconds: float) -> None:
        """Keep the GPU busy for that long. The first batch behind SETTLING counts in any case."""
        begin = self._clock()
        sample_us = alone.stopwatch.samples(FIRST_SAMPLES)[-1] * alone.stopwatch.method.launches
        count = max(1, round(BATCH_US / sample_us))
        moves: Moves = []
        counted: list[float] = []
        while not counted or self._clock() - begin < seconds:
            is_settled = self._clock() - begin >= SETTLING * seconds
            reading_s = READ_SHARE * 1e-6 * count * sample_us
            poll = self._poller(moves, reading_s) if is_settled else None
            times_us = alone.stopwatch.samples(count, poll)
            if is_settled:
                counted += times_us
        alone.times_us += counted
        used = used_between(moves)
        if used is not None:
            alone.seconds += used[0]
            alone.energy_mj += used[1]

    def _poller(self, moves: Moves, for_s: float) -> Callable[[], None]:
        """Records changes of the counter while a batch runs."""

        def poll() -> None:
            until = self._clock() + for_s
            while True:
                reading = self._read_mj()
                if reading is None:
                    return
                if not moves or reading != moves[-1][1]:
                    moves.append((self._clock(), reading))
                if self._clock() >= until:
                    return
                self._sleep(POLL_S)

        return poll


def run_sustained(prepared: PreparedProblem, request: RunSustained) -> Sustained:
    """Run the baseline, the candidate, the baseline again and the candidate again.

    The baseline is first, when the GPU is coolest. Raises DeviceError for a call that is not among
    those near the fastest, CandidateError when the candidate fails.
    """
    call = next((one for one in prepared.calls.near if one.name == request.baseline), None)
    if call is None:
        raise DeviceError(f"{request.baseline} is not among the calls that were timed here")
    with ExitStack() as loaded:
        contestant = prepared.contestant(request.candidate)
        loaded.callback(contestant.unload)
        pair = [Alone(stopwatch) for stopwatch in _stopwatches(prepared, call, contestant)]
        # Graphs hold on to the kernel that is unloaded behind this.
        loaded.callback(pair.clear)
        runner = Runner(prepared.gpu.telemetry.energy_mj)
        for _ in range(TURNS):
            for alone in pair:
                runner.run(alone, request.seconds)
        baseline, winner = pair
        return Sustained(
            sustained_s=request.seconds,
            sustained_us=winner.time_us,
            sustained_baseline_us=baseline.time_us,
            sustained_mj=winner.gemm_mj,
            sustained_baseline_mj=baseline.gemm_mj,
        )


def _stopwatches(
    prepared: PreparedProblem, call: Contestant, contestant: Contestant
) -> list[Stopwatch]:
    """Made by one method, which fits the shorter of the two."""
    launches_us = [prepared.batch_us(one, 1) for one in (call, contestant)]
    shorter = call if launches_us[0] <= launches_us[1] else contestant
    method = prepared.stopwatch_about(shorter, min(launches_us), INTERLEAVED_SAMPLE_US).method
    return prepared.stopwatches([call, contestant], method)
