"""One problem over several GPUs of one model: how their times compare, and one that is lost.

The GPUs here answer in this process; `test_tuning_spread_faults` has real ones.
"""

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_target import (
    BEST,
    CUBLAS_US,
    NUM_KERNELS,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    Fault,
    time_us,
    tiny_family,
)

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Finals, Objective, Outcome, Status
from autogemm.store import Store, open_store
from autogemm.support.errors import DeviceError
from autogemm.tuning import Event, Notice, TuneRequest, TuneResult, tune
from autogemm.tuning.loop.gpus import Gpus
from autogemm.tuning.task.build import Builder
from autogemm.tuning.task.request import ranked


class PacedTarget(FakeTarget):
    """A GPU on which everything, the baseline too, takes ``slower`` times as long."""

    def __init__(
        self, number: int, slower: float = 1.0, fault: Fault = lambda config: None, **options: Any
    ) -> None:
        super().__init__(fault, **options)
        self.number, self._slower = number, slower
        self.baseline_us = CUBLAS_US * slower
        self.best_us: list[float | None] = []

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        outcome = super().measure(candidate, best_us)
        self.best_us.append(best_us)
        if outcome.measurement is None:
            return outcome
        samples = tuple(one * self._slower for one in outcome.measurement.samples_us)
        measurement = dataclasses.replace(outcome.measurement, samples_us=samples)
        return dataclasses.replace(outcome, measurement=measurement)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def every(tmp_path: Path) -> TuneRequest:
    """Every kernel of the tiny family, in its order."""
    family = tiny_family(tmp_path / "tiny")
    return TuneRequest(
        PROBLEM, (family,), fix={"ECHO": (0,)}, sampler="exhaustive", rounds=3, finalists=2
    )


def tuned(
    request: TuneRequest, store: Store, gpus: Sequence[FakeTarget]
) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    first, *more = gpus
    return tune(request, first, FakeCompiler(), store, events.append, more_targets=more), events


def test_two_gpus_find_what_one_finds_though_one_of_them_is_slower(
    every: TuneRequest, store: Store
) -> None:
    # Both are needed for every pair of kernels: which GPU gets the best one does not matter.
    gpus = [PacedTarget(0, delay_s=0.002), PacedTarget(1, 1.05, delay_s=0.002)]
    result, _ = tuned(every, store, gpus)
    assert result.num_trials == NUM_KERNELS
    assert sum(result.trials_by_gpu.values()) == NUM_KERNELS
    assert min(result.trials_by_gpu.values()) >= NUM_KERNELS // 4
    for outcome in store.trials(result.run_id):
        slower = 1.05 if outcome.gpu_number else 1.0
        # Stored as measured, compared as if all had run on the first.
        assert outcome.time_us == pytest.approx(time_us(outcome.config) * slower)
        assert outcome.comparable_us == pytest.approx(time_us(outcome.config))
    assert result.finals is not None
    assert result.finals.winner.config is not None
    assert {name: result.finals.winner.config[name] for name in BEST} == BEST
    # Finals on one GPU.
    assert [bool(gpu.finalists) for gpu in gpus] == [True, False]
    # A GPU is told the best in its own time.
    known = {time_us(config) for gpu in gpus for config in gpu.measured}
    told = {best_us for best_us in gpus[1].best_us if best_us is not None}
    assert told
    assert all(any(best_us == pytest.approx(1.05 * one) for one in known) for best_us in told)


def test_a_slower_gpu_costs_a_faster_kernel_nothing(every: TuneRequest) -> None:
    # 4.4 % slower than the best, and timed on the faster GPU, which is 5 % faster.
    second = {**BEST, "BM": 16}
    gpus = Gpus([PacedTarget(0), PacedTarget(1, 1.05)])
    builder = Builder(every.families, PROBLEM, gpus.first.device, None)
    outcomes = [
        gpus.measure(builder.start(builder.render(config)).candidate(), lambda: None)
        for config in (Config.of("tiny", {**tile, "ECHO": 0}) for tile in (second, BEST))
    ]
    assert [outcome.gpu_number for outcome in outcomes] == [0, 1]
    assert outcomes[1].time_us is not None and outcomes[0].time_us is not None
    assert outcomes[1].time_us > outcomes[0].time_us
    assert ranked(outcomes, Objective.TIME) == outcomes[::-1]


def test_a_gpu_that_is_lost_costs_nothing_but_its_work(every: TuneRequest, store: Store) -> None:
    def falls_off(config: Config) -> Exception | None:
        return DeviceError("it has fallen off the bus") if len(lost.measured) == 3 else None

    lost = PacedTarget(1, 1.05, falls_off, delay_s=0.002)
    result, events = tuned(every, store, [PacedTarget(0, delay_s=0.002), lost])
    assert result.counts == {Status.OK: NUM_KERNELS}
    assert result.trials_by_gpu == {0: NUM_KERNELS - 2, 1: 2}
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert notices == ["GPU 1 is given up: it has fallen off the bus; going on with GPU 0"]


def test_without_the_first_gpu_the_finals_are_on_the_next(every: TuneRequest, store: Store) -> None:
    def falls_off(config: Config) -> Exception | None:
        return DeviceError("gone") if len(lost.measured) == 3 else None

    lost = PacedTarget(0, 1.0, falls_off, delay_s=0.002)
    left = PacedTarget(1, 1.05, delay_s=0.002)
    result, _ = tuned(every, store, [lost, left])
    assert result.counts == {Status.OK: NUM_KERNELS}
    assert left.finalists
    assert result.finals is not None
    # The measurements of the first one still compare.
    assert all(
        outcome.comparable_us == pytest.approx(time_us(outcome.config))
        for outcome in result.outcomes
    )


def test_a_gpu_that_is_lost_in_the_finals_leaves_them_to_the_next(
    every: TuneRequest, store: Store
) -> None:
    class LostInFinals(PacedTarget):
        def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
            raise DeviceError("gone in the finals")

    result, events = tuned(every, store, [LostInFinals(0), left := PacedTarget(1, 1.05)])
    assert result.finals is not None
    assert left.finalists
    assert "gone in the finals" in str(events)
    with pytest.raises(DeviceError, match="gone in the finals"):
        tuned(dataclasses.replace(every, fresh=True), store, [LostInFinals(0), LostInFinals(1)])


def test_a_candidate_that_kills_gpus_does_not_get_all_of_them(
    every: TuneRequest, store: Store
) -> None:
    def deadly(config: Config) -> Exception | None:
        return DeviceError("Xid 79") if {n: config[n] for n in BEST} == BEST else None

    gpus = [PacedTarget(number, fault=deadly) for number in range(3)]
    result, events = tuned(every, store, gpus)
    assert result.counts == {Status.OK: NUM_KERNELS - 1, Status.CRASHED: 1}
    (crashed,) = (one for one in result.outcomes if one.status is Status.CRASHED)
    assert crashed.reason == "2 GPUs were lost at it, the last one: Xid 79"
    assert [one.registers for one in crashed.resources] == [32]
    assert sum(isinstance(event, Notice) for event in events) == 2
    with pytest.raises(DeviceError, match="Xid 79"):
        tuned(dataclasses.replace(every, fresh=True), store, gpus[:2])


def test_a_crash_is_the_candidates_own_only_if_its_gpu_goes_on(
    every: TuneRequest, store: Store
) -> None:
    class BreaksDown(PacedTarget):
        def revive(self) -> None:
            raise DeviceError("no worker starts any more")

    def crashes(config: Config) -> Status:
        return Status.CRASHED

    result, events = tuned(
        every, store, [PacedTarget(0, delay_s=0.002), BreaksDown(1, 1.0, crashes)]
    )
    assert result.counts == {Status.OK: NUM_KERNELS}
    assert "no worker starts any more" in str(events)


def test_what_cannot_be_prepared_is_left_out(every: TuneRequest, store: Store) -> None:
    class Absent(PacedTarget):
        def prepare(self, *arguments: Any) -> None:
            raise DeviceError("does not answer")

    result, events = tuned(every, store, [Absent(0), PacedTarget(1)])
    assert result.num_trials == NUM_KERNELS
    assert "GPU 0 is left out: does not answer" in str(events)
    with pytest.raises(DeviceError, match="does not answer"):
        tuned(every, store, [Absent(0), Absent(1)])


def test_a_run_that_lost_all_gpus_goes_on_with_what_they_found(
    every: TuneRequest, store: Store
) -> None:
    def gone(config: Config) -> Exception | None:
        return DeviceError("gone") if sum(len(gpu.measured) for gpu in begun) > 6 else None

    begun = [PacedTarget(number, 1 + number / 20, gone, delay_s=0.002) for number in (0, 1)]
    with pytest.raises(DeviceError, match="gone"):
        tuned(every, store, begun)
    (row,) = store.runs()
    assert row.num_trials >= 5
    again = [PacedTarget(0), PacedTarget(1, 1.05)]
    result, _ = tuned(every, store, again)
    assert (result.run_id, result.num_resumed) == (row.run_id, row.num_trials)
    measured = [config for gpu in again for config in gpu.measured]
    assert len(measured) == len(set(measured)) == NUM_KERNELS - row.num_trials
    assert {outcome.gpu_number for outcome in result.outcomes[: row.num_trials]} == {0, 1}


@pytest.mark.parametrize("count", [2, 4])
def test_so_many_gpus_measure_so_many_times_as_fast(
    tmp_path: Path, store: Store, count: int
) -> None:
    """How many are at work at the same time: no clock plays a part."""
    most, now, lock = [0], [0], threading.Lock()
    together = threading.Barrier(count)

    class Counted(PacedTarget):
        def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            if len(self.measured) < NUM_KERNELS // (2 * count):
                # Nothing goes on until each GPU has one.
                together.wait(60)
            outcome = super().measure(candidate, best_us)
            with lock:
                now[0] -= 1
            return outcome

    family = tiny_family(tmp_path / "tiny")
    request = TuneRequest(
        PROBLEM, (family,), fix={"ECHO": (0,)}, sampler="random", rounds=2, finalists=1
    )
    result, _ = tuned(request, store, [Counted(number) for number in range(count)])
    assert most[0] == count
    assert result.num_trials == NUM_KERNELS
