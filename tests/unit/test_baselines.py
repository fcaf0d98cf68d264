"""Which calls of cuBLAS are near the fastest, which is the baseline, what is said of the others."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Call, Status
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.finals import Finalist, chosen_baseline, other_calls
from autogemm.targets.cuda.worker.gpu.timing import Method
from autogemm.targets.cuda.worker.libraries import baselines
from autogemm.targets.cuda.worker.libraries.baselines import (
    CLEARLY_SLOWER,
    COMPARED_ROUNDS,
    FIRST_PASS_S,
    LEAST_TIMED,
    MOST_CHECKED,
    MOST_NEAR,
    NEAR_ROUNDS,
    ROUNDS,
    Selection,
    fastest_near,
)
from autogemm.targets.cuda.worker.libraries.cublas_calls import Baseline
from autogemm.targets.cuda.worker.problem.prepared import LibraryCalls


class Gpu:
    """A problem on a GPU whose calls take known times: alone and cold, and side by side, warm.

    ``wrong`` has complaints by the call's name, ``refused`` what cannot be called.
    """

    def __init__(self, times_us: dict[str, tuple[float, float]], **faults: Any) -> None:
        self.times_us = times_us
        self.wrong: dict[str, str] = faults.get("wrong", {})
        self.refused: set[str] = faults.get("refused", set())
        self.launches: Counter[str] = Counter()
        self.checked: list[str] = []
        self.elapsed_s = 0.0

    def clock(self) -> float:
        return self.elapsed_s

    def batch_us(self, call: Baseline, launches: int) -> float:
        if call.name in self.refused:
            raise DeviceError(f"{call.name} failed with cuBLAS status 15")
        self.launches[call.name] += launches
        batch_us = launches * self.times_us[call.name][0]
        self.elapsed_s += 1e-6 * batch_us
        return batch_us

    def stopwatch_about(self, call: Baseline, launch_us: float, sample_us: float = 0) -> Any:
        return SimpleNamespace(method=Method())

    def stopwatches(self, calls: list[Baseline], method: Method) -> list[Any]:
        def stopwatch(name: str) -> Any:
            time_us = self.times_us[name][len(calls) > 1]
            return SimpleNamespace(samples=lambda count: self.sampled(name, time_us, count))

        return [stopwatch(call.name) for call in calls]

    def sampled(self, name: str, time_us: float, count: int) -> list[float]:
        self.launches[name] += count
        self.elapsed_s += 1e-6 * time_us * count
        return [time_us] * count

    def check(self, call: Baseline) -> Any:
        self.checked.append(call.name)
        return SimpleNamespace(complaint=self.wrong.get(call.name, ""))


def named(*names: str) -> list[Baseline]:
    return [Baseline(name, lambda gemm: None, Problem(8, 8, 8), 0) for name in names]


def selected(gpu: Gpu) -> tuple[list[str], dict[str, Call]]:
    """The calls that are near, and those left out by name."""
    left_out: list[Call] = []
    prepared: Any = gpu
    near = Selection(prepared, left_out, gpu.clock).near(named(*gpu.times_us))
    assert len(near) + len(left_out) == len(gpu.times_us), "each call is somewhere, once"
    return [one.name for one in near], {one.name: one for one in left_out}


def test_near_calls_stay_and_slower_ones_say_how_much() -> None:
    times = {"SGEMM": (1880.0, 1880.0), "Ex": (1040.0, 1040.0), "Lt 1": (1100.0, 1100.0)}
    near, left_out = selected(Gpu({**times, "Lt 2": (1000.0, 1000.0)}))
    assert near == ["Lt 2", "Ex"]
    assert {name: one.status for name, one in left_out.items()} == {
        "SGEMM": Status.TOO_SLOW,
        "Lt 1": Status.TOO_SLOW,
    }
    assert left_out["SGEMM"].reason.startswith("1.880 times")
    assert left_out["Lt 1"].reason.startswith("1.100 times")


def test_the_order_is_that_of_the_warm_gpu() -> None:
    near, _ = selected(Gpu({"a": (1000.0, 1120.0), "b": (1020.0, 1090.0)}))
    assert near == ["b", "a"]


@pytest.mark.parametrize("complaint", ["less exact than FP32 on sparse inputs", "4 of 64 wrong"])
def test_a_wrong_call_is_no_baseline_and_makes_no_other_look_slow(complaint: str) -> None:
    """TF32 left on is several times as fast as what it stands beside."""
    gpu = Gpu({"tf32": (300.0, 300.0), "right": (2000.0, 2000.0)}, wrong={"tf32": complaint})
    near, left_out = selected(gpu)
    assert near == ["right"]
    assert (left_out["tf32"].status, left_out["tf32"].reason) == (Status.WRONG_RESULT, complaint)


def test_a_call_that_is_refused_says_so_also_where_it_is_the_first() -> None:
    near, left_out = selected(Gpu({"x": (1.0, 1.0), "y": (9.0, 9.0)}, refused={"x"}))
    assert near == ["y"]
    assert (left_out["x"].status, "status 15" in left_out["x"].reason) == (Status.REJECTED, True)


def test_nothing_is_near_where_all_are_wrong_or_refused() -> None:
    times = {"x": (1.0, 1.0), "y": (9.0, 9.0)}
    assert selected(Gpu(times, refused={"x"}, wrong={"y": "no"}))[0] == []
    assert selected(Gpu(times, refused={"x", "y"}))[0] == []


def test_a_hundred_calls_take_bounded_time_and_the_slow_ones_few_launches() -> None:
    """At 8192 in FP32: 21 ms, or three times as much; the heuristics name the best first."""
    calls = {f"Lt {i}": ((21e3, 21e3) if i % 4 == 0 else (63e3, 63e3)) for i in range(100)}
    gpu = Gpu(calls)
    near, left_out = selected(gpu)
    timed_in_turn = gpu.launches["Lt 4"] * MOST_CHECKED * 21e-3
    # The warm-up, and the last call begun.
    assert gpu.elapsed_s < FIRST_PASS_S + timed_in_turn + 0.5
    assert gpu.launches["Lt 4"] == 1 + 3 + ROUNDS < 1 + COMPARED_ROUNDS + ROUNDS
    assert near == [f"Lt {i}" for i in range(0, 4 * len(near), 4)]
    assert all(gpu.launches[f"Lt {i}"] == 1 for i in range(1, 20) if i % 4)
    assert left_out["Lt 99"].reason.startswith("not timed")
    slow = Gpu({name: (100 * cold, warm) for name, (cold, warm) in calls.items()})
    assert sum("not timed" in one.reason for one in selected(slow)[1].values()) == 100 - LEAST_TIMED


def test_of_many_calls_that_are_equal_some_take_part() -> None:
    gpu = Gpu({f"Lt {i}": (10.0 + i / 1000, 10.0) for i in range(60)})
    near, _ = selected(gpu)
    assert near == [f"Lt {i}" for i in range(MOST_NEAR)]
    assert len(gpu.checked) == MOST_CHECKED + 1


@pytest.mark.parametrize("order", [("slow", "a", "b"), ("b", "slow", "a")])
def test_a_gpu_that_becomes_faster_or_slower_meanwhile_loses_no_fast_call(
    order: tuple[str, ...],
) -> None:
    """At its power limit a GPU may be a fifth slower than a moment before."""

    class Drifting(Gpu):
        """Alone the second call and those behind it take less; side by side rounds differ."""

        num_samples = 0

        def batch_us(self, call: Baseline, launches: int) -> float:
            return super().batch_us(call, launches) * (1.0 if order.index(call.name) else 1.3)

        def sampled(self, name: str, time_us: float, count: int) -> list[float]:
            round_of_three = self.num_samples // 3
            self.num_samples += count
            return [time_us * (1.0 + 0.08 * (round_of_three % 3))] * count

    times = {"slow": (1450.0, 1450.0), "a": (1300.0, 1300.0), "b": (1290.0, 1290.0)}
    near, left_out = selected(Drifting({name: times[name] for name in order}))
    assert near == ["b", "a"]
    assert left_out["slow"].reason.startswith("1.124 times")


def test_a_wrong_call_that_is_fast_only_side_by_side_makes_no_other_look_slow() -> None:
    gpu = Gpu({"right": (2000.0, 2000.0), "wrong": (2100.0, 1000.0)}, wrong={"wrong": "no"})
    near, left_out = selected(gpu)
    assert (near, left_out["wrong"].status) == (["right"], Status.WRONG_RESULT)


def test_code_that_is_loaded_by_a_first_launch_is_not_counted() -> None:
    class Lazy(Gpu):
        def batch_us(self, call: Baseline, launches: int) -> float:
            loading_us = 0.0 if self.launches[call.name] else 15e3
            return super().batch_us(call, launches) + loading_us

    near, _ = selected(Lazy({"a": (5000.0, 5000.0), "b": (4990.0, 4990.0)}))
    assert near == ["b", "a"]
    assert 5000 * CLEARLY_SLOWER < 15e3


def test_a_bench_takes_the_fastest_of_many_rounds() -> None:
    gpu = Gpu({"a": (100.0, 112.0), "b": (102.0, 109.0)})
    bench: Any = gpu
    bench.calls = LibraryCalls(tuple(named("a", "b")))
    assert fastest_near(bench).name == "b"
    assert gpu.launches["b"] == NEAR_ROUNDS > ROUNDS
    bench.calls = LibraryCalls(tuple(named("a")))
    assert fastest_near(bench).name == "a"


def finalists(**samples: tuple[float, ...]) -> list[Finalist]:
    nothing: Any = None
    return [
        Finalist(name, None, "", nothing, 1.0, samples_us=list(taken))
        for name, taken in samples.items()
    ]


def test_the_baseline_of_the_finals_is_the_fastest_over_the_rounds() -> None:
    """Not the first, nor that with the luckiest round; a wrong one is none."""
    calls = finalists(a=(10.0, 12.0, 12.0), b=(11.0, 11.0, 14.0), c=(1.0, 20.0, 20.0))
    assert chosen_baseline(calls).name == "b"
    calls[1].complaint = "it became wrong"
    baseline = chosen_baseline(calls)
    assert baseline.name == "a"
    others = other_calls(calls, baseline, [Call("d", Status.TOO_SLOW, "twice")])
    assert [(one.name, one.status) for one in others] == [
        ("c", Status.OK),
        ("b", Status.WRONG_RESULT),
        ("d", Status.TOO_SLOW),
    ]
    assert [one.time_us for one in others] == [20.0, None, None]
    for one in calls:
        one.complaint = "wrong"
    with pytest.raises(DeviceError, match="cuBLAS gives a wrong result here: wrong"):
        chosen_baseline(calls)


def test_known_calls_are_found_again_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from autogemm.targets.cuda.messages import KnownCalls

    gpu = Gpu({"a": (1.0, 1.0), "b": (1.0, 1.0), "c": (1.0, 1.0)})
    prepared: Any = gpu
    prepared.problem = Problem(8, 8, 8)
    library = SimpleNamespace(all=lambda: named("a", "b", "c"), left_out=[])
    monkeypatch.setattr(baselines, "CublasCalls", lambda prepared, cublas: library)
    left_out = (Call("a", Status.TOO_SLOW, "twice"),)
    known = KnownCalls(prepared.problem, ("c", "b"), left_out)
    cublas: Any = None
    found = baselines.near_calls(known, prepared, cublas)
    assert ([one.name for one in found.near], found.left_out) == (["c", "b"], left_out)
    assert not gpu.checked
    # Nothing is known about another problem.
    prepared.problem = Problem(8, 8, 16)
    assert len(baselines.near_calls(known, prepared, cublas).near) == 3


def test_a_problem_without_a_call_is_told_from_one_with_wrong_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rejected = Call("cuBLASLt", Status.REJECTED, "failed with cuBLAS status 15")
    wrong = Call("cuBLAS GemmEx", Status.WRONG_RESULT, "1 of 64 elements")
    prepared: Any = Gpu({})
    prepared.problem = Problem(8, 8, 8, Layout.NN, DType.E4M3)
    cublas: Any = None
    for left_out, message in (
        ([], "cuBLAS has no call for 8 nn e4m3$"),
        ([rejected], "cuBLAS has no call for 8 nn e4m3: failed with cuBLAS status 15"),
        ([rejected, wrong], "cuBLAS gives a wrong result here: 1 of 64 elements"),
    ):
        library = SimpleNamespace(all=list, proposals=lambda *_: [], left_out=left_out)
        monkeypatch.setattr(baselines, "CublasCalls", lambda prepared, cublas, one=library: one)
        with pytest.raises(DeviceError, match=message):
            baselines.near_calls(None, prepared, cublas)
