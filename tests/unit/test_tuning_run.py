"""A whole tuning run on a target with known times: what is searched, kept, and found."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_target import (
    BEST,
    CUBLAS_US,
    NUM_KERNELS,
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    Fault,
    time_us,
    tiny_family,
    tiny_recording,
)

from autogemm.formats import write_recording
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Fill, Provenance, Status, StopRule
from autogemm.store import RunState, Store, open_store
from autogemm.support.errors import CompilerMissingError, EmptySpaceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import (
    Event,
    FinalsStarted,
    Notice,
    SearchStarted,
    TrialDone,
    TuneRequest,
    TuneResult,
    tune,
)
from autogemm.tuning.loop.pipeline import FIRST_AHEAD


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def request_all(tmp_path: Path) -> TuneRequest:
    """Every config of the tiny family, in random order."""
    return TuneRequest(PROBLEM, (tiny_family(tmp_path / "tiny"),), sampler="random", rounds=3)


def run(
    request: TuneRequest, store: Store, fault: Fault = lambda config: None
) -> tuple[TuneResult, FakeTarget]:
    target = FakeTarget(fault)
    return tune(request, target, FakeCompiler(), store), target


def test_finds_the_best_and_keeps_every_trial(request_all: TuneRequest, store: Store) -> None:
    result, target = run(request_all, store)
    assert result.num_trials == NUM_LEGAL
    assert result.counts == {Status.OK: NUM_LEGAL}
    assert result.best is not None
    assert {name: result.best.config[name] for name in BEST} == BEST
    assert result.finals is not None
    assert result.finals.winner.ratio == pytest.approx(CUBLAS_US / 90.0)
    stored = store.trials(result.run_id)
    assert Counter(outcome.config for outcome in stored) == Counter(
        outcome.config for outcome in result.outcomes
    )
    assert len({outcome.config for outcome in stored}) == NUM_LEGAL
    row = store.run(result.run_id)
    assert row.state is RunState.FINISHED
    assert row.finals is not None
    assert row.finals.winner.kernel_sha256 == result.finals.winner.kernel_sha256
    assert row.spec.environment.compiler == "fake 1.0"
    assert len(target.finalists) == request_all.finalists


def test_twins_are_measured_once_and_enter_the_finals_once(
    request_all: TuneRequest, store: Store
) -> None:
    # Two configs that differ in ECHO render the same text.
    result, target = run(request_all, store)
    assert len(target.measured) == NUM_KERNELS
    assert result.num_reused == NUM_LEGAL - NUM_KERNELS
    kernels = [candidate.source.sha256 for candidate in target.finalists]
    assert len(set(kernels)) == len(kernels)


def test_stops_after_the_trials_asked_for(request_all: TuneRequest, store: Store) -> None:
    result, target = run(replace(request_all, trials=7, finalists=2), store)
    assert result.num_trials == 7
    assert len(store.trials(result.run_id)) == 7
    assert len(target.finalists) == 2


def test_stops_when_the_time_is_up(request_all: TuneRequest, store: Store) -> None:
    delay_s, budget_s = 0.2, 1.5
    target, compiler = FakeTarget(delay_s=delay_s), FakeCompiler()
    result = tune(replace(request_all, budget_s=budget_s), target, compiler, store)
    # All would take twice the budget.
    assert 1 <= result.num_trials < NUM_LEGAL
    assert result.stopped_by is StopRule.BUDGET
    assert result.search_s >= budget_s
    assert result.finals is not None
    assert not result.interrupted
    num_measured = result.num_trials - result.num_reused
    assert num_measured * delay_s / result.search_s <= result.gpu_busy <= 1.0
    # Compiled ahead, but not far: what is asked for early is asked for in ignorance.
    assert compiler.num_compiled <= result.num_trials + FIRST_AHEAD + len(target.finalists)


FAILURES = {
    16: Status.LAUNCH_FAILED,
    32: Status.CRASHED,
    64: Status.TIMED_OUT,
}


def test_failures_are_results_and_do_not_end_the_run(
    request_all: TuneRequest, store: Store
) -> None:
    def fault(config: Config) -> Status | None:
        if config["BM"] == 32:
            return None
        return Status.TOO_SLOW if config["U"] == 1 else FAILURES[int(config["BN"])]

    result, _ = run(request_all, store, fault)
    # Tiles of BM=16: 3, BM=64: 2 (BN=64 is not legal); each with two values of U and of ECHO.
    assert result.counts == {
        Status.OK: 12,
        Status.TOO_SLOW: 10,
        Status.LAUNCH_FAILED: 4,
        Status.CRASHED: 4,
        Status.TIMED_OUT: 2,
    }
    reasons = {o.reason for o in store.trials(result.run_id) if o.status is Status.CRASHED}
    assert reasons == {"as the test wanted"}
    assert result.finals is not None
    assert {entry.config and entry.config["BM"] for entry in result.finals.entries} == {32}


def test_compile_failures_are_results(request_all: TuneRequest, store: Store) -> None:
    target = FakeTarget()
    compiler = FakeCompiler(broken=lambda config: config["U"] == 4)
    result = tune(request_all, target, compiler, store)
    assert result.counts == {Status.OK: 16, Status.COMPILE_FAILED: 16}
    assert all(config["U"] != 4 for config in target.measured)
    failed = [o for o in result.outcomes if o.status is Status.COMPILE_FAILED]
    assert failed[0].reason == "kernel.cu(3): error: no such thing"


def test_what_cannot_launch_never_reaches_the_gpu(request_all: TuneRequest, store: Store) -> None:
    # 64 threads x 2000 registers do not fit the 65536 of an SM.
    target = FakeTarget()
    result = tune(replace(request_all, trials=5), target, FakeCompiler(registers=2000), store)
    assert target.measured == []
    assert set(result.counts) == {Status.REJECTED}
    assert result.finals is None
    assert result.best is None
    assert "needs 128000 registers per block" in result.outcomes[0].reason
    assert "65536" in result.outcomes[0].reason


def test_a_run_in_which_nothing_works_ends_without_finals(
    request_all: TuneRequest, store: Store
) -> None:
    result, _ = run(request_all, store, lambda config: Status.CRASHED)
    assert result.finals is None
    assert result.best is None
    assert store.run(result.run_id).state is RunState.FINISHED


def test_a_finished_run_is_not_resumed_but_its_times_are_known(
    request_all: TuneRequest, store: Store
) -> None:
    first, _ = run(request_all, store)
    second, target = run(request_all, store)
    assert second.run_id != first.run_id
    assert target.measured == []
    assert second.num_reused == NUM_LEGAL
    assert len(store.trials(second.run_id)) == NUM_LEGAL
    assert second.finals is not None


@pytest.mark.parametrize("what", ["driver", "l2", "fill", "problem"])
def test_times_are_known_only_for_the_same_conditions(
    request_all: TuneRequest, store: Store, what: str
) -> None:
    run(request_all, store)
    request, target = request_all, FakeTarget()
    if what == "driver":
        target = FakeTarget(driver="2")
    elif what == "l2":
        request = replace(request, measure=MeasureOptions(l2=CacheState.COLD))
    elif what == "fill":
        request = replace(request, measure=MeasureOptions(fill=Fill.NORMAL))
    else:
        request = replace(request, problem=Problem(1024, 1024, 2048))
    result = tune(request, target, FakeCompiler(), store)
    assert len(target.measured) >= NUM_KERNELS
    assert result.num_reused < NUM_LEGAL / 2 + 1


def test_crashes_are_tried_again_by_the_next_run(request_all: TuneRequest, store: Store) -> None:
    run(request_all, store, lambda config: Status.CRASHED)
    result, _ = run(request_all, store)
    assert result.counts == {Status.OK: NUM_LEGAL}


def test_fix_narrows_the_search(request_all: TuneRequest, store: Store) -> None:
    result, target = run(replace(request_all, fix={"BM": (32,), "ECHO": (1,)}), store)
    assert result.num_legal == 3 * 2
    assert {config["BM"] for config in target.measured} == {32}
    with pytest.raises(EmptySpaceError):
        run(replace(request_all, fix={"BM": (64,), "BN": (64,)}), store)


def test_a_target_that_needs_cubins_needs_a_compiler(
    request_all: TuneRequest, store: Store
) -> None:
    with pytest.raises(CompilerMissingError):
        tune(request_all, FakeTarget(), None, store)


@pytest.mark.parametrize(
    "change", [{"trials": 0}, {"budget_s": 0.0}, {"finalists": 0}, {"rounds": 0}]
)
def test_a_request_that_cannot_be_met(request_all: TuneRequest, change: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"at least 1|more than 0"):
        replace(request_all, **change)


def test_events_tell_the_run_in_order(request_all: TuneRequest, store: Store) -> None:
    events: list[Event] = []
    tune(replace(request_all, trials=12), FakeTarget(), FakeCompiler(), store, events.append)
    first, *trials, last = events
    assert isinstance(first, SearchStarted)
    assert (first.num_resumed, first.baseline_us) == (0, CUBLAS_US)
    assert [family.num_legal for family in first.families] == [NUM_LEGAL]
    assert isinstance(last, FinalsStarted)
    done = [event for event in trials if isinstance(event, TrialDone)]
    assert len(done) == len(trials) == 12
    assert [event.num_trials for event in done] == list(range(1, 13))
    best = [event.best.time_us for event in done if event.best is not None]
    assert best == sorted(best, reverse=True)
    assert done[0].improved


def test_what_the_listener_hears_is_stored_already(
    request_all: TuneRequest, store: Store, tmp_path: Path
) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, TrialDone):
            with open_store(str(tmp_path / "tune.db")) as other:
                configs = [outcome.config for outcome in other.trials(1)]
            assert event.outcome.config in configs

    tune(replace(request_all, trials=5), FakeTarget(), FakeCompiler(), store, listen)


class SmallDevice(FakeTarget):
    """Another GPU: what is legal depends on it."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device


def test_the_space_is_that_of_the_targets_device(request_all: TuneRequest, store: Store) -> None:
    old = replace(FakeTarget().device, arch=60)
    with pytest.raises(EmptySpaceError):
        tune(request_all, SmallDevice(old), FakeCompiler(), store)


@pytest.fixture
def recorded(tmp_path: Path, request_all: TuneRequest) -> RecordedTarget:
    path = tmp_path / "one.json.gz"
    write_recording(tiny_recording(request_all.families[0]), path)
    return RecordedTarget(path)


def test_a_replay_is_marked_and_needs_no_compiler(
    request_all: TuneRequest, store: Store, recorded: RecordedTarget
) -> None:
    result = tune(request_all, recorded, None, store)
    assert result.provenance is Provenance.RECORDED
    assert result.environment.compiler == "nvrtc 13.0"
    assert result.counts[Status.WRONG_RESULT] == 2
    assert result.counts[Status.OK] == NUM_LEGAL - 2
    assert result.finals is not None
    assert result.finals.winner.ratio == pytest.approx(100.0 / 90.0)
    (row,) = store.best()
    assert row.provenance is Provenance.RECORDED


def test_a_replay_does_not_depend_on_timing(
    request_all: TuneRequest, store: Store, recorded: RecordedTarget
) -> None:
    def order(seed: int) -> list[Config]:
        request = replace(request_all, trials=25, fresh=True, sampler="surrogate", seed=seed)
        return [o.config for o in tune(request, recorded, FakeCompiler(), store).outcomes]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_replay_is_kept_within_the_recording(
    request_all: TuneRequest, store: Store, recorded: RecordedTarget
) -> None:
    result = tune(replace(request_all, fix={"BM": (64,)}), recorded, None, store)
    assert result.num_legal == 2 * 2 * 2
    with pytest.raises(UsageError, match="the recording holds BM=16,32,64 only, not BM=256"):
        tune(replace(request_all, fix={"BM": (256,)}), recorded, None, store)


def test_caveats_are_told(request_all: TuneRequest, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "old.json.gz"
    write_recording(tiny_recording(request_all.families[0], template_sha256="1" * 64), path)
    events: list[Event] = []
    tune(replace(request_all, trials=3), RecordedTarget(path), None, store, events.append)
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert "another version of the template" in notice.text


def test_known_times_of_a_gpu_do_not_leak_into_a_replay(
    request_all: TuneRequest, store: Store, recorded: RecordedTarget
) -> None:
    run(request_all, store)
    result = tune(request_all, recorded, None, store)
    # Two configs with the same text are still one kernel; the GPU's times are not used.
    assert {o.measurement.provenance for o in result.outcomes if o.measurement} == {
        Provenance.RECORDED
    }
    assert all(o.time_us in (None, time_us(o.config)) for o in result.outcomes)
