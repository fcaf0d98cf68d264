"""An exported kernel of a batch: its program checks every product, and fails wrong ones."""

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from exported_program import FAMILY, compile_on_cpu, run_on_cpu

from autogemm.codegen.export import export_cuda
from autogemm.model.batch import Batch
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
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
    for (int b = 0; b < batch - (which == 1); ++b) {
        const float* from_a = A + (long long)b * (which == 2 ? M : batch_rows_a) * lda;
        const float* from_b = B + (which == 3 ? 0ll : (long long)b * batch_rows_b) * ldb;
        float* to = C + (long long)b * batch_rows_c * ldc;
        for (int m = 0; m < M + (which == 4 && b == 0); ++m) {
            for (int n = 0; n < N; ++n) {
                float sum = 0.0f;
                for (int k = 0; k < K; ++k) {
                    sum += from_a[k * lda + (m < M ? m : 0)] * from_b[k * ldb + n];
                }
                float& c = to[m * ldc + n];
                c = alpha * sum + (beta == 0.0f ? 0.0f : beta * c);
            }
        }
    }
}
"""
PROBLEM = Problem(33, 20, 40, Layout.TN, ldc=22, beta=0.5, batch=Batch(3, 43, None, 35))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp("family")
    text = FAMILY.format(ab="f32").replace("grid: 1", "grid: [1, 1, batch]")
    (folder / "on_cpu.yaml").write_text(text)
    (folder / "on_cpu.cu.jinja").write_text(TEMPLATE)
    return load_family(folder)


def test_the_program_checks_every_product(family: Family, tmp_path: Path) -> None:
    text = export_cuda(stored_kernel(family, PROBLEM), family, "best.cu", date(2026, 11, 21))
    words = " ".join(text.split())
    assert "int batch, int batch_rows_a, int batch_rows_b, int batch_rows_c," in words
    assert "_workspace_bytes(int M, int N, int K, int batch)" in text
    program = compile_on_cpu(f"#define KERNEL_IS_BATCHED\n{text}", tmp_path / "best")
    right = run_on_cpu(program, "--rounds", 0)
    assert (right.code, right.output.count(": right, ")) == (0, 2), right.output
    other = run_on_cpu(program, 8, 12, 30, "--batch", 5, "--rounds", 0)
    assert other.code == 0
    assert "5 products, rows from one to the next: A 30, B 30, C 8" in other.output
    # The last product left out, A without the gap, B of the first, the gap behind C written.
    for which in (1, 2, 3, 4):
        wrong = run_on_cpu(program, "--rounds", 0, WRONG=str(which))
        assert wrong.code == 1, (which, wrong.output)
    assert "between the rows of C were written" in wrong.output


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_compiles_a_batch_with_tensor_maps(tmp_path: Path) -> None:
    family = load_family("gemm_wgmma")
    seed = family.seeds[0]
    problem = Problem(256, 256, 256, Layout.NT, DType.BF16, batch=Batch(8, 0, None, None))
    names = {parameter.name: parameter.values[0] for parameter in family.parameters}
    config = Config.of(family.name, names | seed.as_dict())
    kernel = stored_kernel(family, problem, config)
    text = export_cuda(kernel, family, "best.cu", date(2026, 11, 21))
    assert "batch_rows_a == 0 ? 1 : batch" in text
    source = tmp_path / "best.cu"
    source.write_text(text)
    target = "arch=compute_90a,code=sm_90a"
    subprocess.run(
        ["nvcc", "-gencode", target, "-c", source, "-o", tmp_path / "best.o"], check=True
    )
