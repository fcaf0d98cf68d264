"""How many samples are taken, and what a throttled GPU spoils: with fake NVML and timer."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from store_samples import SPEC, new_store, ok, source

import autogemm.targets.cuda.worker.interleave
from autogemm.cli import main
from autogemm.model.results.outcome import Fill, Measurement, Provenance, Telemetry
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.messages import RunFinals
from autogemm.targets.cuda.worker.finals import Finalist, Rechecks, timed_rounds
from autogemm.targets.cuda.worker.gpu.telemetry import TelemetryReader, is_throttled
from autogemm.targets.cuda.worker.gpu.timing import (
    COOLING_S,
    WARM_UP_US,
    Method,
    Sampled,
    Sampling,
    warm_up,
)

IDLE, POWER_LIMIT, HEAT = 0x1, 0x4, 0x40


class FakeNvml(ModuleType):
    """Tells the throttle reasons of a script, one a reading; the last one for ever."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *reasons: int) -> None:
        super().__init__("pynvml")
        self._reasons = list(reasons)
        self.num_readings = 0

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's names
        """Nothing to do."""

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> str:  # noqa: N802
        return bus_id

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.1"

    def nvmlDeviceGetPowerUsage(self, gpu: str) -> int:  # noqa: N802
        return 691_000

    def nvmlDeviceGetClockInfo(self, gpu: str, kind: int) -> int:  # noqa: N802
        return 1980 if kind == self.NVML_CLOCK_SM else 2619

    def nvmlDeviceGetTemperature(self, gpu: str, sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: str) -> int:  # noqa: N802
        self.num_readings += 1
        return self._reasons.pop(0) if len(self._reasons) > 1 else self._reasons[0]


class FakeTimer:
    """Hands out the times of a script; reads what is to be read meanwhile."""

    method = Method()

    def __init__(self, *times_us: float) -> None:
        self._times_us: Iterator[float] = iter(times_us)
        self.batches: list[int] = []

    def samples(self, count: int, meanwhile: Any = None) -> list[float]:
        self.batches.append(count)
        if meanwhile is not None:
            meanwhile()
        return [next(self._times_us) for _ in range(count)]


@pytest.fixture
def pauses() -> list[float]:
    return []


def reader(monkeypatch: pytest.MonkeyPatch, *reasons: int) -> TelemetryReader:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*reasons))
    return TelemetryReader("0000:01:00.0")


def sampled(
    timer: FakeTimer,
    telemetry: TelemetryReader,
    pauses: list[float],
    best_us: float | None = None,
    first: int = 1,
    **options: Any,
) -> Sampled:
    sampling = Sampling(timer, telemetry.read, pauses.append)
    return sampling.adaptive(MeasureOptions(**options), best_us, first)


def test_throttled_samples_are_dropped_repeated_and_flagged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pauses: list[float]
) -> None:
    # The second batch is taken while the GPU is too hot, and again after a pause.
    timer = FakeTimer(100.0, 170.0, 171.0, 172.0, 100.0, 100.1, 99.9)
    telemetry = reader(monkeypatch, 0, HEAT, 0)
    taken = sampled(timer, telemetry, pauses)
    assert taken.samples_us == (100.0, 100.0, 100.1, 99.9)
    assert taken.throttled_samples == 3
    assert taken.telemetry == Telemetry(1980, 2619, 691.0, 61, 0)
    assert timer.batches == [1, 3, 3]
    assert pauses == [COOLING_S[0]]

    measurement = Measurement(
        taken.samples_us,
        Provenance.MEASURED,
        telemetry=taken.telemetry,
        throttled_samples=taken.throttled_samples,
    )
    with new_store(tmp_path) as store:
        run = store.begin_run(SPEC)
        outcome = replace(ok(64, 1.0), measurement=measurement)
        trial = store.record_trial(run, 0, outcome, source(64))
        assert store.trials(run) == [outcome]
    place = ("--db", str(tmp_path / "a.db"))
    shown = CliRunner().invoke(main, ["db", "show", f"trial:{trial}", *place])
    assert shown.exit_code == 0, shown.output
    (line,) = [line for line in shown.output.splitlines() if "throttled_samples" in line]
    assert line.split()[-1] == "3"


def test_a_gpu_that_stays_throttled_is_believed_in_the_end(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    timer = FakeTimer(*[150.0] * 40)
    taken = sampled(timer, reader(monkeypatch, HEAT), pauses, first=4)
    assert pauses == list(COOLING_S)
    assert taken.throttled_samples == 4 * len(COOLING_S)
    assert taken.samples_us == (150.0,) * 4
    assert taken.telemetry.throttle_reasons == HEAT
    assert is_throttled(taken.telemetry)


@pytest.mark.parametrize("reasons", [0, IDLE, POWER_LIMIT, IDLE | POWER_LIMIT])
def test_the_power_limit_is_part_of_what_is_measured(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], reasons: int
) -> None:
    taken = sampled(FakeTimer(*[100.0] * 4), reader(monkeypatch, reasons), pauses)
    assert (taken.throttled_samples, pauses) == (0, [])
    assert taken.telemetry.throttle_reasons == reasons


def test_without_nvml_nothing_is_thrown_away(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    taken = sampled(FakeTimer(*[100.0] * 4), TelemetryReader("0000:01:00.0"), pauses)
    assert taken == Sampled((100.0,) * 4, Telemetry(), 0)


@pytest.mark.parametrize(
    ("ratio", "num_samples"),
    [(2.0, 1), (1.51, 1), (1.49, 4), (1.13, 4), (1.12, 8), (1.07, 8), (1.06, 12), (0.9, 20)],
)
def test_each_further_sample_is_spent_on_fewer_candidates(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], ratio: float, num_samples: int
) -> None:
    # Never settled: every other pair of samples is 1 % off, and the median lies in the middle.
    times_us = [100.0 * ratio * (1.0 + 0.005 * (-1) ** ((i + 1) // 2)) for i in range(20)]
    timer = FakeTimer(100.0 * ratio, *times_us[1:])
    taken = sampled(timer, reader(monkeypatch, 0), pauses, best_us=100.0)
    assert len(taken.samples_us) == num_samples


def test_a_contender_is_sampled_until_it_has_settled(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    noisy = (100.0, 103.0, 97.0, 101.0)
    timer = FakeTimer(*noisy, *[100.0] * 20)
    taken = sampled(timer, reader(monkeypatch, 0), pauses, best_us=101.0, first=4)
    assert taken.samples_us[:4] == noisy
    assert len(taken.samples_us) == 8
    assert (
        sampled(FakeTimer(*[100.0] * 4), reader(monkeypatch, 0), pauses, 101.0, 4).samples_us
        == (100.0,) * 4
    )


def test_no_more_than_the_most_samples_are_taken(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    timer = FakeTimer(*[100.0, 110.0] * 20)
    taken = sampled(timer, reader(monkeypatch, 0), pauses, max_samples=6)
    assert timer.batches == [1, 3, 2]
    assert len(taken.samples_us) == 6


class WrongAtEveryTenthLaunch:
    """A bench of one kernel, with the launch of each ten that is wrong."""

    def __init__(self, wrong: int) -> None:
        self.wrong, self.num_launches = wrong, 0
        self.result, self.timed = SimpleNamespace(reset=lambda inputs: None), [None]

    def complaint_once(self, contestant: object, *, integers: bool) -> str:
        self.num_launches += 1
        return "wrong" if self.num_launches % 10 == self.wrong else ""


@pytest.mark.parametrize("wrong", range(10))
def test_a_fault_at_regular_launches_does_not_fall_between_the_checks(wrong: int) -> None:
    bench = WrongAtEveryTenthLaunch(wrong)
    rechecks = Rechecks(bench, [None], rounds=30)  # type: ignore[arg-type, list-item]
    for _ in range(30):
        # With two checks after each round, ten launches a round.
        bench.num_launches += 8
        rechecks.after_round()
    assert rechecks.complaints
    assert bench.num_launches <= 8 * 30 + rechecks.num_checks


@pytest.mark.parametrize(
    ("reasons", "num_thrown"), [((0,), 0), ((0, HEAT, HEAT, 0), 2), ((HEAT,), 5)]
)
def test_rounds_of_a_throttled_gpu_are_run_again(
    monkeypatch: pytest.MonkeyPatch, reasons: tuple[int, ...], num_thrown: int
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(autogemm.targets.cuda.worker.interleave.time, "sleep", pauses.append)
    gpu = SimpleNamespace(telemetry=reader(monkeypatch, *reasons))
    timers = [FakeTimer(*[start + i for i in range(10)]) for start in (100.0, 200.0)]
    bench, request = SimpleNamespace(gpu=gpu), RunFinals((), rounds=5, seed=0)
    finalists = [Finalist("one", None, "", None, 100.0) for _ in timers]  # type: ignore[arg-type]
    rechecks = Rechecks(bench, [], 5)  # type: ignore[arg-type]
    monkeypatch.setattr(Rechecks, "after_round", lambda self: None)
    rounds = timed_rounds(bench, finalists, timers, request, rechecks)  # type: ignore[arg-type]
    samples_us = [finalist.samples_us for finalist in finalists]
    kept = [i for i in range(10) if not 1 <= i <= 2] if num_thrown == 2 else range(num_thrown, 10)
    assert samples_us == [[start + i for i in list(kept)[:5]] for start in (100.0, 200.0)]
    assert rounds.num_thrown == len(pauses) == num_thrown
    assert len(rounds.readings) == 5


def test_fill_is_part_of_a_run(tmp_path: Path) -> None:
    spec = replace(SPEC, fill=Fill.ZEROS)
    with new_store(tmp_path) as store:
        run = store.begin_run(spec)
        assert store.run(run).spec.fill is Fill.ZEROS
        assert store.find_unfinished_run(SPEC) is None
        assert store.find_unfinished_run(spec) == run


class ColdGpu:
    """Its first launch loads code, and its clocks come up after 100 ms of load."""

    def __init__(self, load_us: float, warm_us: float) -> None:
        self._load_us, self._warm_us = load_us, warm_us
        self.busy_us = 0.0
        self.is_loaded = False

    def run(self, launches: int) -> float:
        """Microseconds for so many launches, waiting for the code included."""
        waiting_us = 0.0 if self.is_loaded else self._load_us
        self.is_loaded = True
        before_us = self.busy_us
        for _ in range(launches):
            self.busy_us += self._warm_us * (1 if self.busy_us >= 100_000.0 else 7)
        return waiting_us + self.busy_us - before_us


@pytest.mark.parametrize("load_us", [0.0, 30_000.0, 400_000.0])
@pytest.mark.parametrize("warm_us", [2.0, 25.0, 2800.0, 90_000.0])
def test_warming_up_ends_on_a_gpu_that_is_warm(load_us: float, warm_us: float) -> None:
    gpu = ColdGpu(load_us, warm_us)
    assert warm_up(gpu.run) == pytest.approx(warm_us)
    # Loading is no load; and it does not go on for ever.
    assert WARM_UP_US <= gpu.busy_us <= 3 * WARM_UP_US + 14 * warm_us


@pytest.mark.parametrize(("reasons", "samples_us"), [(0, (90.0,)), (HEAT, (100.0,))])
def test_a_sample_of_before_counts_unless_the_gpu_was_throttled(
    monkeypatch: pytest.MonkeyPatch, reasons: int, samples_us: tuple[float, ...]
) -> None:
    timer = FakeTimer(100.0)
    sampling = Sampling(timer, reader(monkeypatch, 0).read)
    sampling.note(90.0, Telemetry(throttle_reasons=reasons))
    taken = sampling.adaptive(MeasureOptions(), best_us=10.0)
    assert taken.samples_us == samples_us
    assert timer.batches == ([] if reasons == 0 else [1])
    assert taken.telemetry.throttle_reasons == 0
