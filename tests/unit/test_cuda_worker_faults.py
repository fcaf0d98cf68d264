"""Faults of the worker besides a candidate's crash: the run goes on, no other candidate pays."""

import gc
import mmap
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from cuda_worker_backends import KILLED_AFTER_S
from test_cuda_worker import BACKEND, IMPATIENT, PROBLEM, candidate, log, worker_pid
from waiting import has_ended, wait_until

from autogemm.model.results.outcome import Status
from autogemm.support.child_process import own_memory_bytes
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda import target as target_module

__all__ = ["log"]


@pytest.fixture
def target(log: Path) -> Iterator[CudaTarget]:
    target = CudaTarget(backend=BACKEND)
    target.prepare(PROBLEM, MeasureOptions(deadline_s=100.0, host_memory_bytes=2**28))
    yield target
    target.close()


def test_a_candidate_that_takes_the_hosts_memory_is_stopped(target: CudaTarget) -> None:
    outcome = target.measure(candidate("grow"), None)
    assert outcome.status is Status.CRASHED
    assert "GiB of host memory, the limit is 0.2" in outcome.reason
    assert target.measure(candidate("fine"), None).status is Status.OK


def test_a_worker_that_the_system_ends_while_idle_costs_no_candidate(target: CudaTarget) -> None:
    pid = worker_pid(target)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: has_ended(pid), "the worker is dead")
    assert worker_pid(target) != pid


def test_a_worker_that_the_system_ends_at_work_costs_time_only(target: CudaTarget) -> None:
    pid = worker_pid(target)
    outcome = target.measure(candidate("killed once"), None)
    assert outcome.status is Status.OK
    # Both tries.
    assert outcome.measure_seconds > KILLED_AFTER_S
    assert outcome.time_us not in {None, pid}


def test_a_stopped_worker_is_replaced_at_its_deadline(target: CudaTarget) -> None:
    target.prepare(PROBLEM, IMPATIENT)
    pid = worker_pid(target)
    os.kill(pid, signal.SIGSTOP)
    assert target.measure(candidate("fine"), None).status is Status.TIMED_OUT
    assert worker_pid(target) != pid


def test_an_answer_that_came_while_this_process_slept_is_not_too_late(
    target: CudaTarget, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.prepare(PROBLEM, IMPATIENT)
    readings = count()

    def monotonic() -> float:
        """The third time that it is asked, the answer is there and the deadline long over."""
        if next(readings) < 2:
            return 0.0
        wait_until(lambda: "answers" in log.read_text(), "the worker answers")
        time.sleep(0.2)
        return 1000.0

    clock = SimpleNamespace(monotonic=monotonic)
    monkeypatch.setattr("autogemm.support.child_process.time", clock)
    assert target.measure(candidate("slow"), None).status is Status.OK


def test_a_library_that_fails_after_a_candidate_is_the_candidates_doing(
    target: CudaTarget,
) -> None:
    outcome = target.measure(candidate("lose the GPU"), None)
    assert outcome.status is Status.CRASHED
    assert "cuBLAS status 14" in outcome.reason
    assert target.measure(candidate("fine"), None).status is Status.OK


def test_an_innocent_does_not_pay_for_spoiled_references(target: CudaTarget) -> None:
    assert target.measure(candidate("spoil"), None).status is Status.OK
    assert target.measure(candidate("fine"), None).status is Status.OK
    # The one that does it itself is found wrong by a fresh worker, too.
    outcome = target.measure(candidate("spoil and fail"), None)
    assert outcome.status is Status.WRONG_RESULT


@pytest.fixture
def slow_to_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaTarget]:
    monkeypatch.setenv("FAKE_BACKEND_STARTS", str(tmp_path / "starts"))
    monkeypatch.setenv("FAKE_BACKEND_FAILS", "2")
    monkeypatch.setattr(target_module, "RESTART_PAUSES_S", (0.0, 0.0, 0.0))
    target = CudaTarget(backend="cuda_worker_backends:SlowToFree")
    target.prepare(PROBLEM, MeasureOptions(deadline_s=100.0))
    yield target
    target.close()


def test_a_gpu_that_is_freed_late_is_waited_for(slow_to_free: CudaTarget) -> None:
    assert slow_to_free.measure(candidate("die"), None).status is Status.CRASHED
    assert slow_to_free.measure(candidate("fine"), None).status is Status.OK


def test_a_gpu_that_stays_full_ends_the_run(
    slow_to_free: CudaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_BACKEND_FAILS", "99")
    assert slow_to_free.measure(candidate("die"), None).status is Status.CRASHED
    with pytest.raises((DeviceError, UsageError), match=r"0\.0 GiB are free"):
        slow_to_free.measure(candidate("fine"), None)


def test_no_finalist_pays_for_a_gpu_that_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does a moment later: too late for the first, who would count as wrong for ever."""
    monkeypatch.setenv("FAKE_BACKEND_STARTS", str(tmp_path / "starts"))
    monkeypatch.setenv("FAKE_BACKEND_FAILS", "5")
    monkeypatch.setattr(target_module, "RESTART_PAUSES_S", (0.0, 0.0, 0.0))
    with closing(CudaTarget(backend="cuda_worker_backends:GivesNoMemory")) as target:
        target.prepare(PROBLEM, MeasureOptions(deadline_s=20.0))
        with pytest.raises(DeviceError, match="out of memory"):
            target.finals([candidate("fine"), candidate("die in company")], rounds=2, seed=0)


def test_closing_does_not_wait_for_a_candidate(target: CudaTarget, log: Path) -> None:
    outcomes = []
    thread = threading.Thread(
        target=lambda: outcomes.append(target.measure(candidate("hang"), None))
    )
    thread.start()
    wait_until(lambda: "hangs" in log.read_text(), "the candidate is at work")
    begin = time.monotonic()
    target.close()
    thread.join()
    assert time.monotonic() - begin < 50, "the deadline of the candidate was waited for"
    assert [outcome.status for outcome in outcomes] == [Status.CRASHED]


def test_a_target_that_is_forgotten_leaves_no_worker() -> None:
    target = CudaTarget(backend=BACKEND)
    target.prepare(PROBLEM, MeasureOptions())
    pid = worker_pid(target)
    del target
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_memory_of_a_process_is_told() -> None:
    gc.collect()
    before = own_memory_bytes(os.getpid())
    # Not of the heap, which may have as much left over from other tests.
    hoard = mmap.mmap(-1, 64 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    hoard.write(os.urandom(64 * 2**20))
    assert 48 * 2**20 < own_memory_bytes(os.getpid()) - before < 96 * 2**20
    hoard.close()
    assert own_memory_bytes(2**30) == 0
