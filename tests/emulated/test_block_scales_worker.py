"""Scales of blocks in the CUDA worker, run on the CPU: references and bounds."""

import shutil
from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import OPTIONS
from test_epilogue_worker import candidate, measured, target

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# Sums of 128 products in double: what is left are the roundings of FP32.
KERNEL = """
extern "C" int num_arrays = 2;
static double value(unsigned char bits) {
    const double size = bits & 0x78 ? ldexp(8 + (bits & 7), (bits >> 3 & 15) - 10)
                                    : ldexp(bits & 7, -9);
    return bits & 0x80 ? -size : size;
}
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const unsigned char *A, int lda,
                           const unsigned char *B, int ldb, float beta, float *C, int ldc,
                           float *sa, float *sb) {
    const long blocks = (K + 127) / 128;
    for (long m = 0; m < M; ++m) {
        for (long n = 0; n < N; ++n) {
            float acc = 0;
            for (long block = 0; block < BLOCKS; ++block) {
                double sum = 0;
                for (long k = 128 * block; k < K && k < 128 * block + 128; ++k) {
                    sum += value(A[m * lda + k]) * value(B[n * ldb + k]);
                }
                acc += (float)sum * (SCALES);
            }
            C[m * ldc + n] = FORMULA;
        }
    }
    return 0;
}
"""
# A fixture.
__all__ = ["target"]
SCALES = "sa[block * M + m] * sb[n / 128 * blocks + block]"
PRODUCT = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
PROBLEM = Problem(
    *(20, 150, 300), Layout.NT, DType.E4M3_F32, lda=304, ldb=320, epilogue=Epilogue(PRODUCT)
)


def scaled(problem: Problem, scales: str = SCALES, blocks: str = "blocks") -> Candidate:
    kernel = KERNEL.replace("BLOCKS", blocks).replace("SCALES", scales)
    made = candidate(problem, "acc", kernel=kernel)
    counts = (3 * problem.m, 2 * 3)
    extras = tuple(
        replace(one, count=count) for one, count in zip(made.plan.extras, counts, strict=True)
    )
    return replace(made, plan=replace(made.plan, extras=extras))


WRONG = {
    "no scale of A": "sb[n / 128 * blocks + block]",
    "no scale of B": "sa[block * M + m]",
    "the neighbour's row": "sa[block * M + (m ^ 1)] * sb[n / 128 * blocks + block]",
    "the block before": "sa[(block ? block - 1 : 0) * M + m] * sb[n / 128 * blocks + block]",
    "the first columns": "sa[block * M + m] * sb[block]",
    "scales of B that lie otherwise": "sa[block * M + m] * sb[n / 128 + block * 2]",
}


def test_a_right_kernel_passes_and_wrong_ones_do_not(target: CudaTarget) -> None:
    target.prepare(PROBLEM, replace(OPTIONS, compares=False))
    right = measured(target, scaled(PROBLEM))
    assert (right.status, right.reason) == (Status.OK, "")
    assert right.verification is not None and right.verification.max_error_ratio < 0.1
    wrong = {name: scaled(PROBLEM, scales) for name, scales in WRONG.items()}
    wrong["the last block is left out"] = scaled(PROBLEM, blocks="blocks - 1")
    for name, one in wrong.items():
        assert measured(target, one).status is Status.WRONG_RESULT, name


@pytest.mark.parametrize(
    ("rows", "name"),
    [(20, "cuBLASLt proposal 3"), (21, "conversion to bf16"), (1, "conversion to")],
)
def test_operands_are_converted_where_cublaslt_has_no_call(
    target: CudaTarget, rows: int, name: str
) -> None:
    """The twin of cuBLASLt has none for rows that are no multiple of 4, as on a GPU."""
    problem = replace(PROBLEM, m=rows)
    target.prepare(problem, OPTIONS)
    finals = target.finals([scaled(problem)], 2, 0)
    assert finals.disqualified == ()
    right = {finals.baseline.name} | {c.name for c in finals.calls if c.status is Status.OK}
    assert any(one.startswith(name) for one in right), right
