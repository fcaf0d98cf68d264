"""C in 8-bit floats in the CUDA worker, run on the CPU: references, NaN and what is too large."""

import shutil
from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import OPTIONS
from test_epilogue_worker import candidate, measured, target

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# Sums in double: what is left is the rounding of C.
KERNEL = """
extern "C" int num_arrays = 2;
static double value(unsigned char bits) {
    const double size = bits & 0x78 ? ldexp(8 + (bits & 7), (bits >> 3 & 15) - 10)
                                    : ldexp(bits & 7, -9);
    return (bits & 0x7f) == 0x7f ? NAN : bits & 0x80 ? -size : size;
}
static unsigned char nearest(double x) {
    if (x != x) {
        return IF_NAN;
    }
    int best = 0;
    for (int bits = 0; bits < 0x7f; ++bits) {
        const double before = fabs(value(best) - fabs(x)), now = fabs(value(bits) - fabs(x));
        best = now < before || (now == before && bits % 2 == 0) ? bits : best;
    }
    return (fabs(x) > 448 ? IF_LARGE : best) | (x < 0 ? 0x80 : 0);
}
static float of_bf16(unsigned short bits) {
    const unsigned wide = bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const unsigned char *A, int lda,
                           const unsigned char *B, int ldb, float beta, unsigned char *C, int ldc,
                           unsigned short *bias, float *scale) {
    for (long m = 0; m < M; ++m) {
        for (long n = 0; n < N; ++n) {
            double acc = 0;
            for (long k = 0; k < K; ++k) {
                acc += value(A[m * lda + k]) * value(B[n * ldb + k]);
            }
            C[m * ldc + n] = nearest(FORMULA);
        }
    }
    return 0;
}
"""
# A fixture.
__all__ = ["target"]
PROBLEM = Problem(
    *(20, 50, 48), Layout.NT, DType.E4M3_E4M3, ldc=56,
    epilogue=Epilogue("(acc + bias[n]) * scale[m]; scale: f32"),
)  # fmt: skip
FORMULA = "(float)((float)acc + of_bf16(bias[n])) * scale[m]"


def test_a_right_kernel_passes_and_wrong_ones_do_not(target: CudaTarget) -> None:
    target.prepare(PROBLEM, replace(OPTIONS, compares=False))
    kernel = KERNEL.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7e")
    right = measured(target, candidate(PROBLEM, FORMULA, kernel=kernel))
    assert (right.status, right.reason) == (Status.OK, "")
    wrong = {
        "NaN is 448": KERNEL.replace("IF_NAN", "0x7e").replace("IF_LARGE", "0x7e"),
        "what is too large is NaN": KERNEL.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7f"),
        "240 is the largest": KERNEL.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x77"),
        "no subnormal numbers": kernel.replace(": ldexp(bits & 7, -9);", ": 0.0;"),
        "a product is left out": kernel.replace("k < K", "k < K - 1"),
        "no scale": kernel.replace("FORMULA", FORMULA.replace(" * scale[m]", "")),
        "another column's bias": kernel.replace("FORMULA", FORMULA.replace("[n]", "[n ^ 1]")),
    }
    for name, text in wrong.items():
        one = measured(target, candidate(PROBLEM, FORMULA, kernel=text))
        assert one.status is Status.WRONG_RESULT, name


def test_c_is_read_and_multiplied(target: CudaTarget) -> None:
    problem = replace(PROBLEM, epilogue=Epilogue(), alpha=0.5, beta=-1.5)
    target.prepare(problem, replace(OPTIONS, compares=False))
    kernel = KERNEL.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7e")
    kernel = kernel.replace(",\n                           unsigned short *bias, float *scale", "")
    kernel = kernel.replace("num_arrays = 2", "num_arrays = 0")
    formula = "fmaf(alpha, (float)acc, beta * (float)value(C[m * ldc + n]))"
    right = measured(target, candidate(problem, formula, kernel=kernel))
    assert (right.status, right.reason) == (Status.OK, "")
    wrong = candidate(problem, formula.replace("alpha", "1"), kernel=kernel)
    assert measured(target, wrong).status is Status.WRONG_RESULT
