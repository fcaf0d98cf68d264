"""Winner and baseline each alone: what of a run counts, for times and for energy."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.targets.cuda.worker.gpu.timing import Method
from autogemm.targets.cuda.worker.sustained import SETTLING, Alone, Runner

PERIOD_S = 0.1
IDLE_W = 90.0


class Gpu:
    """A GPU that throttles ``settles_s`` after a kernel begins: slower then, and at its limit."""

    def __init__(self, settles_s: float) -> None:
        self.now_s = self.begin_s = 10.0
        self.settles_s = settles_s
        self.spent_mj = 0.0
        self.shown: tuple[float, int] = (0.0, 0)

    def clock(self) -> float:
        self.now_s += 1e-5
        return self.now_s

    def pass_time(self, seconds: float, watts: float) -> None:
        self.now_s += seconds
        self.spent_mj += 1000 * watts * seconds

    def sleep(self, seconds: float) -> None:
        """The GPU is at work meanwhile."""
        self.now_s += seconds

    def read_mj(self) -> int:
        number = self.now_s // PERIOD_S
        if number != self.shown[0]:
            watts = self.watts if self.now_s - self.begin_s > self.settles_s else self.watts / 2
            self.spent_mj += 1000 * watts * (number - self.shown[0]) * PERIOD_S
            self.shown = (number, round(self.spent_mj))
        return self.shown[1]

    def stopwatch(self, cool_us: float, hot_us: float, watts: float) -> Any:
        def samples(count: int, meanwhile: Callable[[], None] | None = None) -> list[float]:
            self.watts = watts
            is_hot = self.now_s - self.begin_s > self.settles_s
            time_us = hot_us if is_hot else cool_us
            end_s = self.now_s + 1e-6 * (count + 1) * time_us
            if meanwhile is not None:
                meanwhile()
            self.now_s = max(self.now_s, end_s)
            return [time_us] * count

        return SimpleNamespace(samples=samples, method=Method())

    def begin(self) -> None:
        self.begin_s = self.now_s


@pytest.mark.parametrize("hot_us", [30.0, 1500.0, 21_000.0])
def test_only_what_is_hot_counts_and_energy_is_of_that(hot_us: float) -> None:
    gpu = Gpu(settles_s=0.9)
    alone = Alone(gpu.stopwatch(hot_us / 1.4, hot_us, 680.0))
    runner = Runner(gpu.read_mj, gpu.clock, gpu.sleep)
    for _ in range(2):
        gpu.begin()
        runner.run(alone, 3.0)
        assert 3.0 <= gpu.now_s - gpu.begin_s < 3.2
    assert set(alone.times_us) == {hot_us}
    assert alone.gemm_mj == pytest.approx(680.0 * 1e-3 * hot_us, rel=0.02)
    # Two runs, without their beginnings, the first reading and the batch that is at work.
    assert alone.seconds == pytest.approx(2 * 3.0 * (1 - SETTLING), abs=0.5)


def test_the_mean_is_over_both_runs() -> None:
    gpu = Gpu(settles_s=0.0)
    alone = Alone(gpu.stopwatch(1000.0, 1000.0, 500.0))
    runner = Runner(lambda: None, gpu.clock, gpu.sleep)
    runner.run(alone, 0.5)
    alone.stopwatch = gpu.stopwatch(1200.0, 1200.0, 500.0)
    runner.run(alone, 0.5)
    assert 1080 < alone.time_us < 1100
    assert alone.gemm_mj is None, "the driver tells no energy"


def test_a_kernel_longer_than_its_run_is_timed_once() -> None:
    gpu = Gpu(settles_s=0.0)
    alone = Alone(gpu.stopwatch(2e6, 2e6, 500.0))
    Runner(gpu.read_mj, gpu.clock, gpu.sleep).run(alone, 0.1)
    assert alone.time_us == 2e6
