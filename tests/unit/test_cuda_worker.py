"""The parent's side of the CUDA target: a worker may hang, die, lie; the run goes on."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import has_ended, wait_until

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.support.child_process import child_environment
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda import devices as devices_module

BACKEND = "cuda_worker_backends:FakeBackend"
PROBLEM = Problem(64, 64, 64)
# A busy machine takes its time to answer: only where a candidate hangs is the deadline short.
PATIENT = MeasureOptions(deadline_s=100.0)
IMPATIENT = MeasureOptions(deadline_s=1.0)


def candidate(act: str) -> Candidate:
    source = KernelSource("fake", "t", Config.of("fake", {"act": act}), Layout.NN, f"// {act}")
    compiled = CompiledKernel(source.sha256, "sm_90", b"ELF", (), "", "nvrtc", (), 0.5)
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0),))
    return Candidate(source, plan, compiled)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "log"
    monkeypatch.setenv("FAKE_BACKEND_LOG", str(path))
    return path


@pytest.fixture
def target(log: Path) -> Iterator[CudaTarget]:
    target = CudaTarget(backend=BACKEND)
    target.prepare(PROBLEM, PATIENT)
    yield target
    target.close()


def worker_pid(target: CudaTarget) -> int:
    """The fake backend reports its process id as the time."""
    time_us = target.measure(candidate("fine"), None).time_us
    assert time_us is not None
    return int(time_us)


def test_a_good_candidate_is_measured_in_another_process(target: CudaTarget) -> None:
    assert worker_pid(target) not in {0, os.getpid()}
    assert target.device.name == "fake"
    assert target.baseline_us == 101.0


def test_outcomes_carry_compile_facts_and_the_parents_clock(target: CudaTarget) -> None:
    outcome = target.measure(candidate("poison"), None)
    assert outcome.kernel_sha256 == candidate("poison").source.sha256
    assert outcome.compile_seconds == 0.5
    assert outcome.measure_seconds > 0


@pytest.mark.parametrize(
    ("act", "status", "says", "tries"),
    [
        # The system may have ended it: the candidate is tried again.
        ("die", Status.CRASHED, "killed by signal 9", 2),
        ("exit", Status.CRASHED, "exit code 3): Segmentation fault in the driver", 2),
        ("raise", Status.CRASHED, "RuntimeError: not foreseen at all", 1),
        ("lie", Status.CRASHED, "answered with a str", 2),
        ("poison", Status.CRASHED, "illegal address", 1),
    ],
)
def test_a_broken_worker_becomes_an_outcome_and_is_replaced(  # noqa: PLR0917
    target: CudaTarget, log: Path, act: str, status: Status, says: str, tries: int
) -> None:
    before = worker_pid(target)
    outcome = target.measure(candidate(act), None)
    assert outcome.status is status
    assert says in outcome.reason
    assert "\n" not in outcome.reason
    assert outcome.time_us is None
    assert worker_pid(target) != before
    assert log.read_text() == "prepare 64 nn f32\n" * (1 + tries)


def test_a_hanging_worker_is_ended_at_the_deadline(target: CudaTarget, log: Path) -> None:
    target.prepare(PROBLEM, IMPATIENT)
    pid = worker_pid(target)
    outcome = target.measure(candidate("hang"), None)
    assert outcome.status is Status.TIMED_OUT
    assert "no answer within 1 s" in outcome.reason
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    # It would hang for 600 s; and it is not given another try.
    assert 1.0 <= outcome.measure_seconds < 100.0
    assert log.read_text().count("hangs") == 1
    assert worker_pid(target) != pid


def test_an_answer_out_of_turn_is_an_error_of_the_worker(target: CudaTarget) -> None:
    with pytest.raises(DeviceError, match="out of turn"):
        target.measure(candidate("out of turn"), None)
    assert target.measure(candidate("fine"), None).status is Status.OK


def test_ctrl_c_while_measuring_leaves_no_stale_answer(target: CudaTarget) -> None:
    pid = worker_pid(target)
    with pytest.raises(KeyboardInterrupt):
        target.measure(candidate("interrupt"), None)
    assert worker_pid(target) != pid


def test_the_projects_errors_come_through(target: CudaTarget) -> None:
    with pytest.raises(UsageError, match="larger than the GPU"):
        target.prepare(Problem(2000, 1, 1), MeasureOptions())
    with pytest.raises(UsageError, match="prepare"):
        target.measure(candidate("fine"), None)
    target.prepare(PROBLEM, MeasureOptions())
    assert target.measure(candidate("fine"), None).status is Status.OK


def test_a_missing_gpu_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="no GPU 5"):
        CudaTarget(5, backend=BACKEND)


def test_a_worker_that_dies_on_start_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match=r"failed to start.*exit code 7"):
        CudaTarget(backend="cuda_worker_backends:DeadOnStart")


def test_finals_come_back(target: CudaTarget) -> None:
    finals = target.finals([candidate("fine")], rounds=3, seed=1)
    assert finals.winner.ratio == 2.0
    assert finals.rounds == 3


@pytest.mark.parametrize("act", ["die", "die in finals"])
def test_a_candidate_that_dies_is_disqualified(target: CudaTarget, act: str) -> None:
    finals = target.finals([candidate(act), candidate("fine")], rounds=2, seed=1)
    assert [entry.config for entry in finals.entries] == [candidate("fine").config]
    (lost,) = finals.disqualified
    assert (lost.config, lost.kernel_sha256) == (
        candidate(act).config,
        candidate(act).source.sha256,
    )
    assert "killed by signal 9" in lost.reason


def test_finals_of_dying_candidates_are_an_error(target: CudaTarget) -> None:
    for act in ("die", "die in finals"):
        with pytest.raises(DeviceError, match=r"no finalist ran a second time.*signal 9"):
            target.finals([candidate(act)], rounds=2, seed=1)
    with pytest.raises(DeviceError, match=r"aborted 3 times.*signal 9"):
        target.finals([candidate("die in company"), candidate("fine")], rounds=2, seed=1)


@pytest.mark.parametrize(("acts", "rounds"), [([], 3), (["fine"], 0)])
def test_finals_without_candidates_or_rounds_are_refused(
    target: CudaTarget, acts: list[str], rounds: int
) -> None:
    with pytest.raises(UsageError, match="finals need"):
        target.finals([candidate(act) for act in acts], rounds, seed=1)


def test_closing_ends_the_worker_and_may_be_repeated(target: CudaTarget) -> None:
    pid = worker_pid(target)
    target.close()
    target.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(UsageError, match="closed"):
        target.measure(candidate("fine"), None)


def test_a_killed_parent_takes_its_hanging_worker_along() -> None:
    code = (
        "import sys; from test_cuda_worker import *\n"
        "target = CudaTarget(backend=BACKEND)\n"
        "target.prepare(PROBLEM, MeasureOptions(deadline_s=600))\n"
        "print(worker_pid(target), flush=True)\n"
        "target.measure(candidate('hang'), None)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until(lambda: has_ended(pid), "the worker ends with its parent")


def test_the_parent_imports_neither_cupy_nor_numpy() -> None:
    code = "import sys, autogemm.targets.cuda; print({'cupy', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    assert done.stdout.strip() == "set()"


def test_without_cupy_there_is_no_device_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    devices_module.probed.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    try:
        assert devices_module.attached_devices() == []
        assert "[cuda12]'" in devices_module.why_no_device()
    finally:
        devices_module.probed.cache_clear()


@pytest.mark.parametrize("stdout", ["", "[]", '{"devices": [{"name": 1}], "reason": ""}'])
def test_a_probe_that_talks_nonsense_is_no_device(
    monkeypatch: pytest.MonkeyPatch, stdout: str
) -> None:
    devices_module.probed.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: object())
    done = subprocess.CompletedProcess([], 0, stdout, "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: done)
    try:
        assert devices_module.attached_devices() == []
        assert "asking the driver failed" in devices_module.why_no_device()
    finally:
        devices_module.probed.cache_clear()


def test_candidates_survive_the_pipe() -> None:
    assert pickle.loads(pickle.dumps(candidate("fine"))) == candidate("fine")
