"""Faults on a GPU: each costs its candidate, the next one is measured as if nothing had been."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_kernels import (
    ASSERTION,
    CRASHES_ONCE_IN_TEN,
    FINE,
    HANG,
    ILLEGAL_ADDRESS,
    JUST_OVER_48_KIB,
    MISALIGNED,
    RACES,
    READS_BEHIND_A,
    READS_C_AT_BETA_0,
    STACK_OVERFLOW,
    TRAP,
    WILD_JUMP,
    WRONG_ONCE_IN_TEN,
    Build,
    Fault,
    family_candidate,
    sleeping,
)

from autogemm.compile import Compiler
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Verdict
from autogemm.model.results.outcome import Status
from autogemm.space import load_family
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer
from autogemm.tuning import Certifier

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

PROBLEM = Problem(150, 131, 77, ldc=140, alpha=1.5, beta=0.5)
OPTIONS = MeasureOptions(deadline_s=10.0)

needs_sanitizer = pytest.mark.skipif(
    find_sanitizer() is None, reason="compute-sanitizer is not installed"
)


@pytest.fixture
def prepared(target: CudaTarget) -> CudaTarget:
    target.prepare(PROBLEM, OPTIONS)
    return target


def worker_pid() -> int:
    """The process of this test's child that owns the GPU."""
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    for child in (int(word) for path in listed for word in path.read_text().split()):
        if b"targets.cuda.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise AssertionError("there is no worker")


def assert_next_is_fine(target: CudaTarget, build: Build) -> None:
    outcome = target.measure(build(PROBLEM, FINE), None)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "fault",
    [ILLEGAL_ADDRESS, MISALIGNED, TRAP, ASSERTION, STACK_OVERFLOW, WILD_JUMP],
    ids=["illegal-address", "misaligned", "trap", "assertion", "stack-overflow", "wild-jump"],
)
def test_a_crash_costs_one_candidate(prepared: CudaTarget, build: Build, fault: Fault) -> None:
    before = worker_pid()
    outcome = prepared.measure(build(PROBLEM, fault), None)
    print(outcome.status, outcome.reason)
    assert outcome.status is Status.CRASHED
    assert outcome.time_us is None
    assert_next_is_fine(prepared, build)
    assert worker_pid() != before, "a poisoned context is not used again"


def test_an_endless_loop_costs_its_deadline(target: CudaTarget, build: Build) -> None:
    target.prepare(PROBLEM, MeasureOptions(deadline_s=2.0))
    outcome = target.measure(build(PROBLEM, HANG), None)
    assert outcome.status is Status.TIMED_OUT
    assert_next_is_fine(target, build)


def test_a_little_more_than_48_kib_of_shared_memory_runs(
    prepared: CudaTarget, build: Build
) -> None:
    assert prepared.measure(build(PROBLEM, JUST_OVER_48_KIB), None).status is Status.OK


def test_a_gpu_out_of_memory_costs_one_candidate(prepared: CudaTarget, build: Build) -> None:
    fine = build(PROBLEM, FINE)
    hungry = replace(fine, plan=replace(fine.plan, workspace_bytes=2**42))
    outcome = prepared.measure(hungry, None)
    assert outcome.status is Status.LAUNCH_FAILED
    assert "no room for a workspace" in outcome.reason
    assert_next_is_fine(prepared, build)


def test_a_worker_killed_by_the_system_at_work_and_idle(target: CudaTarget, build: Build) -> None:
    target.prepare(PROBLEM, MeasureOptions(deadline_s=8.0))
    before = worker_pid()
    threading.Timer(0.3, os.kill, (before, signal.SIGKILL)).start()
    outcome = target.measure(build(PROBLEM, sleeping(0.2)), None)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert worker_pid() != before
    os.kill(worker_pid(), signal.SIGKILL)
    assert_next_is_fine(target, build)


def test_wrong_once_in_ten_is_caught_in_the_finals(prepared: CudaTarget, build: Build) -> None:
    flaky, fine = build(PROBLEM, WRONG_ONCE_IN_TEN), build(PROBLEM, FINE)
    assert prepared.measure(flaky, None).status is Status.OK, "the search does not see it"
    # With 100 checks it gets through once in 40,000.
    finals = prepared.finals([flaky, fine], rounds=100, seed=1)
    assert [entry.config for entry in finals.entries] == [fine.config]
    print(finals.disqualified[0].reason)
    assert "in the finals" in finals.disqualified[0].reason


def test_a_crash_in_the_finals_costs_one_finalist(prepared: CudaTarget, build: Build) -> None:
    flaky, fine = build(PROBLEM, CRASHES_ONCE_IN_TEN), build(PROBLEM, FINE)
    finals = prepared.finals([flaky, fine], rounds=30, seed=1)
    assert [entry.config for entry in finals.entries] == [fine.config]
    assert [lost.config for lost in finals.disqualified] == [flaky.config]


@needs_sanitizer
@pytest.mark.parametrize(
    ("fault", "found_by"),
    [
        (FINE, set()),
        (READS_BEHIND_A, {"memcheck"}),
        (RACES, {"racecheck"}),
        (READS_C_AT_BETA_0, {"initcheck"}),
    ],
    ids=["fine", "out-of-bounds", "race", "uninitialised"],
)
def test_compute_sanitizer_sees_what_results_do_not_show(
    target: CudaTarget, build: Build, fault: Fault, found_by: set[str]
) -> None:
    problem = Problem(64, 48, 40)
    checks = target.sanitize(build(problem, fault), problem, 60)
    for check in checks:
        print(f"{check.seconds:.1f} s", check.line)
    assert Verdict.NOT_DONE not in {check.verdict for check in checks}
    assert {check.name for check in checks if check.verdict is Verdict.FAILED} == found_by


def test_the_family_that_ships_is_certified(target: CudaTarget, compiler: Compiler) -> None:
    family, problem = load_family("sgemm_simt"), Problem.of_size("1024")
    candidate = family_candidate(problem, compiler, target.device)
    certificate = Certifier(family, target, compiler).certify(candidate, problem)
    for check in certificate.checks:
        print(f"{check.seconds:.1f} s", check.line)
    assert certificate.verdict is Verdict.PASSED
    assert certificate.reason == ""
