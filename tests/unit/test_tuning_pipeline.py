"""The loop between search, compiler, GPU and store: who waits for whom."""

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from fake_target import (
    NUM_KERNELS,
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    tiny_family,
)
from waiting import PATIENCE_S, wait_until

import autogemm.tuning.tuner
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.results.outcome import Outcome, Status, StopRule
from autogemm.search import Proposal, Search
from autogemm.store import Store, open_store
from autogemm.support.errors import DeviceError
from autogemm.tuning import Event, TrialDone, TuneRequest, tune
from autogemm.tuning.loop.gpu_queue import NUM_WAITING
from autogemm.tuning.loop.pipeline import FIRST_AHEAD


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def request_all(tmp_path: Path) -> TuneRequest:
    """Every config of the tiny family, in random order."""
    return TuneRequest(PROBLEM, (tiny_family(tmp_path / "tiny"),), sampler="random", rounds=3)


class WatchedTarget(FakeTarget):
    """Calls ``on_measured`` with the number of candidates so far, before it answers."""

    def __init__(self, on_measured: Callable[[int], None]) -> None:
        super().__init__()
        self._on_measured = on_measured

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        outcome = super().measure(candidate, best_us)
        self._on_measured(len(self.measured))
        return outcome


def test_the_gpu_goes_on_while_a_result_is_recorded(request_all: TuneRequest, store: Store) -> None:
    compiler = FakeCompiler()
    third = threading.Event()
    heard: list[bool] = []

    def on_measured(number: int) -> None:
        if number == 1:
            # Kernels compiled after the third one find the queue full.
            wait_until(lambda: compiler.num_compiled > 1 + NUM_WAITING, "the queue is full")
        if number == 3:
            third.set()

    def listen(event: Event) -> None:
        # Called where results are stored: the first is held up until the third was measured.
        if isinstance(event, TrialDone) and event.num_trials == 1:
            heard.append(third.wait(PATIENCE_S))

    # No twins: they would wait for each other.
    request = replace(request_all, fix={"ECHO": (0,)})
    tune(request, WatchedTarget(on_measured), compiler, store, listen)
    assert heard == [True]


def test_what_was_measured_before_a_gpu_is_lost_is_kept(
    request_all: TuneRequest, store: Store
) -> None:
    lost = threading.Event()

    def fault(config: Config) -> Exception | None:
        if len(target.measured) == 1:
            # The third waits, too, before the first is told.
            wait_until(lambda: compiler.num_compiled > 1 + NUM_WAITING, "the queue is full")
        if len(target.measured) < 3:
            return None
        lost.set()
        return DeviceError("the GPU is gone")

    def listen(event: Event) -> None:
        # The second has been measured and the third has failed before the first is stored.
        if isinstance(event, TrialDone) and event.num_trials == 1:
            assert lost.wait(PATIENCE_S)

    target, compiler = FakeTarget(fault), FakeCompiler()
    request = replace(request_all, fix={"ECHO": (0,)})
    with pytest.raises(DeviceError, match="gone"):
        tune(request, target, compiler, store, listen)
    (row,) = store.runs()
    assert row.num_trials == 2


def test_the_gpu_goes_on_while_the_search_thinks(
    request_all: TuneRequest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sixth = threading.Event()
    thought: list[bool] = []

    class SlowSearch(Search):
        def ask(self) -> Proposal | None:
            if self.num_told + len(self._history.pending) == 7:
                # Six are on their way or known: all of them are measured before the next answer.
                thought.append(sixth.wait(PATIENCE_S))
            return super().ask()

    monkeypatch.setattr(autogemm.tuning.tuner, "Search", SlowSearch)
    target = WatchedTarget(lambda number: sixth.set() if number == 6 else None)
    # No twins among them.
    request = replace(request_all, fix={"ECHO": (0,)})
    tune(request, target, FakeCompiler(), store)
    assert thought
    assert all(thought)


class SlowCompiler(FakeCompiler):
    """Has everything compiled a moment after it was asked to."""

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        done = super().submit(source, arch)
        future: Future[CompiledKernel] = Future()
        threading.Timer(0.02, lambda: future.set_result(done.result())).start()
        return future


@pytest.mark.parametrize("compiler", [FakeCompiler(), SlowCompiler()], ids=["fast", "slow"])
def test_nothing_is_compiled_or_measured_twice(
    request_all: TuneRequest, store: Store, compiler: FakeCompiler
) -> None:
    # Configs that differ in ECHO only render the same text; many of them are in flight together.
    target = FakeTarget(delay_s=0.002)
    result = tune(replace(request_all, finalists=1), target, compiler, store)
    assert result.num_trials == NUM_LEGAL
    assert len(target.measured) == NUM_KERNELS
    assert result.num_reused == NUM_LEGAL - NUM_KERNELS
    # The seed ahead of the search, and the finalist once more: both are in the cubin cache then.
    assert compiler.num_compiled == NUM_KERNELS + 2


def test_a_twin_is_tried_itself_where_the_other_one_had_bad_luck(
    request_all: TuneRequest, store: Store
) -> None:
    tried: Counter[frozenset[object]] = Counter()

    def fault(config: Config) -> Status | None:
        key = frozenset(item for item in config if item[0] != "ECHO")
        tried[key] += 1
        return Status.CRASHED if tried[key] == 1 else None

    result = tune(request_all, FakeTarget(fault), FakeCompiler(), store)
    assert result.counts == {Status.OK: NUM_KERNELS, Status.CRASHED: NUM_KERNELS}


def spilling(bytes_of: Callable[[Config], int]) -> FakeCompiler:
    class Spilling(FakeCompiler):
        def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
            kernel = super().submit(source, arch).result()
            (used,) = kernel.resources
            spilled = replace(used, spill_load_bytes=bytes_of(source.config))
            future: Future[CompiledKernel] = Future()
            future.set_result(replace(kernel, resources=(spilled,)))
            return future

    return Spilling()


@pytest.mark.parametrize("prune", [True, False])
def test_what_cannot_win_is_rejected_and_counted(
    request_all: TuneRequest, store: Store, prune: bool
) -> None:
    target = FakeTarget()
    compiler = spilling(lambda config: 100 if config["U"] == 1 else 0)
    result = tune(replace(request_all, prune=prune), target, compiler, store)
    rejected = [o for o in result.outcomes if o.status is Status.REJECTED]
    assert result.num_trials == NUM_LEGAL
    assert len(rejected) == result.num_pruned
    assert result.best is not None
    if not prune:
        assert rejected == []
        return
    # All but those that were in flight before a first time was known.
    assert NUM_LEGAL // 2 - FIRST_AHEAD <= len(rejected) <= NUM_LEGAL // 2
    for outcome in rejected:
        assert outcome.config["U"] == 1
        assert outcome.config not in target.measured
        assert outcome.reason == "not worth a try: gemm_kernel spills 100 bytes per thread"
        assert outcome.resources[0].spill_load_bytes == 100
    assert [o for o in store.trials(result.run_id) if o.status is Status.REJECTED] == rejected


def test_what_the_grid_rules_out_is_not_even_compiled(
    request_all: TuneRequest, store: Store, tmp_path: Path
) -> None:
    # One block: 131 of 132 SMs idle.
    family = tmp_path / "tiny" / "tiny.yaml"
    family.write_text(family.read_text().replace("ceil_div(M, BM) * ceil_div(N, BN)", "1"))
    request = replace(request_all, families=(tiny_family(tmp_path / "tiny"),), finalists=1)
    target, compiler = FakeTarget(), FakeCompiler()
    result = tune(request, target, compiler, store)
    assert (
        result.num_pruned == result.counts[Status.REJECTED] == NUM_LEGAL - result.counts[Status.OK]
    )
    assert result.num_pruned > NUM_LEGAL // 2
    assert compiler.num_compiled < NUM_LEGAL // 2
    (reason,) = {o.reason.partition(",")[0] for o in result.outcomes if o.reason}
    assert reason.startswith("cannot win: its multiply-adds alone take")


def test_a_lock_on_the_database_costs_no_trial(request_all: TuneRequest, tmp_path: Path) -> None:
    target = FakeTarget()
    seen: list[int] = []

    def release(connection: sqlite3.Connection) -> None:
        time.sleep(0.8)
        seen.append(len(target.measured))
        connection.close()

    def listen(event: Event) -> None:
        if isinstance(event, TrialDone) and event.num_trials == 5:
            connection = sqlite3.connect(
                tmp_path / "tune.db", isolation_level=None, check_same_thread=False
            )
            connection.execute("BEGIN IMMEDIATE")
            seen.append(len(target.measured))
            threading.Thread(target=release, args=(connection,)).start()

    # Each attempt to write waits for less than the lock is held.
    with open_store(str(tmp_path / "tune.db"), timeout_s=0.1) as store:
        result = tune(request_all, target, FakeCompiler(), store, listen)
        stored = store.trials(result.run_id)
    assert result.num_trials == len(stored) == NUM_LEGAL
    assert len(target.measured) == NUM_KERNELS
    at_lock, at_release = seen
    assert at_release >= at_lock


class SlowCompiler(FakeCompiler):
    """Each kernel takes so long, all of them at once."""

    def __init__(self, delay_s: float, broken: Callable[[Config], bool] = lambda _: False) -> None:
        super().__init__(broken)
        self._delay_s = delay_s
        self.pool = ThreadPoolExecutor(64)

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        def later() -> CompiledKernel:
            time.sleep(self._delay_s)
            return done.result()

        done = super().submit(source, arch)
        return self.pool.submit(later)

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


def test_what_compiles_longer_than_there_is_time_is_awaited(
    request_all: TuneRequest, store: Store
) -> None:
    with closing(SlowCompiler(0.6)) as compiler:
        result = tune(replace(request_all, budget_s=0.2), FakeTarget(), compiler, store)
        assert result.best is not None, "without it the search would have been for nothing"
        assert result.stopped_by is StopRule.BUDGET
        assert result.search_s < 2.0
        # Nothing more was asked for once the time was up.
        assert compiler.num_compiled <= FIRST_AHEAD + compiler.threads + 1


def test_a_search_ends_where_nothing_that_was_awaited_runs(
    request_all: TuneRequest, store: Store
) -> None:
    with closing(SlowCompiler(0.6, broken=lambda _: True)) as compiler:
        result = tune(replace(request_all, budget_s=0.2), FakeTarget(), compiler, store)
        assert result.best is None
        assert result.search_s < 2.0


def test_what_waits_for_the_gpu_is_dropped_when_the_time_is_up(
    request_all: TuneRequest, store: Store
) -> None:
    delay_s = 0.3
    target = FakeTarget(delay_s=delay_s)
    result = tune(replace(request_all, budget_s=0.5), target, FakeCompiler(), store)
    # All that was begun is stored; what waited behind it was not begun.
    num_measured = len(target.measured)
    assert num_measured == result.num_trials - result.num_reused <= 2
    assert num_measured * delay_s / result.search_s <= result.gpu_busy <= 1.0
