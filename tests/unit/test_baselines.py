"""Which of cuBLAS's calls is the baseline."""

from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.problem import Problem
from autogemm.targets.cuda.worker.libraries import baselines
from autogemm.targets.cuda.worker.libraries.baselines import NEAR_ROUNDS, ROUNDS, Baseline


class Scripted:
    """A stopwatch with a time for each call of its first rounds, and another for all later ones."""

    def __init__(self, cold_us: float, warm_us: float) -> None:
        self.times = iter([*repeat(cold_us, ROUNDS), *repeat(warm_us, NEAR_ROUNDS)])
        self.num_calls = 0

    def samples(self, count: int) -> list[float]:
        self.num_calls += count
        return [next(self.times) for _ in range(count)]


@pytest.mark.parametrize(
    ("times", "expected", "num_calls"),
    [
        # As fast as each other on a cold GPU, and not on a warm one.
        ({"a": (100.0, 112.0), "b": (102.0, 109.0), "c": (150.0, 1.0)}, "b", [45, 45, 5]),
        ({"a": (100.0, 112.0), "b": (106.0, 1.0)}, "a", [5, 5]),
    ],
)
def test_calls_that_are_near_the_fastest_are_timed_again(
    monkeypatch: pytest.MonkeyPatch,
    times: dict[str, tuple[float, float]],
    expected: str,
    num_calls: list[int],
) -> None:
    stopwatches = [Scripted(*one) for one in times.values()]
    bench: Any = SimpleNamespace(
        stopwatch_about=lambda baseline, launch_us: SimpleNamespace(method=None),
        stopwatches=lambda contestants, method: stopwatches,
    )
    monkeypatch.setattr(baselines, "warm_up", lambda run: 100.0)
    calls = [Baseline(name, lambda gemm: None, Problem(8, 8, 8), 0) for name in times]
    assert baselines._fastest(bench, calls).name == expected
    assert [one.num_calls for one in stopwatches] == num_calls
