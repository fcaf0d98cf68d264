"""Every way in which a candidate can end, injected into runs: it costs that candidate alone."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from fake_target import (
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    tiny_family,
)

from autogemm.model.config import Config
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.model.results.outcome import Status
from autogemm.store import RunState, Store, open_store
from autogemm.support.errors import (
    CompilerDiedError,
    CompileTimeoutError,
    KernelCompileError,
)
from autogemm.tuning import TuneRequest, tune

# One config among the 32; its twin, which differs in ECHO, renders the same text.
VICTIM = {"BM": 32, "BN": 32, "U": 4}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def request_all(tmp_path: Path) -> TuneRequest:
    return TuneRequest(PROBLEM, (tiny_family(tmp_path / "tiny"),), sampler="random", rounds=3)


def is_victim(config: Config) -> bool:
    return all(config[name] == value for name, value in VICTIM.items())


class FailingCompiler(FakeCompiler):
    """One kernel ends with an error, or never."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self._error = error

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        if not is_victim(source.config):
            return super().submit(source, arch)
        future: Future[CompiledKernel] = Future()
        if self._error is not None:
            future.set_exception(self._error)
        return future


@pytest.mark.parametrize(
    ("error", "status", "repeats"),
    [
        (CompileTimeoutError("no answer within 60 s"), Status.COMPILE_TIMEOUT, False),
        (CompilerDiedError("killed by signal 11"), Status.CRASHED, False),
        (KernelCompileError("kernel.cu(3): error"), Status.COMPILE_FAILED, True),
    ],
)
def test_a_compiler_that_fails_costs_one_kernel(
    request_all: TuneRequest, store: Store, error: Exception, status: Status, repeats: bool
) -> None:
    result = tune(request_all, FakeTarget(), FailingCompiler(error), store)
    lost = [outcome for outcome in result.outcomes if outcome.status is not Status.OK]
    assert len(result.outcomes) == NUM_LEGAL
    assert {outcome.status for outcome in lost} == {status}
    assert len(lost) == 2, "the victim and its twin"
    assert all(is_victim(outcome.config) and str(error) in outcome.reason for outcome in lost)
    assert store.run(result.run_id).state is RunState.FINISHED
    assert result.finals is not None
    # A fault that may pass is tried again by the next run, a wrong text is not.
    again = tune(request_all, FakeTarget(), FakeCompiler(), store)
    assert again.counts.get(status, 0) == (2 if repeats else 0)


def test_a_compiler_that_never_answers_costs_one_kernel(
    request_all: TuneRequest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autogemm.tuning.loop.triage.COMPILE_DEADLINE_S", 0.3)
    result = tune(request_all, FakeTarget(), FailingCompiler(None), store)
    assert result.counts == {Status.OK: NUM_LEGAL - 2, Status.COMPILE_TIMEOUT: 2}


@pytest.mark.parametrize(
    "status",
    [
        Status.LAUNCH_FAILED,
        Status.CRASHED,
        Status.TIMED_OUT,
        Status.WRONG_RESULT,
        Status.TOO_SLOW,
    ],
)
def test_a_candidate_that_fails_costs_itself(
    request_all: TuneRequest, store: Store, status: Status
) -> None:
    target = FakeTarget(lambda config: status if is_victim(config) else None)
    result = tune(request_all, target, FakeCompiler(), store)
    assert result.counts == {Status.OK: NUM_LEGAL - 2, status: 2}
    assert result.finals is not None
    assert not any(
        entry.config is None or is_victim(entry.config) for entry in result.finals.entries
    )
