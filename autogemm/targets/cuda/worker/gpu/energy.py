"""Energy of one GEMM, from the GPU's own counter.

NVML's total energy counter has millijoules of the whole GPU and moves every 20 to 100 ms. So a
kernel runs back to back for longer than that, and power is taken between two moments at which the
counter moved. What it moves by at constant load differs, on an H200 by a fifth within a second
(`benchmarks/results/energy_counter_h200.txt`), so a second is needed for 2 to 3 %.
"""

import time
from collections.abc import Callable

from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.timing import Stopwatch

# The kernel runs for so long: the counter moves ten times.
SAMPLE_S = 1.0
# Power follows load with a delay; earlier readings belong to the work before.
SETTLING_S = 0.1
# Queued at a time.
BATCH_US = 20_000.0
POLL_S = 0.001

NO_COUNTER = (
    "this GPU's driver tells no energy (NVML's total energy counter: Volta or later, not in a MIG "
    "slice, with the package nvidia-ml-py): use --objective time"
)

ReadEnergy = Callable[[], int | None]


# When the counter showed a new value, and which.
Moves = list[tuple[float, int]]


def used_between(moves: Moves) -> tuple[float, int] | None:
    """Seconds from the first move of the counter to the last, and millijoules; None without two.

    Since when the first reading held is not known: it is no move.
    """
    if len(moves) < 3:
        return None
    (first_s, first_mj), (last_s, last_mj) = moves[1], moves[-1]
    return last_s - first_s, last_mj - first_mj


class EnergyMeter:
    """Measures one GPU, whose counter ``read_mj`` reads. Raises DeviceError if it cannot."""

    def __init__(
        self,
        read_mj: ReadEnergy,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_mj, self._clock, self._sleep = read_mj, clock, sleep
        if read_mj() is None:
            raise DeviceError(NO_COUNTER)

    def energy_mj(self, stopwatch: Stopwatch, sample_us: float) -> float:
        """Millijoules for one GEMM, idle power of the GPU included.

        One sample of the stopwatch takes about ``sample_us``. Raises DeviceError when the counter
        does not move.
        """
        count = max(1, round(BATCH_US / sample_us))
        batch_s = 1e-6 * count * sample_us
        moves: Moves = []
        times_us: list[float] = []
        begin = self._clock()

        def poll() -> None:
            until = self._clock() + 0.8 * batch_s
            while True:
                self._note(moves, begin)
                if self._clock() >= until:
                    return
                self._sleep(POLL_S)

        # The counter may stand still for long: then on to ten times the time.
        while (ran_s := self._clock() - begin) < SAMPLE_S or (
            len(moves) < 3 and ran_s < 10 * SAMPLE_S
        ):
            times_us += stopwatch.samples(count, poll)
        used = used_between(moves)
        if used is None:
            raise DeviceError("NVML's energy counter does not move: use --objective time")
        seconds, energy_mj = used
        # mJ / s * us = 1e-6 mJ
        return 1e-6 * energy_mj / seconds * sum(times_us) / len(times_us)

    def _note(self, moves: Moves, begin: float) -> None:
        now = self._clock()
        reading = self._read_mj()
        if (
            reading is not None
            and now - begin >= SETTLING_S
            and (not moves or reading != moves[-1][1])
        ):
            moves.append((now, reading))
