"""C in 8-bit floats in the CUDA worker, run on the CPU: references, NaN and what is too large."""

import shutil
from dataclasses import replace

import pytest
from test_cuda_worker_on_cpu import OPTIONS
from test_epilogue_worker import candidate, measured, target

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# Sums in double: what is left is the rounding of C.
KERNEL = """
extern "C" int num_arrays = 2;
static double value(unsigned char bits) {
    static const double powers[] = {0x1p-9, 0x1p-9, 0x1p-8, 0x1p-7, 0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3,
                                    0x1p-2, 0x1p-1, 1,      2,      4,      8,      16,     32};
    const double size = (bits & 0x78 ? 8 + (bits & 7) : bits & 7) * powers[bits >> 3 & 15];
    return (bits & 0x7f) == 0x7f ? NAN : bits & 0x80 ? -size : size;
}
static unsigned char nearest(double x) {
    if (x != x) {
        return IF_NAN;
    }
    int best = 0;
    while (best < 0x7e && 2 * fabs(x) >= value(best) + value(best + 1)) {
        // The next one is as near or nearer.
        if (2 * fabs(x) == value(best) + value(best + 1) && best % 2 == 0) {
            break;
        }
        ++best;
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
BF16 = """
static unsigned short bf16(float value) {
    unsigned bits;
    memcpy(&bits, &value, 4);
    return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : OF_NAN;
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
    problem = replace(PROBLEM, epilogue=Epilogue(), alpha=0.5, beta=-1.5)
    target.prepare(problem, replace(OPTIONS, compares=False))
    kernel = KERNEL.replace(",\n                           unsigned short *bias, float *scale", "")
    kernel = kernel.replace("num_arrays = 2", "num_arrays = 0")
    formula = "fmaf(alpha, (float)acc, beta * (float)value(C[m * ldc + n]))"

    def verified(if_nan: str, if_large: str, depth: str = "K") -> Outcome:
        text = kernel.replace("IF_NAN", if_nan).replace("IF_LARGE", if_large)
        text = text.replace("k < K", f"k < {depth}")
        return measured(target, candidate(problem, formula, kernel=text))

    right = verified("0x7f", "0x7e")
    assert (right.status, right.reason) == (Status.OK, "")
    assert verified("0x7e", "0x7e").status is Status.WRONG_RESULT, "NaN is 448"
    assert verified("0x7f", "0x7f").status is Status.WRONG_RESULT, "what is too large is NaN"
    assert verified("0x7f", "0x7e", "K - 1").status is Status.WRONG_RESULT, "a product less"


def test_a_second_output_in_16_bits_keeps_nan(target: CudaTarget) -> None:
    text = "aux[m, n] = (acc + bias[n]) * scale[m]; relu(aux); scale: f32"
    problem = replace(PROBLEM, epilogue=Epilogue(text))
    target.prepare(problem, replace(OPTIONS, compares=False))
    kernel = BF16 + KERNEL.replace("*scale)", "*scale, unsigned short *aux)")
    kernel = kernel.replace("num_arrays = 2", "num_arrays = 3")
    kernel = kernel.replace("nearest(FORMULA)", "nearest(of_aux < 0 ? 0 : of_aux)")
    write = f"const float of_aux = {FORMULA};\n            aux[m * N + n] = bf16(of_aux);"
    kernel = kernel.replace("C[m * ldc + n] =", f"{write}\n            C[m * ldc + n] =")
    kernel = kernel.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7e")
    for nan, status in (("0x7fff", Status.OK), ("0x8000", Status.WRONG_RESULT)):
        outcome = measured(target, candidate(problem, kernel=kernel.replace("OF_NAN", nan)))
        assert outcome.status is status, outcome.reason


def test_the_baseline_makes_8_bits_of_16(target: CudaTarget) -> None:
    epilogue = Epilogue("(acc + bias[n]) * scale[m]; scale: f32")
    problem = Problem(20, 48, 48, Layout.NT, DType.BF16_E4M3, epilogue=epilogue)
    target.prepare(problem, OPTIONS)
    kernel = KERNEL.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7e")
    kernel = kernel.replace("const unsigned char *", "const unsigned short *")
    for matrix in ("A[m * lda", "B[n * ldb"):
        kernel = kernel.replace(f"value({matrix}", f"of_bf16({matrix}")
    finals = target.finals([candidate(problem, FORMULA, kernel=kernel)], 2, 0)
    assert finals.baseline.name.endswith(" + pointwise kernel")
    assert finals.baseline.verification is not None


def test_what_is_added_to_8_bits_is_added_behind_the_product(target: CudaTarget) -> None:
    """cuBLAS adds nothing to a C of 8 bits."""
    problem = replace(PROBLEM, epilogue=Epilogue(), alpha=0.5, beta=-1.5)
    target.prepare(problem, OPTIONS)
    formula = "fmaf(alpha, (float)acc, beta * (float)value(C[m * ldc + n]))"
    kernel = KERNEL.replace(",\n                           unsigned short *bias, float *scale", "")
    kernel = kernel.replace("num_arrays = 2", "num_arrays = 0")
    kernel = kernel.replace("IF_NAN", "0x7f").replace("IF_LARGE", "0x7e")
    finals = target.finals([candidate(problem, formula, kernel=kernel)], 2, 0)
    assert finals.baseline.name.endswith(" + pointwise kernel")
    assert finals.baseline.verification is not None
