"""The calls that an exported program of 8-bit types, or of groups, is timed beside: on the CPU."""

import re
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import Run, compile_cublas, compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

FAMILY = """
family: on_cpu
summary: A loop that runs on the CPU.
dtypes: {a: AB, b: AB, c: [i32, bf16, f16, f32], accumulate: SUMS}
architectures: ">=70"
parameters:
  BM: {values: [1], doc: nothing}
launch:
  - {kernel: gemm_kernel, threads: 1, grid: GRID, smem_bytes: 0}
seeds:
  - {BM: 1}
"""
KERNEL = """\
{% from "parts/epilogue/epilogue.cu.jinja" import epilogue, epilogue_arguments %}
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#define __forceinline__ inline
{{ epilogue(fused=fused) if fused }}
template <typename To, typename Byte>
To element(signed char bits) {
    return bits;
}
template <typename To, typename Byte>
To element(unsigned char bits) {
    Byte value;
    value.__x = bits;
    return value;
}
template <typename To, typename Byte>
To element(float value) {
    return value;
}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("AB_TYPE", "C_TYPE") }}) {
{% endfilter %}
    {% if fused %}
    const Epilogue with = {{ epilogue_arguments(fused=fused) }};
    {% endif %}
    {% if grouped %}
    for (int g = 0; g < groups; ++g) {
        const AB_TYPE* from_b = B + (long long)g * N * ldb;
        const int first = offsets[g], end = offsets[g + 1];
    {% else %}
    {
        const AB_TYPE* from_b = B;
        const int first = 0, end = M;
    {% endif %}
        for (int m = first; m < end; ++m) {
            for (int n = 0; n < N; ++n) {
                float sum = 0.0f;
                for (int k = 0; k < K; ++k) {
                    float b = element<float, B_BYTE>(from_b[n * ldb + k]);
                    {% if fused and fused.scales %}
                    b *= {{ fused.scales[0].argument }}[k / 128 * M + m];
                    {% if grouped %}
                    const int before = g * ((N + 127) / 128) + n / 128;
                    {% else %}
                    const int before = n / 128;
                    {% endif %}
                    b *= {{ fused.scales[1].argument }}[before * ((K + 127) / 128) + k / 128];
                    {% endif %}
                    sum += element<float, A_BYTE>(A[m * lda + k]) * b;
                }
                C_TYPE& c = C[m * ldc + n];
                {% if fused %}
                c = C_TYPE(epilogue(sum, 0.0f, m, n, with));
                {% else %}
                c = C_TYPE(alpha * sum + (beta != 0.0f ? beta * (float)c : 0.0f));
                {% endif %}
            }
        }
    }
}
"""
PROBLEM = Problem(9, 7, 40, Layout.NT, DType.E4M3)
GROUPS = Groups.parse("0,7,12,0,11")
WIDE = "conversion to bf16 + cuBLAS GemmEx"
TIMES = "kernel 300\ngemm_ex 310\nlt1 400\nlt3 410\n"


def program_of(problem: Problem, folder: Path, baseline: str = "") -> Path:
    ab, b, has_groups = problem.dtype.ab, problem.dtype.b, not problem.groups.is_none
    grid = "[1, 1, 1 + groups]" if has_groups else "1"
    sums = "i32" if ab.is_integer else "f32"
    (folder / "on_cpu.yaml").write_text(
        FAMILY.replace("b: AB", f"b: {b.label}")
        .replace("AB", ab.label)
        .replace("GRID", grid)
        .replace("SUMS", sums)
    )
    text = KERNEL.replace("AB_TYPE", ab.c_name).replace("C_TYPE", problem.dtype.c.host_type)
    for place, one in (("A_BYTE", ab), ("B_BYTE", b)):
        text = text.replace(place, one.host_type if one.saturates else "__nv_fp8_e4m3")
    (folder / "on_cpu.cu.jinja").write_text(text)
    family = load_family(folder)
    stored = replace(stored_kernel(family, problem), baseline=baseline or None)
    text = export_cuda(stored, family, "best.cu", date(2026, 11, 28))
    defines = "#define KERNEL_IS_GROUPED\n" if has_groups else ""
    arrays = sum(bool(one.axes) for one in problem.epilogue.arrays)
    defines += f"#define KERNEL_ARRAYS {arrays}\n" if arrays else ""
    return compile_on_cpu(defines + text, folder / "program")


@pytest.fixture(scope="module")
def cublas() -> Path:
    return compile_cublas()


def timed(program: Path, cublas: Path, times: str, **variables: str) -> Run:
    """A run by a clock that says so many tenths of milliseconds: longer launches are fewer, and the
    kernel is slow on a CPU.
    """
    path = program.with_name("times")
    path.write_text(times.replace("\n", "00\n"))
    fixed = {"TIMES": str(path), "DRIFT": "0.01"}
    run = run_on_cpu(program, "--rounds", 5, "--cublas", cublas, **fixed, **variables)
    assert run.code == 0, run.output
    return run


def baseline_of(run: Run) -> str:
    assert "baseline" in run.output, run.output
    (name,) = re.findall(r"^baseline (.*), the fastest of", run.output, re.MULTILINE)
    return name


def test_sums_of_8_bit_floats_have_two_ways(tmp_path: Path, cublas: Path) -> None:
    """The kernel may add up as fast as tensor cores do: so may cuBLASLt."""
    program = program_of(PROBLEM, tmp_path)
    times = "kernel 300\nlt1 400\nlt3 410\nlt1f 390\nlt3f 320\n"
    assert baseline_of(timed(program, cublas, times)) == "cuBLASLt proposal 2 (fast accumulation)"
    exact = times.replace("320", "420").replace("400", "310")
    assert baseline_of(timed(program, cublas, exact)) == "cuBLASLt proposal 1"
    wrong = timed(program, cublas, times, CALL_FAULT="lt3f last")
    assert "left out cuBLASLt proposal 2 (fast accumulation), which is wrong here" in wrong.output


@pytest.mark.parametrize("dtype", [DType.E5M2, DType.E5M2_F32], ids=str)
def test_two_e5m2_are_converted(tmp_path: Path, cublas: Path, dtype: DType) -> None:
    """cuBLAS multiplies no two matrices of them."""
    program = program_of(replace(PROBLEM, dtype=dtype), tmp_path)
    run = timed(program, cublas, TIMES)
    assert baseline_of(run) == WIDE
    assert "left out" not in run.output
    of_c = 14 if dtype is DType.E5M2 else 0
    assert any(
        one.startswith("call gemm_ex") and one.endswith(f" 14 14 {of_c} 68") for one in run.trace
    )
    wrong = timed(program, cublas, TIMES, CALL_FAULT="gemm_ex last")
    assert f"left out {WIDE}, which is wrong here" in wrong.output


BLOCKS = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (Problem(3, 130, 144, Layout.NT, DType.E5M2), WIDE),
        (Problem(3, 130, 150, Layout.NT, DType.E5M2), WIDE),
        (Problem(3, 130, 150, Layout.NT, DType.E4M3), WIDE),
        (Problem(3, 130, 150, Layout.NT, DType.E5M2_E5M2), WIDE + " + pointwise kernel"),
    ],
    ids=lambda value: value.label if isinstance(value, Problem) else "",
)
def test_converted_operands_have_the_scales_of_blocks(
    tmp_path: Path, cublas: Path, problem: Problem, name: str
) -> None:
    problem = problem.with_epilogue(Epilogue(BLOCKS))
    run = timed(program_of(problem, tmp_path, baseline=name), cublas, TIMES)
    assert baseline_of(run) == name
    assert "left out" not in run.output
    # The plain product, of which cuBLASLt has no scales.
    assert "SCALE_MODE_A" not in (tmp_path / "program.cpp").read_text()


@pytest.mark.parametrize("k", [144, 512, 520])
def test_scales_of_blocks_are_arranged_for_cublas(tmp_path: Path, cublas: Path, k: int) -> None:
    """Rows of scales of B are a multiple of 4 apart there."""
    problem = Problem(3, 130, k, Layout.NT, DType.E4M3).with_epilogue(Epilogue(BLOCKS))
    program = program_of(problem, tmp_path)
    times = "kernel 300\nlt1 400\nlt3 310\n"
    run = timed(program, cublas, times)
    assert baseline_of(run) == "cuBLASLt proposal 2"
    assert "left out" not in run.output
    wrong = timed(program, cublas, times, CALL_FAULT="lt3 last")
    assert "left out cuBLASLt proposal 2, which is wrong here" in wrong.output


@pytest.mark.parametrize("dtype", [DType.E4M3_E4M3, DType.E4M3], ids=str)
def test_nothing_is_added_to_a_c_of_8_bits(tmp_path: Path, cublas: Path, dtype: DType) -> None:
    program = program_of(replace(PROBLEM, dtype=dtype), tmp_path)
    times = "kernel 300\nlt1 400\nlt3 410\nlt1f 390\nlt3f 320\n"
    run = timed(program, cublas, times)
    assert baseline_of(run) == "cuBLASLt proposal 2 (fast accumulation)"
    assert "left out" not in run.output
    wrong = timed(program, cublas, times, CALL_FAULT="lt3f last")
    assert "left out cuBLASLt proposal 2 (fast accumulation), which is wrong here" in wrong.output


@pytest.mark.parametrize(
    ("dtype", "types"), [(DType.E4M3_BY_E5M2, "29 28"), (DType.E5M2_BY_E4M3, "28 29")], ids=str
)
def test_operands_of_two_types_are_multiplied_as_they_are(
    tmp_path: Path, cublas: Path, dtype: DType, types: str
) -> None:
    program = program_of(replace(PROBLEM, dtype=dtype), tmp_path)
    text = " ".join((tmp_path / "program.cpp").read_text().split())
    assert f"const {dtype.ab.host_type}* A, int lda, const {dtype.b.host_type}* B" in text
    times = "kernel 300\nlt1 400\nlt3 410\nlt1f 390\nlt3f 320\n"
    run = timed(program, cublas, times)
    assert baseline_of(run) == "cuBLASLt proposal 2 (fast accumulation)"
    assert "left out" not in run.output
    # Column-major: B's type comes first.
    assert f"operands {types}" in run.trace
    wrong = timed(program, cublas, times, CALL_FAULT="lt3f last")
    assert "left out cuBLASLt proposal 2 (fast accumulation), which is wrong here" in wrong.output


def test_a_short_c_of_integers_is_made_behind_their_sums(tmp_path: Path, cublas: Path) -> None:
    scaled = replace(PROBLEM, dtype=DType.I8_BF16)
    scaled = scaled.with_epilogue(Epilogue("acc * sa[m] * sb[n]; sa: f32; sb: f32"))
    program = program_of(scaled, tmp_path)
    run = timed(program, cublas, TIMES)
    assert baseline_of(run) == "cuBLAS GemmEx + pointwise kernel"
    assert "left out" not in run.output
    # Nothing is rounded before the epilogue, and nothing allowed for it.
    assert '" + pointwise kernel", queue, false};' in (tmp_path / "program.cpp").read_text()
    # Types of A, B, C and sums; alpha and beta are integers.
    assert any(re.match(r"call gemm_ex .* 1 40 40 0 7 3 3 10 72$", one) for one in run.trace)
    wrong = timed(program, cublas, TIMES, CALL_FAULT="gemm_ex last")
    assert "left out cuBLAS GemmEx + pointwise kernel, which is wrong here" in wrong.output


@pytest.mark.parametrize("dtype", [DType.I8_BF16, DType.E5M2_E5M2], ids=str)
def test_it_is_told_that_there_is_no_call(tmp_path: Path, cublas: Path, dtype: DType) -> None:
    program = program_of(replace(PROBLEM, dtype=dtype), tmp_path)
    run = timed(program, cublas, "kernel 300\n")
    assert "cuBLAS   has no call here, so no ratio\n" in run.output
    assert "ratio  " not in run.output


@pytest.mark.parametrize(
    ("dtype", "fastest", "name"),
    [
        (DType.F32, "lt3 30", "cuBLASLt proposal 2, looped"),
        (DType.F32, "gemm_ex 30", "cuBLAS GemmEx, looped"),
        (DType.E4M3, "lt1f 30", "cuBLASLt proposal 1 (fast accumulation), looped"),
    ],
)
def test_proposals_for_each_group_are_a_loop(
    tmp_path: Path, cublas: Path, dtype: DType, fastest: str, name: str
) -> None:
    problem = Problem(33, 20, 40, Layout.NT, dtype, ldc=22, groups=GROUPS)
    program = program_of(problem, tmp_path)
    times = {"sgemm": 60, "gemm_ex": 60, "lt1": 70, "lt3": 80, "lt1f": 90, "lt3f": 90}
    call, time_us = fastest.split()
    text = "".join(f"{who} {us}\n" for who, us in {"kernel": 300, **times, call: time_us}.items())
    run = timed(program, cublas, text)
    assert baseline_of(run) == name
    assert "left out" not in run.output
    wrong = timed(program, cublas, text, CALL_FAULT=f"{call} last")
    assert f"left out {name}, which is wrong here" in wrong.output


OF_GROUPS = BLOCKS.replace("[n /", "[g, n /")
# Two blocks of columns and three of K, of which the last are partial.
FEW_ROWS = Problem(6, 130, 260, Layout.NT, DType.E4M3, groups=Groups.parse("0,2,0,3"))


@pytest.mark.parametrize(
    ("dtype", "call", "name"),
    [
        (DType.E4M3, "lt3", "cuBLASLt proposal 2, looped"),
        (DType.E4M3, "gemm_ex", f"{WIDE}, looped"),
        (DType.E5M2_BY_E4M3, "gemm_ex", f"{WIDE}, looped"),
        (DType.E5M2, "gemm_ex", f"{WIDE}, looped"),
    ],
    ids=str,
)
def test_each_group_has_scales_of_its_own(
    tmp_path: Path, cublas: Path, dtype: DType, call: str, name: str
) -> None:
    """Operands are converted as they were for the baseline on record."""
    problem = replace(FEW_ROWS, dtype=dtype).with_epilogue(Epilogue(OF_GROUPS))
    program = program_of(problem, tmp_path, baseline=name)
    times = f"kernel 600\ngemm_ex 500\nlt1 500\nlt3 500\n{call} 400\n"
    run = timed(program, cublas, times)
    assert baseline_of(run) == name
    assert "left out" not in run.output
    wrong = timed(program, cublas, times, CALL_FAULT=f"{call} last")
    assert f"left out {name}, which is wrong here" in wrong.output
