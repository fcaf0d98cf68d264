"""The exported program of a kernel with scales of blocks, on the CPU: right kernels pass, wrong
ones are told, and cuBLASLt is asked for the same scales.
"""

import shutil
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

FAMILY = """
family: on_cpu
summary: A loop that runs on the CPU.
dtypes: {a: e4m3, b: e4m3, c: [bf16, f32], accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [1], doc: nothing}
launch:
  - {kernel: gemm_kernel, threads: 1, grid: 1, smem_bytes: 0}
seeds:
  - {BM: 1}
"""
KERNEL = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
#include <cuda_runtime.h>
#include <cmath>
#include <cstdlib>
#include <string>
#define __forceinline__ inline
{{ epilogue(fused=fused) }}
static double value(unsigned char bits) {
    const int exponent = bits >> 3 & 15;
    const double size = exponent ? std::ldexp(8 + (bits & 7), exponent - 10)
                                 : std::ldexp(bits & 7, -9);
    return bits & 0x80 ? -size : size;
}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("unsigned char", "float") }}) {
{% endfilter %}
    const char* const set = std::getenv("BUG");
    const std::string bug = set == nullptr ? "" : set;
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    const int blocks = (K + 127) / 128;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int block = 0; block < blocks - (bug == "last block"); ++block) {
                double part = 0.0;
                for (int k = 128 * block; k < K && k < 128 * block + 128; ++k) {
                    part += value(A[m * lda + k]) * value(B[n * ldb + k]);
                }
                const int of_a = bug == "row" ? m ^ 1 : m;
                const int of_b = bug == "column" ? 0 : n / 128;
                const float a = with.sa[block * M + of_a];
                const float b = with.sb[of_b * blocks + (bug == "block" ? 0 : block)];
                sum += (float)part * (bug == "scale" ? a : a * b);
            }
            C[m * ldc + n] = epilogue(sum, 0.0f, m, n, with);
        }
    }
}
"""
SCALED = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
PROBLEM = Problem(10, 140, 300, Layout.NT, DType.E4M3_F32, epilogue=Epilogue(SCALED))


def program(folder: Path, problem: Problem) -> Path:
    (folder / "on_cpu.yaml").write_text(FAMILY)
    (folder / "on_cpu.cu.jinja").write_text(KERNEL)
    family = load_family(folder)
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 23))
    arrays = len(problem.epilogue.inputs)
    return compile_on_cpu(f"#define KERNEL_ARRAYS {arrays}\n{text}", folder / "program")


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("scaled"), PROBLEM)


@pytest.mark.parametrize("bug", ["", "scale", "row", "column", "block", "last block"])
def test_wrong_scales_are_told(scaled: Path, bug: str) -> None:
    run = run_on_cpu(scaled, "--rounds", 0, BUG=bug)
    assert run.code == (1 if bug else 0), run.output
    assert run.output.count("WRONG") == (2 if bug else 0), run.output


def test_more_than_scales_is_right(tmp_path: Path) -> None:
    more = PROBLEM.with_epilogue(Epilogue(f"relu({SCALED} + bias[n])"))
    assert run_on_cpu(program(tmp_path, more), "--rounds", 0).code == 0


def test_the_baseline_reads_the_same_scales() -> None:
    family = load_family("gemm_wgmma")
    seed = {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 4, "SCHEDULE": "cooperative"}
    seed |= {"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1}
    values = seed | {"GROUP_M": 1, "BLOCKS": 0, "PROMOTE": 128}
    config = family.completed(Config.of("gemm_wgmma", values))
    problem = Problem(256, 256, 512, Layout.NT, DType.E4M3, epilogue=Epilogue(SCALED))
    text = export_cuda(
        stored_kernel(family, problem, config), family, "best.cu", date(2026, 11, 23)
    )
    assert "void* const scales_a = padded_scales_.data;" in text
    assert 'pointwise kernel", queue' not in text
    assert "an array of ceil_div(K, 128) * M elements" in text
