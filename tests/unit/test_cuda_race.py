"""How many rounds a race has: with kernels of which one sample takes any time."""

from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.outcome import Telemetry
from autogemm.targets.cuda.messages import RunRace
from autogemm.targets.cuda.worker.race import Runner, interleaved

BENCH: Any = SimpleNamespace(gpu=SimpleNamespace(telemetry=SimpleNamespace(read=Telemetry)))


class Steady:
    """A stopwatch that always shows the same, and gives up where a race does not end."""

    def __init__(self, rounds: int) -> None:
        self.left = rounds

    def samples(self, count: int, meanwhile: Any = None) -> list[float]:
        self.left -= count
        assert self.left >= 0, "more rounds than it takes part in"
        if meanwhile is not None:
            meanwhile()
        return [100.0] * count


def runner(rounds: int) -> Runner:
    stopwatch: Any = Steady(rounds)
    return Runner("one", BENCH, SimpleNamespace(), stopwatch, rounds)  # type: ignore[arg-type]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("rounds", [(20, 20), (20, 3), (13, 3), (3,), ()])
def test_a_race_ends_with_those_that_take_part(rounds: tuple[int, ...]) -> None:
    """Also where nobody is fast enough for as many rounds as were asked for."""
    runners = [runner(count) for count in rounds]
    readings = interleaved(BENCH, runners, RunRace((), (), rounds=20, seed=0))
    assert len(readings) == max(rounds, default=0)
    assert tuple(len(one.samples_us) for one in runners) == rounds
