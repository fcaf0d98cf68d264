"""Groups of rows in the CUDA worker, run on the CPU: references, guards, baselines."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import OPTIONS

from autogemm.model.config import Config
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import (
    Candidate,
    CompiledKernel,
    Extra,
    KernelSource,
    Launch,
    LaunchPlan,
)
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.space import epilogue_rules
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

KERNEL = """
extern "C" int is_grouped = 1;
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           int groups, const int *offsets) {
    for (long g = 0; g < GROUPS; ++g) {
        for (long m = offsets[g]; m < END; ++m) {
            for (long n = 0; n < N; ++n) {
                float sum = 0;
                for (long k = 0; k < K; ++k) {
                    sum = fmaf(A[m * lda + k], B[(OF * N + n) * ldb + k], sum);
                }
                float &c = C[m * ldc + n];
                c = alpha * sum + (beta != 0 ? beta * c : 0.0f);
            }
        }
    }
    return 0;
}
"""
RIGHT = {"GROUPS": "groups", "END": "offsets[g + 1]", "OF": "g"}
# Empty groups, a short one, and rows of none.
UNEVEN = Problem(
    *(29, 17, 33, Layout.NT),
    ldc=19,
    alpha=1.5,
    beta=0.5,
    groups=Groups.parse("0,9,0,1,16"),
)
WRONG = {
    "the last group left out": {"GROUPS": "groups - 1"},
    "the last row of a group left out": {"END": "offsets[g + 1] - (g == 1)"},
    "B of the first group": {"OF": "0"},
    "B of the next group": {"OF": "(g + 1 < groups ? g + 1 : g)"},
}
ONE_MORE = {"END": "offsets[g + 1] + (g + 1 == groups)"}


def candidate(problem: Problem, **edits: str) -> Candidate:
    text = KERNEL
    for name, formula in (RIGHT | edits).items():
        text = text.replace(name, formula)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    launch = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0)
    return Candidate(source, LaunchPlan((launch,), grouped=True), compiled)


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


def measured(target: CudaTarget, one: Candidate) -> Outcome:
    return target.measure(one, None)


def test_every_group_is_compared_and_rows_of_none_are_watched(target: CudaTarget) -> None:
    target.prepare(UNEVEN, OPTIONS)
    right = measured(target, candidate(UNEVEN))
    assert (right.status, right.reason) == (Status.OK, "")
    for name, edits in WRONG.items():
        wrong = measured(target, candidate(UNEVEN, **edits))
        assert wrong.status is Status.WRONG_RESULT, name
    # On a CPU half of a NaN has the bits of the NaN.
    written = replace(UNEVEN, beta=0.0)
    target.prepare(written, OPTIONS)
    assert "outside C" in measured(target, candidate(written, **ONE_MORE)).reason


def test_loops_of_calls_for_each_group_compete(target: CudaTarget) -> None:
    target.prepare(UNEVEN, OPTIONS)
    finals = target.finals([candidate(UNEVEN)], 2, 0)
    assert finals.disqualified == ()
    names = {finals.baseline.name, *(one.name for one in finals.calls)}
    at_once = "cuBLAS GemmGroupedBatchedEx"
    assert {"cuBLAS SGEMM, looped", "cuBLAS GemmEx, looped", at_once} <= names
    assert all(name.endswith(", looped") for name in names - {at_once})


def test_a_call_for_all_groups_that_leaves_one_out_is_no_baseline(target: CudaTarget) -> None:
    problem = Problem(29, 17, 93, Layout.NT, groups=UNEVEN.groups)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], 2, 0)
    wrong = [one for one in finals.calls if one.name == "cuBLAS GemmGroupedBatchedEx"]
    assert [one.status for one in wrong] == [Status.WRONG_RESULT]


def test_one_group_that_takes_all_is_the_plain_product(target: CudaTarget) -> None:
    problem = replace(UNEVEN, groups=Groups.parse("0,29,0"))
    target.prepare(problem, OPTIONS)
    assert measured(target, candidate(problem)).status is Status.OK
    assert problem.flops == replace(problem, groups=Groups()).flops


MASKED_KERNEL = """
extern "C" int is_grouped = 1;
extern "C" int num_arrays = 1;
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           int groups, const int *counts, const float *bias) {
    const long capacity = M / groups;
    for (long g = 0; g < groups; ++g) {
        for (long m = g * capacity; m < END; ++m) {
            for (long n = 0; n < N; ++n) {
                float sum = 0;
                for (long k = 0; k < K; ++k) {
                    sum = fmaf(A[m * lda + k], B[(g * K + k) * ldb + n], sum);
                }
                C[m * ldc + n] = sum + bias[OF * N + n];
            }
        }
    }
    return 0;
}
"""
MASKED_RIGHT = {"END": "g * capacity + counts[g]", "OF": "g"}
MASKED = Problem(
    *(32, 17, 33),
    ldc=19,
    epilogue=Epilogue("acc + bias[g, n]"),
    groups=Groups.parse("0,8,5,1 masked"),
)
MASKED_WRONG = {
    "a row past the count": {"END": "g * capacity + counts[g] + (g == 2)"},
    "a row of an empty group": {"END": "g * capacity + counts[g] + (g == 0)"},
    "the last row left out": {"END": "g * capacity + counts[g] - (g == 1)"},
    "bias of the first group": {"OF": "0"},
    "bias of the next group": {"OF": "((g + 1) % groups)"},
}

DIVIDED_KERNEL = """
extern "C" int is_grouped = 1;
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           int groups, const int *offsets) {
    for (long g = 0; g < groups; ++g) {
        EMPTY
        for (long m = 0; m < M; ++m) {
            for (long n = 0; n < N; ++n) {
                float sum = 0;
                for (long k = offsets[g]; k < END; ++k) {
                    sum = fmaf(A[k * lda + m], B[k * ldb + n], sum);
                }
                float &c = C[(OF * M + m) * ldc + n];
                c = alpha * sum + (beta != 0 ? beta * c : 0.0f);
            }
        }
    }
    return 0;
}
"""
DIVIDED_RIGHT = {"END": "offsets[g + 1]", "OF": "g", "EMPTY": ""}
DIVIDED = Problem(
    *(13, 17, 40, Layout.TN), ldc=19, alpha=1.5, beta=0.5, groups=Groups.parse("0,9,0,1,20")
)
DIVIDED_WRONG = {
    "a row too few": {"END": "offsets[g + 1] - (g == 1)"},
    "a row too many": {"END": "offsets[g + 1] + (g == 3)"},
    "C of the first group": {"OF": "0"},
    "an empty group left out": {"EMPTY": "if (offsets[g] == offsets[g + 1]) continue;"},
}


def planted(text: str, problem: Problem, edits: dict[str, str]) -> Candidate:
    for name, formula in edits.items():
        text = text.replace(name, formula)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    launch = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0)
    extras = tuple(
        Extra(rule.argument, problem.groups.count * problem.n, rule.neutral, is_input=True)
        for rule in epilogue_rules(problem)
    )
    masked = problem.groups.masked
    plan = LaunchPlan((launch,), extras=extras, grouped=True, masked=masked)
    return Candidate(source, plan, compiled)


@pytest.mark.parametrize(
    ("text", "problem", "right", "wrong"),
    [
        (MASKED_KERNEL, MASKED, MASKED_RIGHT, MASKED_WRONG),
        (DIVIDED_KERNEL, DIVIDED, DIVIDED_RIGHT, DIVIDED_WRONG),
    ],
    ids=["masked", "divided"],
)
def test_masked_groups_and_those_of_k_are_compared(
    target: CudaTarget, text: str, problem: Problem, right: dict[str, str], wrong: dict[str, dict]
) -> None:
    target.prepare(problem, OPTIONS)
    found = measured(target, planted(text, problem, right))
    assert (found.status, found.reason) == (Status.OK, "")
    for name, edits in wrong.items():
        found = measured(target, planted(text, problem, right | edits))
        assert found.status is Status.WRONG_RESULT, name


@pytest.mark.parametrize(
    ("text", "problem", "right"),
    [(MASKED_KERNEL, MASKED, MASKED_RIGHT), (DIVIDED_KERNEL, DIVIDED, DIVIDED_RIGHT)],
    ids=["masked", "divided"],
)
def test_they_are_compared_with_loops_of_calls(
    target: CudaTarget, text: str, problem: Problem, right: dict[str, str]
) -> None:
    target.prepare(problem, OPTIONS)
    finals = target.finals([planted(text, problem, right)], 2, 0)
    assert finals.disqualified == ()
    names = {finals.baseline.name, *(one.name for one in finals.calls)}
    assert any(name.startswith("cuBLAS GemmEx, looped") for name in names), names
    wrong = [one.name for one in finals.calls if one.status is Status.WRONG_RESULT]
    # The simulated library's first proposal is wrong; whether it is fast enough to take part
    # depends on the machine's load.
    assert all(name.startswith("cuBLASLt proposal 1,") for name in wrong), wrong


@pytest.mark.parametrize("is_masked", [False, True], ids=["plain", "masked, with an epilogue"])
def test_proposals_write_rows_as_far_apart_as_those_of_c(
    target: CudaTarget, is_masked: bool
) -> None:
    # Where K is 94 the first and the third proposal are the fastest of the simulated library.
    problem = replace(MASKED if is_masked else UNEVEN, k=94, lda=0, ldb=0)
    one = planted(MASKED_KERNEL, problem, MASKED_RIGHT) if is_masked else candidate(problem)
    assert problem.ldc > problem.n
    target.prepare(problem, OPTIONS)
    finals = target.finals([one], 2, 0)
    behind = " + pointwise kernel" if is_masked else ""
    wrong = [one.name for one in finals.calls if one.status is Status.WRONG_RESULT]
    assert wrong == [f"cuBLASLt proposal 1, looped{behind}"]
    assert finals.baseline.name == f"cuBLASLt proposal 3, looped{behind}"
