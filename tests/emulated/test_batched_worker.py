"""Batched problems in the CUDA worker, run on the CPU: references, guards, baselines."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import OPTIONS

from autogemm.model.batch import Batch
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

KERNEL = """
extern "C" int is_batched = 1;
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           int batch, int rows_a, int rows_b, int rows_c) {
    for (long b = 0; b < PRODUCTS; ++b) {
        const float *from_a = A + AT_A, *from_b = B + AT_B;
        float *to = C + AT_C;
        for (long m = 0; m < ROWS; ++m) {
            for (long n = 0; n < N; ++n) {
                float sum = 0;
                for (long k = 0; k < K; ++k) {
                    sum = fmaf(from_a[m * lda + k], from_b[k * ldb + n], sum);
                }
                float &c = to[m * ldc + n];
                c = alpha * sum + (beta != 0 ? beta * c : 0.0f);
            }
        }
    }
    return 0;
}
"""
RIGHT = {
    "PRODUCTS": "batch",
    "AT_A": "b * rows_a * lda",
    "AT_B": "b * rows_b * ldb",
    "AT_C": "b * rows_c * ldc",
    "ROWS": "M",
}
GAPS = Problem(20, 17, 33, ldc=19, alpha=1.5, beta=0.5, batch=Batch(3, 22, None, 21))
WRONG = {
    "the last product left out": {"PRODUCTS": "batch - 1"},
    "one product too many": {"PRODUCTS": "batch + 1"},
    "A of the first product": {"AT_A": "0"},
    "A as far apart as B": {"AT_A": "b * rows_b * lda"},
    "B of the product before": {"AT_B": "(b ? b - 1 : 0) * rows_b * ldb"},
    "C without the gap": {"AT_C": "b * M * ldc"},
    "the gap behind a product written": {"ROWS": "M + 1"},
}


def candidate(problem: Problem, **edits: str) -> Candidate:
    text = KERNEL
    for name, formula in (RIGHT | edits).items():
        text = text.replace(name, formula)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    launch = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0)
    return Candidate(source, LaunchPlan((launch,), batched=True), compiled)


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


def measured(target: CudaTarget, one: Candidate) -> Outcome:
    return target.measure(one, None)


def test_every_product_is_compared_and_every_gap_watched(target: CudaTarget) -> None:
    target.prepare(GAPS, OPTIONS)
    right = measured(target, candidate(GAPS))
    assert (right.status, right.reason) == (Status.OK, "")
    for name, edits in WRONG.items():
        wrong = measured(target, candidate(GAPS, **edits))
        assert wrong.status is Status.WRONG_RESULT, name
    reason = measured(target, candidate(GAPS, **WRONG["the last product left out"])).reason
    assert "of product 2" in reason


def test_products_may_share_an_operand(target: CudaTarget) -> None:
    shared = Problem(20, 17, 33, batch=Batch(3, None, 0, None))
    target.prepare(shared, OPTIONS)
    assert measured(target, candidate(shared)).status is Status.OK
    wrong = measured(target, candidate(shared, AT_B="b * K * ldb"))
    assert wrong.status is Status.WRONG_RESULT


def test_calls_for_batches_and_loops_of_calls_for_one_product_compete(target: CudaTarget) -> None:
    target.prepare(GAPS, OPTIONS)
    finals = target.finals([candidate(GAPS)], 2, 0)
    assert finals.disqualified == ()
    names = {finals.baseline.name, *(one.name for one in finals.calls)}
    for name in ("cuBLAS GemmStridedBatchedEx", "cuBLASLt proposal 3", "cuBLAS SGEMM, looped"):
        assert name in names
    # The stand-in's first proposal is wrong, and is seen to be so unless it is too slow anyway.
    status = {one.name: one.status for one in finals.calls}
    assert status["cuBLASLt proposal 1"] in {Status.WRONG_RESULT, Status.TOO_SLOW}
    assert "cuBLASLt proposal 1, looped" in status


def test_a_call_that_leaves_a_product_out_is_no_baseline(target: CudaTarget) -> None:
    problem = replace(GAPS, k=93, lda=93)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], 2, 0)
    (wrong,) = (one for one in finals.calls if one.name == "cuBLAS GemmStridedBatchedEx")
    assert wrong.status is Status.WRONG_RESULT and "of product 2" in wrong.reason
