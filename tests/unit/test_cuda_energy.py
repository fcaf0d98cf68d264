"""Energy of one GEMM from a counter that moves now and then."""

from collections.abc import Callable

import pytest

from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.energy import SAMPLE_S, EnergyMeter

IDLE_W, LOAD_W = 80.0, 500.0
# The load's power comes up this late.
LAG_S = 0.08


class Gpu:
    """A clock, a counter that moves every ``period_s``, and a stopwatch that runs a kernel."""

    def __init__(self, period_s: float, time_us: float, begin_s: float = 50.0) -> None:
        self.now_s = begin_s
        self.begin_s = self.now_s
        self.period_s, self.time_us = period_s, time_us
        self.num_run = 0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def clock(self) -> float:
        self.now_s += 2e-5
        return self.now_s

    def read_mj(self) -> int:
        seen_s = self.now_s // self.period_s * self.period_s
        loaded_s = max(0.0, seen_s - self.begin_s - LAG_S)
        return round(1000 * (IDLE_W * seen_s + (LOAD_W - IDLE_W) * loaded_s))

    def samples(self, count: int, meanwhile: Callable[[], None] | None = None) -> list[float]:
        end_s = self.now_s + 1e-6 * (count + 1) * self.time_us
        if meanwhile is not None:
            meanwhile()
        self.now_s = max(self.now_s, end_s)
        self.num_run += count
        return [self.time_us] * count


@pytest.mark.parametrize("period_s", [0.001, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("time_us", [5.0, 2600.0, 90_000.0])
def test_energy_is_power_under_load_times_time(period_s: float, time_us: float) -> None:
    gpu = Gpu(period_s, time_us)
    meter = EnergyMeter(gpu.read_mj, gpu.clock, gpu.sleep)
    energy_mj = meter.energy_mj(gpu, time_us)
    # Where a batch is longer than the counter's period, when it moved is known less well.
    tolerance = 0.02 if time_us < 10_000 else 0.15
    assert energy_mj == pytest.approx(LOAD_W * 1e-3 * time_us, rel=tolerance)
    assert gpu.now_s - gpu.begin_s >= SAMPLE_S
    assert gpu.now_s - gpu.begin_s < (1.3 if period_s < 0.2 else 3.0)


class Jittering(Gpu):
    """Counts in steps that are no part of the period in which it is updated, as on an H200."""

    STEP_S = 0.0118

    def read_mj(self) -> int:
        seen_s = self.now_s // self.period_s * self.period_s
        return round(1000 * LOAD_W * (seen_s // self.STEP_S * self.STEP_S))


def test_a_counter_that_moves_by_more_and_less_gives_the_same_energy_again() -> None:
    energies = []
    for start in range(30):
        gpu = Jittering(0.1, 2600.0, 50.0 + 0.0137 * start)
        energies.append(EnergyMeter(gpu.read_mj, gpu.clock, gpu.sleep).energy_mj(gpu, 2600.0))
    assert max(energies) / min(energies) < 1.04


def test_a_counter_that_stands_still_is_an_error() -> None:
    gpu = Gpu(1e6, 100.0)
    with pytest.raises(DeviceError, match="does not move"):
        EnergyMeter(gpu.read_mj, gpu.clock, gpu.sleep).energy_mj(gpu, 100.0)


def test_no_counter_is_an_error_at_once() -> None:
    with pytest.raises(DeviceError, match="use --objective time"):
        EnergyMeter(lambda: None)
