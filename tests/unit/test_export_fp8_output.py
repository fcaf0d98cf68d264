"""The exported program of a kernel with C in 8-bit floats, on the CPU: right kernels pass, wrong
ones are told, and cuBLASLt is asked for the same C.
"""

import shutil
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config, Value
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
dtypes: {a: e4m3, b: e4m3, c: e4m3, accumulate: f32}
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
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <cmath>
#include <cstdlib>
#include <string>
#define __forceinline__ inline
{{ epilogue(fused=fused) }}
static float value(unsigned char bits) {
    __nv_fp8_e4m3 element;
    element.__x = bits;
    return (float)element;
}
{% filter filled %}
{% set byte = "unsigned char" %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel(byte, byte) }}) {
{% endfilter %}
    const char* const set = std::getenv("BUG");
    const std::string bug = set == nullptr ? "" : set;
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            double sum = 0.0;
            for (int k = 0; k < K - (bug == "last product"); ++k) {
                sum += value(A[m * lda + k]) * value(B[n * ldb + k]);
            }
            const float old_c = with.reads_c() ? value(C[m * ldc + n]) : 0.0f;
            float x = epilogue((float)sum, old_c, m, n, with);
            if (bug == "NaN is a number" && x != x || bug == "small" && std::fabs(x) > 240.0f) {
                x = 240.0f;
            }
            if (bug == "too large is NaN" && std::fabs(x) > 448.0f) {
                x = NAN;
            }
            C[m * ldc + n] = __nv_fp8_e4m3(x).__x;
        }
    }
}
"""
PROBLEM = Problem(10, 34, 48, Layout.NT, DType.E4M3_E4M3, ldc=40)
SCALED = PROBLEM.with_epilogue(Epilogue("acc * scale[m]; scale: f32"))
BUGS = ["", "NaN is a number", "small", "too large is NaN", "last product"]


def program(folder: Path, problem: Problem) -> Path:
    (folder / "on_cpu.yaml").write_text(FAMILY)
    (folder / "on_cpu.cu.jinja").write_text(KERNEL)
    family = load_family(folder)
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 24))
    arrays = sum(bool(one.axes) for one in problem.epilogue.inputs)
    return compile_on_cpu(f"#define KERNEL_ARRAYS {arrays}\n{text}", folder / "program")


@pytest.fixture(scope="module", params=[PROBLEM, SCALED], ids=["plain", "scaled"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("exported"), request.param)


@pytest.mark.parametrize("bug", BUGS)
def test_wrong_elements_are_told(exported: Path, bug: str) -> None:
    run = run_on_cpu(exported, "--rounds", 0, BUG=bug)
    assert run.code == (1 if bug else 0), run.output
    assert ("WRONG" in run.output) == bool(bug), run.output


def test_the_baseline_has_the_same_c() -> None:
    family = load_family("gemm_wgmma")
    values: dict[str, Value] = {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "STAGES": 4}
    values |= {"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1}
    values |= {"GROUP_M": 1, "BLOCKS": 0, "PROMOTE": 128, "SCHEDULE": "cooperative"}
    config = family.completed(Config.of("gemm_wgmma", values))

    def exported(text: str) -> str:
        problem = Problem(256, 256, 512, Layout.NT, DType.E4M3_E4M3, epilogue=Epilogue(text))
        kernel = stored_kernel(family, problem, config)
        return export_cuda(kernel, family, "best.cu", date(2026, 11, 24))

    scaled = exported("relu(acc + bias[n]) * s")
    assert "set(multiply, SCALE_POINTER_D, &scale, sizeof(void*))" in scaled
    assert "const float value = 1.25f;" in scaled
    assert "create(&layouts[2], with_epilogue ? 28 : TYPE_C, p.N, p.M, p.ldc)" in scaled
    assert "static constexpr int TYPE_C = 14;" in scaled
    plain = exported("")
    assert "create(&layouts[3], 14, p.N, p.M, p.ldc)" in plain
    assert "static constexpr int TYPE_C = 28;" in plain
