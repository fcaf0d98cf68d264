"""The exported CUDA file: the kernel's bytes, the header, the launcher, its form."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from export_samples import SPLIT_TEMPLATE, split_family, stored_kernel
from golden_cases import GOLDEN_CASES
from sampling import one_in
from store_samples import H100

from autogemm import __version__
from autogemm.codegen.export import export_cuda, export_json, export_ptx, extract_kernel
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Environment, Provenance
from autogemm.model.results.stored import OnRecord, StoredKernel, TimedText
from autogemm.space import Family, launch_plan, load_family
from autogemm.support.errors import ExportError

TODAY = date(2026, 11, 21)
SQUARE = Problem(64, 64, 64)


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return split_family(tmp_path / "split")


def exported(kernel: StoredKernel, family: Family) -> str:
    return export_cuda(kernel, family, "best.cu", TODAY)


def header(text: str) -> list[str]:
    return text[: text.index("#include")].splitlines()


@pytest.mark.parametrize(
    "template",
    [
        SPLIT_TEMPLATE,
        SPLIT_TEMPLATE.rstrip("\n"),
        SPLIT_TEMPLATE + "\n\n// autogemm:kernel:end\n// \u00b5s {{ config.BM }}\n",
    ],
    ids=["plain", "no newline at the end", "holds the end marker"],
)
def test_kernel_is_exported_byte_for_byte(tmp_path: Path, template: str) -> None:
    family = split_family(tmp_path / "split", template)
    kernel = stored_kernel(family, SQUARE)
    kernel_text = extract_kernel(exported(kernel, family))
    assert kernel_text == kernel.source.text
    assert hashlib.sha256(kernel_text.encode()).hexdigest() == kernel.source.sha256


def test_an_edited_kernel_is_noticed(family: Family) -> None:
    text = exported(stored_kernel(family, SQUARE), family)
    with pytest.raises(ExportError, match="was edited"):
        extract_kernel(text.replace("BM = 16", "BM = 32"))
    with pytest.raises(ExportError, match="no kernel is marked"):
        extract_kernel("int main() {}\n")


def test_a_kernel_of_another_version_of_the_family_is_refused(
    tmp_path: Path, family: Family
) -> None:
    kernel = stored_kernel(family, SQUARE)
    changed = split_family(tmp_path / "split", SPLIT_TEMPLATE.replace("BM = ", "tile rows "))
    with pytest.raises(ExportError, match="another version of the family"):
        exported(kernel, changed)


def test_header_tells_what_was_measured_where(family: Family) -> None:
    lines = header(exported(stored_kernel(family, Problem(4096, 4096, 4096)), family))
    text = " ".join(line.removeprefix("//").strip() for line in lines)
    for fact in (
        f"Written by autogemm {__version__} on 2026-11-21",
        "4096 nn f32",
        "NVIDIA H100 80GB HBM3 (sm_90)",
        # 2 * 4096^3 / 2655 us
        "2655.00 us, 51.77 TFLOP/s",
        "1.0123 times the speed of cuBLASLt proposal 3 [1.0111, 1.0134]",
        "driver 580.1, nvrtc 13.0.88, cuBLAS 13.1, autogemm 0.1.0",
        "kernel 12, run 3, 2026-11-20",
        "BM=16 SPLIT=4 VEC=4 SCRATCH=1",
        "nvcc -O3 -arch=sm_90 best.cu -o best && ./best",
        "-DAUTOGEMM_LIBRARY",
    ):
        assert fact in text
    assert "RECORDED" not in text


def test_header_of_a_ratio_to_a_call_without_a_name(family: Family) -> None:
    text = "\n".join(header(exported(stored_kernel(family, SQUARE, baseline=None), family)))
    assert "1.0123 times the speed of cuBLAS [1.0111, 1.0134]" in text


def test_the_name_of_a_call_stays_within_its_comment(family: Family) -> None:
    kernel = stored_kernel(family, SQUARE, baseline="SGEMM */ \\\nint main() {} //")
    assert all(line.startswith("//") for line in header(exported(kernel, family)))


def test_header_says_loudly_what_was_not_measured_here(family: Family) -> None:
    kernel = stored_kernel(family, SQUARE, provenance=Provenance.RECORDED)
    text = "\n".join(header(exported(kernel, family)))
    assert "RECORDED, NOT MEASURED ON THIS MACHINE" in text
    assert "timed side by side" not in text
    assert "[1.0111" not in text
    assert "as every candidate is" not in text


@pytest.mark.parametrize(
    ("on_record", "said", "not_said"),
    [
        (None, ["time: not known to be of this text", "this text was not checked"], ["earlier"]),
        (
            OnRecord(TimedText.EARLIER, "this text, on the CPU"),
            ["time: of an earlier version of this kernel, not", "error: of an earlier version"],
            ["was not checked"],
        ),
        (OnRecord(TimedText.THIS), ["time: 2655.00 us", "error: largest"], ["not of this text"]),
    ],
)
def test_a_recorded_time_is_only_given_to_the_text_that_was_timed(
    family: Family, on_record: OnRecord | None, said: list[str], not_said: list[str]
) -> None:
    kernel = stored_kernel(family, SQUARE, provenance=Provenance.RECORDED)
    whole = export_cuda(kernel, family, "best.cu", TODAY, on_record)
    text = " ".join(" ".join(header(whole)).replace("//", " ").split())
    assert all(words in text for words in said), text
    assert not any(words in text for words in not_said), text
    timed = json.loads(export_json(kernel, TODAY, on_record))["measurement"]["timed_text"]
    assert timed == (on_record or OnRecord()).timed
    measured = stored_kernel(family, SQUARE)
    assert json.loads(export_json(measured, TODAY))["measurement"]["timed_text"] == "this"


def test_header_of_a_kernel_that_never_ran(family: Family) -> None:
    kernel = stored_kernel(family, SQUARE, time_us=None, ratio=None, verification=None)
    text = "\n".join(header(exported(kernel, family)))
    assert "did not run correctly" in text
    assert "not verified" in text


@pytest.mark.parametrize(
    ("kept", "said"), [(2.5e-3, "relative (Frobenius) 0.0025"), (None, "not kept")]
)
def test_header_of_a_kernel_of_which_the_error_alone_was_kept(
    family: Family, kept: float | None, said: str
) -> None:
    kernel = stored_kernel(family, SQUARE, verification=None, kept_error=kept)
    assert f"// error:   {said}" in header(exported(kernel, family))
    assert json.loads(export_json(kernel, TODAY))["measurement"]["error"] == kept


def test_header_mentions_a_cold_cache(family: Family) -> None:
    kernel = stored_kernel(family, SQUARE, l2=CacheState.COLD)
    assert any("cold L2" in line for line in header(exported(kernel, family)))


def test_names_from_a_database_stay_inside_the_comment(family: Family) -> None:
    hostile = "GPU\n#error escaped\r*/ \u202e \\"
    kernel = stored_kernel(
        family,
        SQUARE,
        device=replace(H100, name=hostile),
        environment=Environment(driver=hostile, autogemm=hostile),
    )
    text = exported(kernel, family)
    for line in header(text):
        assert line == "" or line.startswith("//")
        assert not line.endswith("\\")
        assert len(line) <= 100
    assert "\u202e" not in text
    assert "\n#error" not in text
    ptx = export_ptx(kernel, ".version 8.7\n", TODAY)
    assert all(line.startswith("//") for line in ptx.splitlines()[:-1])


def test_preconditions_are_those_of_the_emitted_code(family: Family) -> None:
    whole = exported(stored_kernel(family, Problem(64, 64, 64)), family)
    assert "if (M % 16 != 0) {" in whole
    assert "lda % 4 != 0" in whole
    edges = exported(stored_kernel(family, Problem(63, 64, 63)), family)
    assert "M % 16" not in edges
    assert "must be a multiple" not in edges


def test_a_kernel_whose_tiles_move_inwards_says_what_it_needs() -> None:
    simt = load_family("sgemm_simt")
    values = {"EDGES": "inward", "VEC_LOAD": 4, "VEC_STORE": 4}
    config = Config.of("sgemm_simt", simt.seeds[0].as_dict() | values)
    text = exported(
        stored_kernel(simt, Problem(1000, 1004, 1003, ldb=1008, lda=1004), config), simt
    )
    for needed in ("M < 128", "N < 256", "N % 4 != 0"):
        assert text.count(f"if ({needed}) {{") == 1, needed


def test_launches_that_a_config_does_not_have_are_left_out() -> None:
    simt = load_family("sgemm_simt")
    odd = Problem(1001, 1001, 1001)
    one = simt.seeds[0].as_dict() | {"VEC_STORE": 1}
    plain = Config.of("sgemm_simt", one | {"VEC_LOAD": 1})
    packed = Config.of("sgemm_simt", one | {"PAD_A": 0, "PACK": 1})
    text = exported(stored_kernel(simt, odd, plain), simt)
    assert "pack_kernel" not in text
    text = exported(stored_kernel(simt, odd, packed), simt)
    first, second = (
        text.index(f"kernel = (const void*){name};") for name in ("pack_kernel", "gemm_kernel")
    )
    assert first < second
    assert "-Dpack_kernel=..." in text
    # Rows of any length.
    assert "must be a multiple" not in text


def test_json_holds_everything(family: Family) -> None:
    kernel = stored_kernel(family, Problem(64, 64, 32, layout=Layout.NT))
    content = json.loads(export_json(kernel, TODAY))
    assert content["config"] == {"BM": 16, "SPLIT": 4, "VEC": 4, "SCRATCH": 1}
    assert content["problem"] == {
        **{"m": 64, "n": 64, "k": 32, "layout": "nt", "dtype": "f32"},
        **{"lda": 32, "ldb": 32, "ldc": 64, "alpha": 1.0, "beta": 0.0},
    }
    assert content["measurement"]["provenance"] == "measured"
    assert content["measurement"]["ratio"] == 1.0123
    assert content["measurement"]["baseline"] == "cuBLASLt proposal 3"
    assert content["device"]["name"] == H100.name
    assert hashlib.sha256(content["source"].encode()).hexdigest() == content["kernel_sha256"]


def formatted_kernels(thorough: bool) -> Iterator[StoredKernel]:
    """Of the golden ones a sample, whose kernels test_golden formats anyway."""
    sampled = one_in(4, GOLDEN_CASES, lambda case: case.family)
    cases = [one.values[0] for one in sampled if thorough or not one.marks]
    for case in cases:
        # Files for batches and groups have a few lines that a formatter would break otherwise.
        if case.problem.batch.is_one and case.problem.groups.is_none:
            yield stored_kernel(load_family(case.family), case.problem, case.config)
    yield stored_kernel(load_family("sgemm_simt"), replace(SQUARE, alpha=-1e-30, beta=1 / 3))
    for dtype in (DType.BF16, DType.TF32):
        for text in (
            "acc * s",
            "acc * alpha + beta * c[m, n] + a_quite_long_name_of_in[n]",
            "gelu_tanh(acc + bias[n]) * scale[m] + 0.5 * rest[m, n] + c[m, n]; bias: f16",
            "clamp(acc * a[n], low, high) + b[m] * d[m, n]",
        ):
            problem = Problem(64, 64, 64, dtype=dtype, epilogue=Epilogue(text))
            yield stored_kernel(load_family("gemm_mma"), problem)


def test_exported_files_are_fixed_points_of_clang_format(
    tmp_path: Path, family: Family, request: pytest.FixtureRequest
) -> None:
    formatter = Path(sys.executable).parent / "clang-format"
    if not formatter.exists():
        pytest.skip("clang-format is not installed in this environment")
    kernels = formatted_kernels(request.config.getoption("--thorough"))
    texts = [exported(kernel, load_family(kernel.source.family)) for kernel in kernels]
    # With a workspace. Its kernels are not formatted, but for their closing lines.
    texts.append(exported(stored_kernel(family, SQUARE), family))
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.cu").write_text(text)
    shutil.copy(Path(__file__).parents[2] / ".clang-format", tmp_path)
    paths = [str(tmp_path / f"{number}.cu") for number in range(len(texts))]
    subprocess.run([formatter, "--dry-run", "--Werror", *paths], check=True)


# The part of CUDA that the launcher uses, for a plain C++ compiler: launches are printed.
CUDA_RUNTIME = r"""
#pragma once
#include <cstddef>
#include <cstdio>
#define __global__
#define __launch_bounds__(...)
#define __host__
#define __device__
typedef int cudaError_t;
typedef void* cudaStream_t;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline cudaError_t cudaFuncSetAttribute(const void*, int, int bytes) {
    std::printf("attribute %d\n", bytes);
    return cudaSuccess;
}
inline cudaError_t cudaLaunchKernel(const void*, dim3 grid, dim3 block, void** arguments,
                                    size_t smem_bytes, cudaStream_t) {
    std::printf("launch %u %u %u  %u %u %u  %zu  K=%d\n", grid.x, grid.y, grid.z, block.x, block.y,
                block.z, smem_bytes, *(int*)arguments[2]);
    return cudaSuccess;
}
"""

# A program that knows the exported function by its declaration alone. Its arguments: M N K lda ldb
# ldc, offset of A, offset of the workspace (-1: none), and how many bytes this has too few.
DECLARED = r"""
extern "C" size_t autogemm_sgemm_workspace_bytes(int M, int N, int K);
extern "C" cudaError_t autogemm_sgemm(int M, int N, int K, float alpha, const float* A, int lda,
                                      const float* B, int ldb, float beta, float* C, int ldc,
                                      void* workspace, size_t workspace_bytes, cudaStream_t stream);
"""
CALLER = r"""
#include <cuda_runtime.h>
#include <cstdlib>
DECLARED
int main(int, char** text) {
    int v[9];
    for (int i = 0; i < 9; ++i) v[i] = std::atoi(text[i + 1]);
    const float* a = (const float*)(4096 + (size_t)v[6]);
    float* c = (float*)4096;
    const size_t needed = autogemm_sgemm_workspace_bytes(v[0], v[1], v[2]);
    void* workspace = v[7] < 0 ? nullptr : (void*)(65536 + (size_t)v[7]);
    cudaError_t status = autogemm_sgemm(v[0], v[1], v[2], 1.0f, a, v[3], c, v[4], 0.0f, c, v[5],
                                        workspace, needed - (size_t)v[8], nullptr);
    std::printf("status %d workspace %zu\n", status, needed);
}
""".replace("DECLARED", DECLARED)


class Launcher:
    """The library form of an export, compiled by g++, linked with a program that calls it."""

    def __init__(self, text: str, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._program = folder / "program"
        (folder / "cuda_runtime.h").write_text(CUDA_RUNTIME)
        (folder / "kernel.cpp").write_text(text)
        (folder / "program.cpp").write_text(CALLER)
        options = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
        options += ["-DAUTOGEMM_LIBRARY", f"-I{folder}", "-o", str(self._program)]
        subprocess.run(["g++", *options, "program.cpp", "kernel.cpp"], cwd=folder, check=True)

    def call(self, m: int, n: int, k: int, *rest: int) -> list[str]:
        """Lines printed. ``rest`` is lda ldb ldc, packed unless given, the offsets of A and of the
        workspace, and the bytes that the workspace has too few, 0 unless given.
        """
        strides = [*rest, *(k, n, n, 0, 0, 0)[len(rest) :]]
        arguments = [str(value) for value in (m, n, k, *strides)]
        result = subprocess.run(
            [self._program, *arguments], capture_output=True, text=True, check=True
        )
        return result.stdout.splitlines()


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_launcher_computes_the_plan_and_checks_the_preconditions(
    tmp_path: Path, family: Family
) -> None:
    config = Config.of("split", {"BM": 32, "SPLIT": 4, "VEC": 4, "SCRATCH": 1})
    tuned = stored_kernel(family, SQUARE, config)
    launcher = Launcher(exported(tuned, family), tmp_path)
    for sizes in ((64, 64, 64), (32, 17, 4), (65536, 50000, 8)):
        plan = launch_plan(family, config, Problem(*sizes))
        first, second = plan.launches
        assert launcher.call(*sizes) == [
            f"attribute {first.smem_bytes}",
            "launch {} {} {}  {} {} {}  {}  K={}".format(
                *first.grid, *first.threads, first.smem_bytes, sizes[2]
            ),
            "launch {} {} {}  {} {} {}  {}  K={}".format(
                *second.grid, *second.threads, second.smem_bytes, sizes[2]
            ),
            f"status 0 workspace {plan.workspace_bytes}",
        ]
    refused = [
        (33, 64, 64),
        (64, 64, 63),
        (64, 64, 64, 66),
        (64, 64, 64, 60),
        (64, 64, 64, 64, 63),
        (64, 64, 64, 64, 64, 63),
        (64, 64, 64, 64, 64, 64, 4),
        (0, 64, 64),
        (64, 64, -1),
        # 65536 blocks in y
        (64, 16 * 65536, 64),
    ]
    for call in refused:
        printed = launcher.call(*call)
        assert len(printed) == 1, call
        assert printed[0].startswith("status 1 "), call
    # A leading dimension may be larger than the row.
    assert launcher.call(64, 64, 63, 64)[-1].startswith("status 0 ")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_one_kernel_replaces_another_in_a_program(tmp_path: Path, family: Family) -> None:
    """The same program, with a kernel that needs a workspace and with one that needs none."""
    split, whole = (
        Config.of("split", {"BM": 16, "SPLIT": parts, "VEC": 1, "SCRATCH": int(parts > 1)})
        for parts in (4, 1)
    )
    launchers = [
        Launcher(exported(stored_kernel(family, SQUARE, config), family), tmp_path / name)
        for name, config in (("split", split), ("whole", whole))
    ]
    sizes = (64, 64, 64)
    needed, nothing = (launcher.call(*sizes)[-1] for launcher in launchers)
    assert needed == f"status 0 workspace {4 * 4 * 64 * 64}"
    assert nothing == "status 0 workspace 0"
    packed = (64, 64, 64, 0)
    no_room = {
        "none": (*packed, -1, 0),
        "a byte too few": (*packed, 0, 1),
        "not aligned": (*packed, 8, 0),
    }
    for name, rest in no_room.items():
        printed = launchers[0].call(*sizes, *rest)
        assert printed == [needed.replace("status 0", "status 1")], name
        assert launchers[1].call(*sizes, *rest)[-1] == nothing, name
    # A larger one will do.
    assert launchers[0].call(*sizes, *packed, 16, -4096)[-1] == needed
    # A size that is none needs nothing, and is refused.
    assert launchers[0].call(0, 64, 64) == ["status 1 workspace 0"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_family_may_name_its_quantities_as_launches_do(tmp_path: Path) -> None:
    """The launcher's own variables do not hide them: a size was taken from itself."""
    family = split_family(tmp_path / "split")
    path = tmp_path / "split" / "split.yaml"
    own = "  smem_bytes: 16 * min(K, 100)\n  threads: 32 * min(M, 2)\n  grid: ceil_div(N, 16)\n"
    text = path.read_text().replace("derive:\n", f"derive:\n{own}")
    text = text.replace("smem_bytes: 20000 * vec_a", "smem_bytes: smem_bytes")
    text = text.replace("threads: 256", "threads: threads").replace('"ceil_div(N, 16)"', "grid")
    path.write_text(text)
    family = load_family(tmp_path / "split")
    launcher = Launcher(exported(stored_kernel(family, SQUARE), family), tmp_path)
    first, second, _ = launcher.call(64, 48, 64)
    assert first == "launch 4 3 4  64 2 1  1024  K=64"
    assert second == "launch 12 1 1  64 1 1  0  K=64"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_launch_geometry_keeps_the_width_that_the_text_was_emitted_with(
    tmp_path: Path, family: Family
) -> None:
    """A kernel emitted for odd rows keeps its scalar loads where rows would allow vectors."""
    config = Config.of("split", {"BM": 32, "SPLIT": 1, "VEC": 4, "SCRATCH": 1})
    odd = stored_kernel(family, Problem(64, 64, 63), config)
    assert "vector 1" in odd.source.text
    launcher = Launcher(exported(odd, family), tmp_path)
    assert launcher.call(64, 64, 64)[0] == "launch 2 4 1  32 2 1  20000  K=64"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_alpha_that_is_no_number_is_refused(family: Family, value: float) -> None:
    kernel = stored_kernel(family, replace(SQUARE, alpha=value))
    with pytest.raises(ExportError, match="finite"):
        exported(kernel, family)
