"""An exported kernel of groups: its program checks every group, for several ways to spread rows."""

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import FAMILY, compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, load_family

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

TEMPLATE = """\
#include <cuda_runtime.h>

#include <cstdlib>
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("float") }}) {
{% endfilter %}
    const char* const wrong = std::getenv("WRONG");
    const int which = wrong == nullptr ? 0 : std::atoi(wrong);
    for (int g = 0; g < groups - (which == 1); ++g) {
        const float* from_b = B + (which == 2 ? 0ll : (long long)g * N) * ldb;
        const int last = g + 1 == groups;
        // Only where one group has nearly all rows.
        const int is_even = which == 4 && offsets[g + 1] - offsets[g] > 20;
        const int end = offsets[g + 1] + (which == 3 && last ? M - offsets[g + 1] : 0) - is_even;
        for (int m = offsets[g]; m < end; ++m) {
            for (int n = 0; n < N; ++n) {
                float sum = 0.0f;
                for (int k = 0; k < K; ++k) {
                    sum += A[m * lda + k] * from_b[n * ldb + k];
                }
                float& c = C[m * ldc + n];
                c = alpha * sum + (beta == 0.0f ? 0.0f : beta * c);
            }
        }
    }
}
"""
PROBLEM = Problem(33, 20, 40, Layout.NT, ldc=22, beta=0.5, groups=Groups.parse("0,7,12,0,11"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp("family")
    text = FAMILY.format(ab="f32").replace("grid: 1", "grid: [1, 1, 1 + groups]")
    (folder / "on_cpu.yaml").write_text(text)
    (folder / "on_cpu.cu.jinja").write_text(TEMPLATE)
    return load_family(folder)


def test_the_program_checks_every_group(family: Family, tmp_path: Path) -> None:
    text = export_cuda(stored_kernel(family, PROBLEM), family, "best.cu", date(2026, 11, 23))
    words = " ".join(text.split())
    assert "int groups, const int* offsets," in words
    assert "_workspace_bytes(int M, int N, int K, int groups)" in text
    assert "return {0, 0, 7, 19, 19, 30};" in text
    program = compile_on_cpu(f"#define KERNEL_IS_GROUPED\n{text}", tmp_path / "best")
    right = run_on_cpu(program, "--rounds", 0)
    # Whole numbers and reals, spread evenly, to one group, and as tuned.
    assert (right.code, right.output.count(": right, ")) == (0, 6), right.output
    other = run_on_cpu(program, 8, 12, 30, "--groups", 3, "--rounds", 0)
    assert (other.code, "3 groups, 8 of 8 rows in one" in other.output) == (0, True), other.output
    # The last group left out, B of the first, rows of no group written, wrong for one group alone.
    for which in (1, 2, 3, 4):
        wrong = run_on_cpu(program, "--rounds", 0, WRONG=str(which))
        assert wrong.code == 1, (which, wrong.output)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("epilogue", ["", "silu(acc[n]) * acc[n + N]"])
def test_nvcc_compiles_groups_with_tensor_maps(tmp_path: Path, epilogue: str) -> None:
    family = load_family("gemm_wgmma")
    seed = family.seeds[0].as_dict()
    if epilogue:
        seed |= {"BN": 128, "WN": 128}
    problem = Problem(256, 256, 256, Layout.NT, DType.BF16, groups=Groups(8))
    problem = problem.with_epilogue(Epilogue.parse(epilogue))
    names = {parameter.name: parameter.values[0] for parameter in family.parameters}
    config = Config.of(family.name, names | seed)
    kernel = stored_kernel(family, problem, config)
    text = export_cuda(kernel, family, "best.cu", date(2026, 11, 23))
    source = tmp_path / "best.cu"
    source.write_text(text)
    target = "arch=compute_90a,code=sm_90a"
    subprocess.run(
        ["nvcc", "-gencode", target, "-c", source, "-o", tmp_path / "best.o"], check=True
    )


MASKED_TEMPLATE = """\
#include <cuda_runtime.h>

#include <cstdlib>
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("float") }}) {
{% endfilter %}
    const char* const wrong = std::getenv("WRONG");
    const int which = wrong == nullptr ? 0 : std::atoi(wrong);
    const int capacity = M / groups;
    for (int g = 0; g < groups; ++g) {
        const int end = g * capacity + counts[g] + (which == 1 && counts[g] < capacity);
        for (int m = g * capacity; m < end - (which == 2 && g == 1); ++m) {
            for (int n = 0; n < N; ++n) {
                float sum = 0.0f;
                for (int k = 0; k < K; ++k) {
                    sum += A[m * lda + k] * B[((which == 3 ? 0ll : g) * N + n) * ldb + k];
                }
                float& c = C[m * ldc + n];
                c = alpha * sum + (beta == 0.0f ? 0.0f : beta * c);
            }
        }
    }
}
"""
DIVIDED_TEMPLATE = """\
#include <cuda_runtime.h>

#include <cstdlib>
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel("float") }}) {
{% endfilter %}
    const char* const wrong = std::getenv("WRONG");
    const int which = wrong == nullptr ? 0 : std::atoi(wrong);
    for (int g = 0; g < groups; ++g) {
        if (which == 1 && offsets[g] == offsets[g + 1]) {
            continue;
        }
        for (int m = 0; m < M; ++m) {
            for (int n = 0; n < N; ++n) {
                float sum = 0.0f;
                for (int k = offsets[g]; k < offsets[g + 1] - (which == 2 && g == 1); ++k) {
                    sum += A[k * lda + m] * B[k * ldb + n];
                }
                float& c = C[((which == 3 ? 0ll : g) * M + m) * ldc + n];
                c = alpha * sum + (beta == 0.0f ? 0.0f : beta * c);
            }
        }
    }
}
"""
MASKED = Problem(36, 20, 40, Layout.NT, ldc=22, groups=Groups.parse("0,7,12 masked"))
DIVIDED = Problem(9, 20, 41, Layout.TN, ldc=22, beta=0.5, groups=Groups.parse("0,7,12,0,11"))


@pytest.mark.parametrize(
    ("template", "problem", "grid", "given", "sizes", "counted"),
    [
        (MASKED_TEMPLATE, MASKED, "1 + groups", "return {0, 7, 12};", (8, 12, 30), "8 of 8"),
        (DIVIDED_TEMPLATE, DIVIDED, "1 + groups * divides_k", "{0, 0, 7, 19", (8, 12, 30), "30 of"),
    ],
    ids=["masked", "divided"],
)
def test_masked_groups_and_those_of_k_are_checked(  # noqa: PLR0917  # a program of each
    template: str,
    problem: Problem,
    grid: str,
    given: str,
    sizes: tuple[int, int, int],
    counted: str,
    tmp_path: Path,
) -> None:
    text = FAMILY.format(ab="f32").replace("grid: 1", f"grid: [1, 1, {grid}]")
    (tmp_path / "on_cpu.yaml").write_text(text)
    (tmp_path / "on_cpu.cu.jinja").write_text(template)
    own = load_family(tmp_path)
    text = export_cuda(stored_kernel(own, problem), own, "best.cu", date(2026, 11, 23))
    assert given in text
    program = compile_on_cpu(f"#define KERNEL_IS_GROUPED\n{text}", tmp_path / "best")
    right = run_on_cpu(program, "--rounds", 0)
    assert (right.code, right.output.count(": right, ")) == (0, 6), right.output
    other = run_on_cpu(program, *sizes, "--groups", 2, "--rounds", 0)
    assert other.code == 0 and f"2 groups, {counted}" in other.output, other.output
    if problem.groups.masked:
        odd = run_on_cpu(program, 9, 12, 30, "--groups", 2, "--rounds", 0)
        assert odd.code == 2 and "M must be a multiple of groups" in odd.output
    # Rows of none or empty groups left out, a row less, a matrix of the first group.
    for which in (1, 2, 3):
        wrong = run_on_cpu(program, "--rounds", 0, WRONG=str(which))
        assert wrong.code == 1, (which, wrong.output)


def test_a_kernel_with_a_bias_of_each_group_compiles(tmp_path: Path) -> None:
    compiler = shutil.which("nvcc")
    epilogue = Epilogue("silu(acc[n] + bias[g, n]) * acc[n + N] * scale[g] + rest[m, n]")
    plain = Problem(64, 64, 64, Layout.NT, DType.BF16, groups=Groups.parse("4 uniform masked=9"))
    family = load_family("gemm_mma")
    problem = plain.with_epilogue(epilogue)
    text = export_cuda(stored_kernel(family, problem), family, "best.cu", date(2026, 11, 23))
    words = " ".join(text.split())
    assert "matrices.epilogue_bias.data + (long long)group * N," in words
    assert "x.epilogue_scale.data + group, x.epilogue_rest.data + m * N);" in words
    if compiler is not None:
        (tmp_path / "best.cu").write_text(text)
        command = [compiler, "-arch=sm_90", "-c", str(tmp_path / "best.cu"), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
