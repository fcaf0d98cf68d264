"""The exported program's check of FP32, run on the CPU: arithmetic that is coarser is found."""

import re
import shutil
from pathlib import Path

import pytest

from autogemm.model.problem import Layout, Problem

exported_program = pytest.importorskip("exported_program")

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

# One product after the other, by the ARITHMETIC of the environment.
KERNEL = """
#include <cuda_runtime.h>
#include <cstring>
static float to_bits(float value, int num_bits) {
    unsigned bits, dropped = 24 - num_bits;
    std::memcpy(&bits, &value, 4);
    bits = (bits + (1u << (dropped - 1))) >> dropped << dropped;
    std::memcpy(&value, &bits, 4);
    return value;
}
template <bool TRANS_A, bool TRANS_B, typename T>
void multiply_on_cpu(int M, int N, int K, float alpha, const T* A, int lda, const T* B, int ldb,
                     float beta, T* C, int ldc, int) {
    const std::string arithmetic = std::getenv("ARITHMETIC");
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) {
                const float a = TRANS_A ? A[(long)k * lda + m] : A[(long)m * lda + k];
                const float b = TRANS_B ? B[(long)n * ldb + k] : B[(long)k * ldb + n];
                if (arithmetic == "tf32") {
                    sum += to_bits(a, 11) * to_bits(b, 11);
                } else if (arithmetic == "bf16x3") {
                    const float x = to_bits(a, 8), y = to_bits(b, 8);
                    sum += x * y + (x * to_bits(b - y, 8) + to_bits(a - x, 8) * y);
                } else {
                    sum += a * b;
                    sum = arithmetic == "sum20" ? to_bits(sum, 20) : sum;
                }
            }
            float& c = C[(long)m * ldc + n];
            c = alpha * sum + (beta != 0.0f ? beta * c : 0.0f);
        }
    }
}
"""


@pytest.fixture(scope="module", params=[Layout.NN, Layout.TT], ids=str)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("precision")
    text = exported_program.exported_text(Problem(24, 20, 40, layout=request.param), folder)
    assert '#include "kernel.h"\n' in text
    path: Path = exported_program.compile_on_cpu(
        text.replace('#include "kernel.h"\n', KERNEL), folder / "program"
    )
    return path


@pytest.mark.parametrize(
    ("arithmetic", "depth", "is_fp32"),
    [
        ("fp32", 1, True),
        ("fp32", 40, True),
        ("fp32", 3000, True),
        ("tf32", 3000, False),
        ("bf16x3", 3000, False),
        ("bf16x3", 40, False),
        ("sum20", 40, False),
        ("sum20", 1, False),
    ],
)
def test_coarser_arithmetic_is_found(
    program: Path, arithmetic: str, depth: int, is_fp32: bool
) -> None:
    sizes = (24, 20, depth, "--alpha", -0.5, "--beta", 2 if is_fp32 else 0)
    run = exported_program.run_on_cpu(program, *sizes, "--rounds", 0, ARITHMETIC=arithmetic)
    verdicts = dict(re.findall(r"^precision, (\w+) products: ([A-Z0-9 ]+), ", run.output, re.M))
    assert verdicts["few"] == ("FP32" if is_fp32 else "LESS THAN FP32"), run.output
    assert verdicts["all"] == "FP32" or not is_fp32
    assert run.code == (0 if is_fp32 else 1), run.output
