"""An exported kernel with an epilogue: its program checks it, on the CPU, and fails wrong ones."""

import shutil
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import FAMILY, compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.space import load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

TEMPLATE = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
#include <cuda_runtime.h>

#include <cmath>
#include <cstdlib>
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
#define __forceinline__ inline
{{ epilogue(fused=fused) }}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("float") }}) {
{% endfilter %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    const bool is_wrong = std::getenv("WRONG") != nullptr;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int k = 0; k < K; ++k) {
                sum += A[m * lda + k] * B[k * ldb + n];
            }
            float& c = C[m * ldc + n];
            c = epilogue(sum, c, m, is_wrong && n == N - 1 ? n - 1 : n, with);
        }
    }
}
"""
TEXT = "gelu_tanh(acc + bias[n]) * scale[m] + 0.5 * rest[m, n] + c[m, n]"


def test_the_program_checks_the_epilogue(tmp_path: Path) -> None:
    (tmp_path / "on_cpu.yaml").write_text(FAMILY.format(ab="f32"))
    (tmp_path / "on_cpu.cu.jinja").write_text(TEMPLATE)
    family = load_family(tmp_path)
    problem = Problem(33, 20, 40, ldc=22, dtype=DType.F32, epilogue=Epilogue(TEXT))
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 21))
    assert "const float* epilogue_bias, const float* epilogue_scale," in text
    assert f"// C[m, n] = {TEXT}\n" in text
    program = compile_on_cpu(f"#define KERNEL_ARRAYS 3\n{text}", tmp_path / "best")
    right = run_on_cpu(program, "--rounds", 0)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    # The bias of the column before, in the last one.
    wrong = run_on_cpu(program, "--rounds", 0, WRONG="1")
    assert (wrong.code, wrong.output.count(": WRONG, ")) == (1, 2), wrong.output
