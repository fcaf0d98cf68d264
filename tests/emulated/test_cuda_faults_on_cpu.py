"""Faults that only repetition, or another input, shows; and limits of the GPU. On the CPU."""

from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import (
    OPTIONS,
    PROBLEM,
    assert_fine,
    candidate,
    prepared,
    pytestmark,
    target,
)

from autogemm.model.kernel import Launch
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.worker.finals import MIN_CHECKS

__all__ = ["prepared", "pytestmark", "target"]

# On integer inputs A[0] is one; on real ones it is not.
IS_INTEGER = "A[0] == (float)(int)A[0]"


def once_in(launches: int, seed: int) -> str:
    """Wrong at random, with that chance; the first two launches, which verify, are right."""
    return (
        f"static unsigned state = {seed}u; state = state * 1664525u + 1013904223u; "
        f"if (calls > 2 && (state >> 16) % {launches} == 0) alpha *= 1.001f;"
    )


def test_wrong_once_in_ten_is_caught_in_the_finals(prepared: CudaTarget) -> None:
    right, flaky = candidate(PROBLEM), candidate(PROBLEM, BEFORE=once_in(10, 1))
    # With as many checks it gets through once in 40,000.
    finals = prepared.finals([flaky, right], rounds=100, seed=1)
    assert [entry.config for entry in finals.entries] == [right.config]
    (lost,) = finals.disqualified
    assert lost.config == flaky.config
    assert "elements are wrong" in lost.reason


def test_what_a_right_kernel_left_in_c_does_not_stand_in_for_a_lost_write(
    prepared: CudaTarget,
) -> None:
    # Writes nothing once in ten: the C of the launch before would be right.
    skipping = once_in(10, 5).replace("alpha *= 1.001f", "return 0")
    problem = replace(PROBLEM, beta=0.0)
    prepared.prepare(problem, OPTIONS)
    candidates = [candidate(problem, BEFORE=skipping), candidate(problem)]
    finals = prepared.finals(candidates, rounds=100, seed=1)
    assert len(finals.entries) == 1
    assert "got nan" in finals.disqualified[0].reason


@pytest.mark.parametrize("rounds", [1, 7, 40])
def test_there_are_enough_checks_whatever_the_rounds(prepared: CudaTarget, rounds: int) -> None:
    finals = prepared.finals([candidate(PROBLEM)], rounds, seed=1)
    assert finals.num_checks >= max(MIN_CHECKS, rounds)
    assert finals.disqualified == ()


@pytest.mark.parametrize(
    ("only", "says"), [(IS_INTEGER, "on integer inputs"), (f"!({IS_INTEGER})", "on real inputs")]
)
def test_right_on_one_input_and_wrong_on_another_is_wrong(
    prepared: CudaTarget, only: str, says: str
) -> None:
    outcome = prepared.measure(candidate(PROBLEM, BEFORE=f"if ({only}) alpha *= 1.001f;"), None)
    assert outcome.status is Status.WRONG_RESULT
    assert says in outcome.reason


def test_a_difference_in_the_last_bit_is_seen_on_integers(prepared: CudaTarget) -> None:
    # Far inside the bound on real inputs.
    outcome = prepared.measure(candidate(PROBLEM, AFTER="C[7] = nextafterf(C[7], 1e9f);"), None)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.reason.startswith("1 of 1240 elements are wrong on integer inputs")


def test_reading_beyond_a_row_shows_as_nan(prepared: CudaTarget) -> None:
    padded = replace(PROBLEM, lda=PROBLEM.k + 3)
    prepared.prepare(padded, OPTIONS)
    outcome = prepared.measure(candidate(padded, DEPTH="K + 1"), None)
    assert outcome.status is Status.WRONG_RESULT
    assert "got nan" in outcome.reason
    assert_fine(prepared.measure(candidate(padded), None))


@pytest.mark.parametrize(
    ("smem_bytes", "status"),
    [
        (48 * 1024, Status.OK),
        # One byte more than a kernel gets unasked: asked for, so it runs.
        (48 * 1024 + 1, Status.OK),
        (227 * 1024, Status.OK),
        (227 * 1024 + 1, Status.LAUNCH_FAILED),
    ],
)
def test_shared_memory_at_its_limits(prepared: CudaTarget, smem_bytes: int, status: Status) -> None:
    launch = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), smem_bytes)
    assert prepared.measure(candidate(PROBLEM, launch), None).status is status


def test_a_workspace_larger_than_the_gpu_costs_one_candidate(prepared: CudaTarget) -> None:
    right = candidate(PROBLEM)
    hungry = replace(right, plan=replace(right.plan, workspace_bytes=2**40))
    outcome = prepared.measure(hungry, None)
    assert outcome.status is Status.LAUNCH_FAILED
    assert "no room for a workspace of 1099511627776 bytes" in outcome.reason
    assert_fine(prepared.measure(right, None))
    finals = prepared.finals([hungry, right], rounds=2, seed=1)
    assert [entry.config for entry in finals.entries] == [right.config]
    assert "no room" in finals.disqualified[0].reason
