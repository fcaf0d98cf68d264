"""The worker's check of promoted sums of 8-bit floats, on a simulated GPU: kernels that promote
more seldom than they say are wrong, others are right.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

OPTIONS = MeasureOptions(deadline_s=200.0, max_samples=1, compares=False)
PROBLEM = Problem(16, 16, 16384, Layout.NT, DType.E4M3_F32)
# Sums as tensor cores make them: 13 bits of fraction, 32 products at a time.
KERNEL = """
static double value(unsigned char bits) {
    const double size = bits & 0x78 ? ldexp(8 + (bits & 7), (bits >> 3 & 15) - 10)
                                    : ldexp(bits & 7, -9);
    return bits & 0x80 ? -size : size;
}
static double step_of(double largest) {
    return largest == 0 ? 0.0 : ldexp(1.0, ilogb(largest) - 13);
}
static double cut(double value, double step) {
    return step == 0 ? value : (double)(long long)(value / step) * step;
}
struct bf16 {
    unsigned short bits;
    bf16() = default;
    bf16(float value) {
        const unsigned u = __float_as_uint(value);
        bits = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
};
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const unsigned char *A, int lda,
                           const unsigned char *B, int ldb, float beta, CC *C, int ldc) {
    static double values[256];
    for (int bits = 0; bits < 256; ++bits) {
        values[bits] = value(bits);
    }
    for (long m = 0; m < M; ++m) {
        for (long n = 0; n < N; ++n) {
            float total = 0.0f;
            double sum = 0.0;
            for (long k = 0; k < K - LEFT_OUT; k += 32) {
                double products[33] = {}, largest = fabs(sum);
                for (long i = 0; i < 32 && k + i < K; ++i) {
                    products[i] = values[A[m * lda + k + i]] * values[B[n * ldb + k + i]];
                    largest = fmax(largest, fabs(products[i]));
                }
                const double step = step_of(largest);
                double next = EVERY == 1 ? sum : cut(sum, step);
                for (double product : products) {
                    next += EVERY == 1 ? product : cut(product, step);
                }
                sum = EVERY == 1 ? next : cut(next, step_of(next));
                if (EVERY > 1 && (k + 32) % EVERY == 0) {
                    total += (float)sum;
                    sum = 0.0;
                }
            }
            C[m * ldc + n] = CC(alpha * (total + (float)sum));
        }
    }
    return 0;
}
"""
C_NAMES = {DType.E4M3_F32: "float", DType.E4M3_F16: "_Float16", DType.E4M3: "bf16"}


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


def measured(
    target: CudaTarget, problem: Problem, said: int, every: int, left_out: int = 0
) -> Outcome:
    values = {"CC": C_NAMES[problem.dtype], "EVERY": str(every), "LEFT_OUT": str(left_out)}
    text = KERNEL
    for name, value in values.items():
        text = text.replace(name, value)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0),), fp32_every=said)
    target.prepare(problem, OPTIONS)
    return target.measure(Candidate(source, plan, compiled), None)


@pytest.mark.parametrize(
    ("dtype", "said", "every", "complaint"),
    [
        (DType.E4M3_F32, 128, 128, ""),
        (DType.E4M3_F32, 512, 512, ""),
        (DType.E4M3_F32, 1, 1, ""),
        # Nothing is promised: never promoting is right.
        (DType.E4M3_F32, 0, 16384, ""),
        (DType.E4M3_F32, 128, 16384, "added in FP32 every 128 of K"),
        (DType.E4M3_F32, 512, 16384, "added in FP32 every 512 of K"),
        (DType.E4M3_F32, 128, 1024, "added in FP32 every 128 of K"),
        (DType.E4M3_F32, 1, 128, "that are in FP32 on real"),
        (DType.E4M3_F16, 128, 128, ""),
        (DType.E4M3_F16, 128, 16384, "added in FP32 every 128 of K"),
        (DType.E4M3, 128, 128, ""),
        (DType.E4M3, 128, 16384, "added in FP32 every 128 of K"),
    ],
    ids=str,
)
def test_a_kernel_is_held_to_its_interval(
    target: CudaTarget, dtype: DType, said: int, every: int, complaint: str
) -> None:
    # Rounding to BF16 is nearly half of the error: more results are needed to tell.
    size = 48 if dtype is DType.E4M3 else 16
    problem = replace(PROBLEM, m=size, n=size, dtype=dtype, ldc=0)
    outcome = measured(target, problem, said, every)
    assert outcome.status is (Status.WRONG_RESULT if complaint else Status.OK), outcome.reason
    assert complaint in outcome.reason


def test_a_last_partial_sum_that_is_left_out_is_wrong(target: CudaTarget) -> None:
    outcome = measured(target, PROBLEM, 128, 128, left_out=32)
    assert outcome.status is Status.WRONG_RESULT
