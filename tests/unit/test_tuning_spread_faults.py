"""One problem over several GPUs with real worker processes, one of which is killed."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fake_target import NUM_KERNELS, PROBLEM, FakeCompiler, tiny_family
from test_cuda_worker import log
from waiting import has_ended, wait_until

from autogemm.model.results.outcome import Status
from autogemm.store import Store, open_store
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda import target as target_module
from autogemm.tuning import Event, Notice, TrialDone, TuneRequest, TuneResult, tune

__all__ = ["log"]

BACKEND = "cuda_worker_backends:OneOfSeveral"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


def tuned_with_a_kill(
    tmp_path: Path, store: Store, log: Path, *, is_gone: bool
) -> tuple[TuneResult, list[str]]:
    """Tune over two GPUs; once six trials are stored the worker of GPU 1 is killed, and with
    ``is_gone`` none is started any more.
    """
    notices: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)
        if isinstance(event, TrialDone) and event.num_trials == 6:
            if is_gone:
                Path(f"{log}.gone-1").touch()
            (pid,) = workers(log, 1)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: has_ended(pid), "the worker is dead")

    family = tiny_family(tmp_path / "tiny")
    request = TuneRequest(
        PROBLEM,
        (family,),
        fix={"ECHO": (0,)},
        sampler="exhaustive",
        rounds=2,
        finalists=1,
        prune=False,
    )
    with (
        closing(CudaTarget(0, backend=BACKEND)) as first,
        closing(CudaTarget(1, backend=BACKEND)) as second,
    ):
        result = tune(request, first, FakeCompiler(), store, listen, more_targets=[second])
    return result, notices


def workers(log: Path, gpu: int) -> list[int]:
    """The processes that were started for a GPU."""
    lines = (line.split() for line in log.read_text().splitlines())
    return [int(words[2]) for words in lines if words[:2] == ["worker", str(gpu)]]


def begun(log: Path) -> Counter[str]:
    """How many times each kernel was begun."""
    return Counter(line for line in log.read_text().splitlines() if line.startswith("begins "))


def test_kill_9_of_a_worker_costs_one_candidate_a_second_try(
    tmp_path: Path, store: Store, log: Path
) -> None:
    result, notices = tuned_with_a_kill(tmp_path, store, log, is_gone=False)
    assert result.counts == {Status.OK: NUM_KERNELS}
    assert result.finals is not None
    assert notices == []
    assert len(workers(log, 1)) == 2
    assert len(begun(log)) == NUM_KERNELS
    assert begun(log).total() <= NUM_KERNELS + 1


def test_a_gpu_that_does_not_come_back_leaves_its_candidate_to_the_rest(
    tmp_path: Path, store: Store, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "RESTART_PAUSES_S", (0.0,))
    result, (notice,) = tuned_with_a_kill(tmp_path, store, log, is_gone=True)
    assert result.counts == {Status.OK: NUM_KERNELS}
    assert begun(log).total() <= NUM_KERNELS + 1
    assert notice == "GPU 1 is given up: it has fallen off the bus; going on with GPU 0"
    assert {one.gpu_number for one in result.outcomes} == {0, 1}
