"""The arguments of kernels and of exported functions, and arguments of a family's own."""

import ctypes
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest
from argument_family import biased_family
from export_samples import split_family, stored_kernel
from runtime_fakes import FakeDriver
from store_samples import H100

from autogemm.codegen import render
from autogemm.codegen.export import Library, Part, Variant, export_cuda, export_library
from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element
from autogemm.model.kernel import Launch
from autogemm.model.problem import Problem
from autogemm.model.rule import Nearest
from autogemm.model.signature import PLAIN, ArgumentKind, ProblemType, gemm_signature
from autogemm.runtime.operands import Call
from autogemm.runtime.plans import Gpu, Kernel, Plan
from autogemm.space import Family, launch_plan, load_family, signature_of
from autogemm.support.errors import ExportError, FamilyError

PROBLEM = Problem(64, 48, 32)
TODAY = date(2026, 11, 22)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return biased_family(tmp_path / "biased")


def test_the_arguments_of_a_gemm() -> None:
    assert " ".join(PLAIN.names) == "M N K alpha A lda B ldb beta C ldc"
    assert PLAIN.in_kernel("half", "float") == (
        "int M, int N, int K, float alpha, const half* __restrict__ A, int lda, "
        "const half* __restrict__ B, int ldb, float beta, float* __restrict__ C, int ldc"
    )
    whole = gemm_signature(workspace=True, tensor_maps=["map_a"])
    assert whole.in_kernel("float", unrestricted=["workspace"]).endswith(
        "int ldc, float* workspace, const __grid_constant__ TensorMap map_a"
    )
    names = {Element.F32: "float", ProblemType.AB: "__half", ProblemType.C: "float"}
    text = gemm_signature(workspace=True).in_host_code(names | {ProblemType.B: "__nv_bfloat16"})
    assert "const __half* A, int lda, const __nv_bfloat16* B, int ldb, " in text
    assert text.endswith("float beta, float* C, int ldc, void* workspace, size_t workspace_bytes")
    called = gemm_signature(workspace=True).in_call({"A": "a.data", "workspace": "nullptr"}, "p.")
    assert called.startswith("p.M, p.N, p.K, p.alpha, a.data, p.lda, ")
    assert called.endswith("p.ldc, nullptr, p.workspace_bytes")


@pytest.mark.parametrize("name", ["gemm_wgmma", "sgemm_simt", "sgemm_emulated_wgmma"])
def test_the_signature_is_that_of_the_launch_plan(name: str) -> None:
    family = load_family(name)
    dtype = next(iter(dtype for dtype in type(PROBLEM.dtype) if family.fits(dtype)))
    problem = Problem(4096, 4096, 4096, dtype=dtype)
    found = set()
    for config in family.seeds:
        signature = signature_of(family, config, problem)
        assert signature == launch_plan(family, config, problem).signature
        found.add(signature.names[len(PLAIN) :])
    assert len(found) > 1 or name == "sgemm_emulated_wgmma"


def test_a_workspace_that_only_some_sizes_need_is_refused(tmp_path: Path) -> None:
    family = biased_family(tmp_path / "biased", ("4 * M * N if SPLIT_K > 1 else 0", "K // 64 * 4"))
    assert signature_of(family, family.seeds[0], Problem(64, 64, 64)).of_kind(
        ArgumentKind.WORKSPACE
    )
    with pytest.raises(FamilyError, match="is 0 for 64x48x32 nn f32 and not for other sizes"):
        render(family, family.seeds[0], PROBLEM)


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("name: bias", "name: C", r"arguments\.2\.name: the name 'C' is reserved"),
        ("name: bias", "name: workspace", "the name 'workspace' is reserved"),
        ("name: bias", "name: BM", "'BM' is taken"),
        ("name: bias", "name: gain", "'gain' is taken already"),
        ("name: bias", "name: stream", "'stream' is taken already"),
        ("type: c", "type: d", r"arguments\.2\.type: unknown type 'd'; known: ab, c, f32"),
        ("type: f32", "type: ab", r"arguments\.1\.type: one value is f32, got 'ab'"),
        ("extent: N", "extent: P", "unknown name 'P'"),
        ("neutral: 0", "neutral: .nan", r"arguments\.2\.neutral"),
        ("neutral: 0", "neutral: none", r"arguments\.2\.neutral"),
    ],
)
def test_what_the_yaml_of_an_argument_keeps(tmp_path: Path, old: str, new: str, rule: str) -> None:
    with pytest.raises(FamilyError, match=rule):
        biased_family(tmp_path / "biased", (old, new))


# The runtime's calls that the launcher makes, for a plain C++ compiler: arguments are printed.
CUDA_RUNTIME = r"""
#pragma once
#include <cstddef>
#include <cstdio>
#define __global__
#define __host__
#define __device__
#define __launch_bounds__(...)
typedef int cudaError_t;
typedef void* cudaStream_t;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx(0), blockIdx(0), blockDim(0);
inline cudaError_t cudaFuncSetAttribute(const void*, int, int) {
    return cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void** arguments, size_t,
                                    cudaStream_t) {
    std::printf("ldc %d gain %g bias %zu workspace %zu\n", *(int*)arguments[10],
                *(float*)arguments[11], *(size_t*)arguments[12], *(size_t*)arguments[13]);
    return cudaSuccess;
}
"""
CALLER = r"""
int main() {
    float* some = (float*)4096;
    const auto call = [&](size_t bias) {
        std::printf("status %d\n",
                    autogemm_sgemm(64, 48, 32, 1, some, 32, some, 48, 0, some, 48, 0.5f,
                                   (const float*)bias, some, 4 * 64 * 48, nullptr));
    };
    call(8192);
    call(8196);
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_an_exported_function_passes_a_familys_own_arguments(
    tmp_path: Path, family: Family
) -> None:
    kernel = stored_kernel(family, PROBLEM, family.seeds[1])
    text = export_cuda(kernel, family, "best.cu", TODAY)
    declared = " ".join(text.split())
    assert "int ldc, float gain, const float* bias, void* workspace, size_t" in declared
    assert "`bias`: what is added to each row of C; an array of N elements" in text
    (tmp_path / "cuda_runtime.h").write_text(CUDA_RUNTIME)
    (tmp_path / "program.cpp").write_text(text + CALLER)
    options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    options += ["-DAUTOGEMM_LIBRARY", f"-I{tmp_path}", "-o", "program", "program.cpp"]
    subprocess.run(["g++", *options], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    # An array that vectors of 16 bytes could not be read from is refused.
    assert printed.stdout.splitlines() == [
        "ldc 48 gain 0.5 bias 8192 workspace 4096",
        "status 0",
        "status 1",
    ]


@pytest.mark.compile
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("type_", ["c", "bf16"])
def test_an_exported_program_with_a_familys_own_arguments_builds(
    tmp_path: Path, type_: str
) -> None:
    edits = [("type: c, extent: N", f"type: {type_}, extent: N")]
    family = biased_family(tmp_path / "biased", *edits)
    text = export_cuda(stored_kernel(family, PROBLEM), family, "best.cu", TODAY)
    (tmp_path / "best.cu").write_text(text)
    command = ["nvcc", "-Werror", "all-warnings", "-arch=sm_90", "-c", "best.cu"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")


def test_a_library_refuses_a_family_with_arguments_of_its_own(family: Family) -> None:
    config = family.seeds[0]
    variant = Variant(0, family, config, PROBLEM, "no edges")
    rule = Nearest(((64, 48, 32),), (0,))
    part = Part(DType.F32, rule, (config,), (variant,), (0,), ((64, 48, 32),), (0,), ())
    library = Library(H100, (part,))
    with pytest.raises(ExportError, match=r"biased take arguments of their own \(gain bias\)"):
        export_library(library, TODAY)


def test_a_workspace_that_a_caller_cannot_ask_for_is_refused(tmp_path: Path) -> None:
    family = split_family(tmp_path / "split")
    path = tmp_path / "split" / "split.yaml"
    path.write_text(path.read_text().replace("4 * SPLIT * M * N if", "4 * SPLIT * M * ldc if"))
    family = load_family(tmp_path / "split")
    with pytest.raises(ExportError, match="it cannot depend on ldc"):
        export_cuda(stored_kernel(family, PROBLEM), family, "best.cu", TODAY)


class Launches(FakeDriver):
    """Keeps what the own arguments of the last launch were."""

    def launch(self, *call: object) -> int:
        address = call[-1]
        assert isinstance(address, int)
        pointers = (ctypes.c_void_p * (len(PLAIN) + 2)).from_address(address)
        gain, bias = pointers[len(PLAIN)], pointers[len(PLAIN) + 1]
        self.gain = ctypes.c_float.from_address(gain or 0).value
        array = ctypes.c_void_p.from_address(bias or 0).value
        self.bias = list((ctypes.c_float * PROBLEM.n).from_address(array or 0))
        return 0


def test_gemm_passes_what_is_neutral(tmp_path: Path) -> None:
    family = biased_family(tmp_path / "biased", ("neutral: 0", "neutral: 0.25"))
    driver = Launches()
    plan = launch_plan(family, Config.of("biased", {"BM": 32}), PROBLEM)
    kernel = Kernel(((0, Launch("gemm_kernel", (96, 1, 1), (32, 1, 1), 0)),), plan)
    call = Call(PROBLEM, False, ((0, 0, 0),))
    planned = Plan(Gpu(driver, 0), call, kernel, (64, 48), is_tuned=False)
    planned.run(4096, 4096, 8192, 1.0, 0.0, 0)
    assert (driver.gain, driver.bias) == (1.0, [0.25] * PROBLEM.n)
    assert driver.memory
    planned.close()
    assert not driver.memory
