"""The exported program of 8-bit integers on the CPU: right kernels pass, wrong ones are told."""

import re
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import compile_cublas, compile_on_cpu, run_on_cpu

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
dtypes: {a: i8, b: i8, c: [i32, bf16, f32], accumulate: i32}
architectures: ">=70"
parameters:
  BM: {values: [1], doc: nothing}
launch:
  - {kernel: gemm_kernel, threads: 1, grid: 1, smem_bytes: 0}
seeds:
  - {BM: 1}
"""
KERNEL = """\
#include <cuda_runtime.h>
#include <cstdlib>
#include <string>
template <typename T>
T finished(double value) {
    return T((float)value);
}
template <>
int finished<int>(double value) {
    return (int)value;
}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("signed char", "C_TYPE") }}) {
    const char* const set = std::getenv("BUG");
    const std::string bug = set == nullptr ? "" : set;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            int sum = 0;
            for (int k = bug == "first"; k < K; ++k) {
                const signed char a = A[m * lda + k], b = B[n * ldb + k];
                sum += (bug == "unsigned" ? (unsigned char)a : a) * b;
                sum = bug == "fp32" ? (int)(float)sum : sum;
                sum = bug == "16 bits" ? std::max(-32768, std::min(32767, sum)) : sum;
            }
            C_TYPE& c = C[m * ldc + n];
            c = finished<C_TYPE>(alpha * (double)sum + (beta != 0.0f ? beta * (float)c : 0.0));
        }
    }
}
"""


def program(folder: Path, problem: Problem) -> Path:
    (folder / "on_cpu.yaml").write_text(FAMILY)
    (folder / "on_cpu.cu.jinja").write_text(KERNEL.replace("C_TYPE", problem.dtype.c.host_type))
    family = load_family(folder)
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 23))
    return compile_on_cpu(text, folder / "program")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return program(tmp_path_factory.mktemp("i8"), Problem(9, 7, 2080, Layout.NT, DType.I8))


@pytest.mark.parametrize(
    ("bug", "wrong"),
    [
        ("", []),
        ("fp32", ["large"]),
        ("16 bits", ["large", "all"]),
        ("unsigned", ["whole", "all"]),
        ("first", ["whole", "large", "all"]),
    ],
)
def test_wrong_sums_are_told(whole: Path, bug: str, wrong: list[str]) -> None:
    run = run_on_cpu(whole, "--rounds", 0, BUG=bug)
    told = re.findall(r"^verify, (\w+) numbers: (right|WRONG)", run.output, re.MULTILINE)
    assert [name for name, _ in told] == ["whole", "large", "all"], run.output
    assert [name for name, verdict in told if verdict == "WRONG"] == wrong
    assert run.code == (1 if wrong else 0)


def test_scaled_sums_are_right(tmp_path: Path) -> None:
    problem = Problem(9, 7, 2080, Layout.NT, DType.I8_BF16, alpha=0.5, beta=-1.5)
    assert run_on_cpu(program(tmp_path, problem), "--rounds", 0).code == 0


def test_sums_are_not_scaled(whole: Path) -> None:
    for option, value in (("--alpha", "0.5"), ("--beta", "0.5")):
        run = run_on_cpu(whole, option, value)
        assert run.code == 2 and f"not a size or count: '{value}'" in run.output
    assert run_on_cpu(whole, "--beta", 1, "--rounds", 0).code == 0
    assert run_on_cpu(whole, "--beta", 2, "--rounds", 0).code == 1


def test_it_is_timed_beside_cublas(whole: Path) -> None:
    cublas, times = compile_cublas(), whole.with_name("times")
    times.write_text("kernel 300\ngemm_ex 310\n")
    run = run_on_cpu(whole, 9, 7, 16, "--rounds", 3, "--cublas", cublas, TIMES=str(times))
    assert run.code == 0, run.output
    assert "baseline cuBLAS" in run.output
    # Transposed B, then A; types of A, B, C and sums; alpha and beta are integers.
    assert any(
        one.startswith("call gemm_ex 1 0 7 9 16 1 ") and one.endswith(" 3 3 10 72")
        for one in run.trace
    )


def test_a_kernel_says_how_deep_its_sums_may_be() -> None:
    family = load_family("gemm_wgmma")
    problem = Problem(256, 256, 256, Layout.NT, DType.I8)
    seed = {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 4, "SCHEDULE": "cooperative"}
    seed |= {"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1}
    config = family.completed(Config.of("gemm_wgmma", seed | {"GROUP_M": 1, "BLOCKS": 0}))
    kernel = stored_kernel(family, problem, config)
    text = export_cuda(kernel, family, "best.cu", date(2026, 11, 23))
    assert 'return "this kernel has no code for K > 131071";' in text
    assert "alpha != 1.0f || (beta != 0.0f && beta != 1.0f)" in text
    scaled = replace(problem, dtype=DType.I8_BF16).with_epilogue(Epilogue("acc * sa[m] * sb[n]"))
    text = export_cuda(stored_kernel(family, scaled, config), family, "best.cu", date(2026, 11, 23))
    assert "K > 131071" in text
