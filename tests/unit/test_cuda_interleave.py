"""Rounds of contestants: who takes part in which, in which order, and what ends them."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autogemm.model.results.outcome import Objective, Telemetry
from autogemm.targets.cuda.messages import RunBench, RunFinals
from autogemm.targets.cuda.worker import bench, finals, interleave
from autogemm.targets.cuda.worker.bench import TimedContestant, interleaved_telemetry
from autogemm.targets.cuda.worker.finals import Finalist, Rechecks, timed_rounds
from autogemm.targets.cuda.worker.interleave import Series

HEAT = 0x40


class Steady:
    """A stopwatch that always shows the same, and gives up where the rounds do not end."""

    def __init__(self, name: int, rounds: int, log: list[int]) -> None:
        self.name, self.left, self.log = name, rounds, log
        self.num_readings = 0

    def samples(self, count: int, meanwhile: Any = None) -> list[float]:
        self.left -= count
        assert self.left >= 0, "more rounds than it takes part in"
        self.log.append(self.name)
        if meanwhile is not None:
            self.num_readings += 1
            meanwhile()
        return [100.0] * count


def all_series(rounds: Iterable[int], log: list[int] | None = None, spare: int = 0) -> list[Series]:
    log = [] if log is None else log
    return [
        Series(Steady(name, count + spare, log), count)  # type: ignore[arg-type]
        for name, count in enumerate(rounds)
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("rounds", [(20, 20), (20, 3), (13, 3), (3,), ()])
def test_rounds_end_with_those_that_take_part(rounds: tuple[int, ...]) -> None:
    """Also where none is fast enough for as many rounds as were asked for."""
    series = all_series(rounds)
    done = interleave.interleave(series, Telemetry, seed=0, most_thrown=20)
    assert len(done.readings) == max(rounds, default=0)
    assert tuple(len(one.samples_us) for one in series) == rounds


def rounds_in(log: list[int], num_contestants: int) -> list[tuple[int, ...]]:
    return [
        tuple(log[begin : begin + num_contestants]) for begin in range(0, len(log), num_contestants)
    ]


def test_every_round_has_everybody_once_in_an_order_of_its_own() -> None:
    log: list[int] = []
    interleave.interleave(all_series([40] * 5, log), Telemetry, seed=3, most_thrown=0)
    orders = rounds_in(log, 5)
    assert len(orders) == 40
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2, 3, 4)}
    # There are 120 orders; one that is shuffled once, or rotated, has 1 or 5.
    assert len(set(orders)) > 25
    assert {order[0] for order in orders} == {0, 1, 2, 3, 4}


def test_the_order_is_that_of_the_seed_round_by_round() -> None:
    """A run that is repeated with its seed times its contestants in the same order."""
    log: list[int] = []
    interleave.interleave(all_series([6, 2, 6], log), Telemetry, seed=7, most_thrown=0)
    generator = np.random.default_rng(7)
    expected = [[0, 1, 2][i] for _ in range(2) for i in generator.permutation(3)]
    expected += [[0, 2][i] for _ in range(4) for i in generator.permutation(2)]
    assert log == expected


def test_the_gpu_is_read_once_a_round_beside_the_first_series() -> None:
    log: list[int] = []
    series = all_series([30] * 3, log)
    interleave.interleave(series, Telemetry, seed=0, most_thrown=0)
    firsts = [order[0] for order in rounds_in(log, 3)]
    read = [one.stopwatch.num_readings for one in series]  # type: ignore[attr-defined]
    assert read == [firsts.count(name) for name in range(3)]


def test_only_rounds_that_count_are_followed_by_what_comes_after_a_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interleave.time, "sleep", lambda seconds: None)
    reasons = iter([0, HEAT, HEAT, 0, 0])
    series = all_series([3], spare=2)
    counted: list[int] = []
    done = interleave.interleave(
        series,
        lambda: Telemetry(throttle_reasons=next(reasons)),
        seed=0,
        most_thrown=9,
        after_round=lambda: counted.append(len(series[0].samples_us)),
    )
    assert (len(done.readings), done.num_thrown, counted) == (3, 2, [1, 2, 3])


def spied(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[dict[str, Any]]:
    """The calls of the loop that a module makes."""
    calls: list[dict[str, Any]] = []

    def spy(series: Any, read: Any, seed: int, most_thrown: int, *after_round: Any) -> Any:
        calls.append(
            {
                "rounds": [one.num_rounds for one in series],
                "seed": seed,
                "most_thrown": most_thrown,
                "is_told": bool(after_round),
            }
        )
        return interleave.interleave(series, read, seed, most_thrown, *after_round)

    monkeypatch.setattr(module, "interleave", spy)
    return calls


GPU: Any = SimpleNamespace(telemetry=SimpleNamespace(read=Telemetry))
PREPARED: Any = SimpleNamespace(
    gpu=GPU,
    options=SimpleNamespace(objective=Objective.TIME),
    result=SimpleNamespace(reset=lambda inputs: None),
    timed=[None],
)


def test_finals_and_benches_go_through_the_one_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    of_finals, of_bench = spied(monkeypatch, finals), spied(monkeypatch, bench)
    runs: Any = None
    finalists = [Finalist(name, None, "", runs, 100.0) for name in "ab"]
    stopwatches: list[Any] = [Steady(place, 4, []) for place in range(2)]
    rechecks = Rechecks(PREPARED, [], 4)
    rounds = timed_rounds(PREPARED, finalists, stopwatches, RunFinals((), 4, 11), rechecks)
    assert of_finals == [{"rounds": [4, 4], "seed": 11, "most_thrown": 4, "is_told": True}]
    assert [one.samples_us for one in finalists] == [[100.0] * 4] * 2
    assert len(rounds.readings) == 4

    timed = [TimedContestant("one", PREPARED, runs, series) for series in all_series([9, 3])]
    told: list[tuple[int, int]] = []
    interleaved_telemetry(
        PREPARED, timed, RunBench((), (), rounds=9, seed=5), lambda *done: told.append(done)
    )
    assert of_bench == [{"rounds": [9, 3], "seed": 5, "most_thrown": 9, "is_told": True}]
    assert told == [(done, 9) for done in range(1, 10)]
    assert [len(one.series.samples_us) for one in timed] == [9, 3]
