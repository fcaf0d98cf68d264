"""Exported kernels with tensor maps and for sm_90a: what files say, and that nvcc takes them."""

import re
import shutil
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from export_samples import stored_kernel
from handover.edits import wrappers
from handover.tiles import SMEM_BYTES, TILES
from hopper import tiny_wgmma
from sampling import one_in
from store_samples import H100

from autogemm.codegen.export import Library, Part, Variant, export_cuda, export_library
from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import LAST_ROW
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Nearest
from autogemm.space import Family, broken_constraints, load_family, signature_of

TODAY = date(2026, 11, 21)

# The kernel that the emulator proves, as a family; one map is of a workspace, which nobody reads.
TILES_YAML = f"""
family: tiles
summary: Tiles moved by TMA, multiplied on CUDA cores.
dtypes: {{a: f32, b: f32, c: f32, accumulate: f32}}
architectures: ">=90"
parameters:
  BM: {{values: [8], doc: rows of C per thread block}}
  BN: {{values: [32], doc: columns of C per thread block}}
  BK: {{values: [8], doc: depth of a k_tile}}
  PART: {{values: [0, 1], doc: whether there is a workspace}}
derive:
  padded_k: ceil_div(K, 8) * 8
tensor_maps:
  - {{name: map_a, matrix: A, box: [BK, BM], swizzle: 32}}
  - {{name: map_b, matrix: B, box: [BN, BK], swizzle: 128}}
  - {{name: map_c, matrix: C, box: [BN, BM]}}
  - {{name: map_part, matrix: workspace, element: bf16, extent: [K, M], ld: padded_k, box: [64, 8],
     swizzle: 128, offset_bytes: 256, when: PART}}
workspace_bytes: "256 + 2 * M * padded_k if PART else 0"
launch:
  - {{kernel: gemm_kernel, threads: 64, grid: ["ceil_div(N, BN)", "ceil_div(M, BM)"],
     smem_bytes: {SMEM_BYTES}}}
seeds:
  - {{BM: 8, BN: 32, BK: 8, PART: 0}}
  - {{BM: 8, BN: 32, BK: 8, PART: 1}}
"""


@pytest.fixture
def tiles(tmp_path: Path) -> Family:
    text = TILES.text.replace(
        "int ldc, const", "int ldc, {{ 'float* workspace, ' if config.PART }}const"
    ).replace(
        "TensorMap map_c)",
        "TensorMap map_c{{ ', const __grid_constant__ TensorMap map_part' if config.PART }})",
    )
    folder = tmp_path / "tiles"
    folder.mkdir()
    (folder / "tiles.yaml").write_text(TILES_YAML)
    (folder / "tiles.cu.jinja").write_text(wrappers(TILES.parts) + text)
    return load_family(folder)


def exported(family: Family, problem: Problem, seed: int = 0) -> str:
    kernel = stored_kernel(family, problem, family.seeds[seed])
    return export_cuda(kernel, family, "best.cu", TODAY)


def test_the_launcher_makes_the_maps(tiles: Family) -> None:
    text = " ".join(exported(tiles, Problem(256, 256, 256), 1).split())
    assert "#include <cuda.h>" in text
    for wanted in (
        "{ CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, A, K, M, lda, 8, 8, CU_TENSOR_MAP_SWIZZLE_32B, }",
        "{ CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, B, N, K, ldb, 32, 8, CU_TENSOR_MAP_SWIZZLE_128B, }",
        "{ CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, C, N, M, ldc, 32, 8, CU_TENSOR_MAP_SWIZZLE_NONE, }",
        "{ CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, workspace + 256, K, M, padded_k, 64, 8, "
        "CU_TENSOR_MAP_SWIZZLE_128B, }",
        "const long long padded_k = ceil_div(K, 8) * 8;",
        # Rows that TMA could not read are refused.
        "lda % 4 != 0 || reinterpret_cast<uintptr_t>(A) % 16 != 0",
        "ldc % 4 != 0 || reinterpret_cast<uintptr_t>(C) % 16 != 0",
    ):
        assert wanted in text, wanted


# What CUDA declares for a map, and an encoder that prints what L2 is to fetch at a time.
DRIVER = """
#include <cstdint>
#include <cstdio>
#include <initializer_list>
typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
struct CUtensorMap {};
enum CUresult { CUDA_SUCCESS };
enum cudaError_t { cudaSuccess, cudaErrorNotSupported, cudaErrorInvalidValue };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 128,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 256
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
constexpr int cudaEnableDefault = 0;
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
    std::printf("%d\\n", (int)promotion);
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPoint(const char*, void** to, int,
                                    cudaDriverEntryPointQueryResult* found) {
    *to = (void*)cuTensorMapEncodeTiled;
    *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
"""
ENCODED = """
int main() {
    CUtensorMap map;
    for (long long ld : {64, 320, 72, 300}) {
        const TiledMatrix matrix = {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, nullptr, 64, 64, ld,
                                    64, 8, CU_TENSOR_MAP_SWIZZLE_128B};
        if (make_tensor_map(matrix, map) != cudaSuccess) return 1;
    }
}
"""


def test_l2_fetches_one_line_of_rows_that_do_not_begin_on_lines(
    tiles: Family, tmp_path: Path
) -> None:
    text = exported(tiles, Problem(31, 56, 24))
    begin, last = text.index("struct TiledMatrix"), text.index("cudaErrorInvalidValue;\n}")
    made = text[begin : text.index("}", last) + 1]
    (tmp_path / "maps.cpp").write_text(DRIVER + made + ENCODED)
    subprocess.run(["g++", "-w", "-o", "maps", "maps.cpp"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "maps"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["256", "256", "128", "128"]


def test_the_file_says_how_it_is_compiled_for_sm_90a() -> None:
    text = exported(tiny_wgmma(), Problem(256, 256, 256, Layout.NT, DType.BF16))
    assert "nvcc -O3 -gencode arch=compute_90a,code=sm_90a best.cu -o best" in text
    assert "-arch=sm_90 " not in text
    assert "lda % 8 != 0 || reinterpret_cast<uintptr_t>(A) % 16 != 0" in text


def library_of(family: Family) -> dict[str, str]:
    problem = Problem(256, 256, 256)
    variants = tuple(
        Variant(number, family, config, problem, "no edges")
        for number, config in enumerate(family.seeds)
    )
    rule = Nearest(((256, 256, 256),), (0,))
    part = Part(DType.F32, rule, family.seeds, variants, (0, 1), ((256, 256, 256),), (0,), ())
    library = Library(H100, (part,))
    return export_library(library, TODAY, torch=True)


def test_a_library_names_its_architecture(tiles: Family) -> None:
    plain = library_of(tiles)
    assert "set(default_architectures 90)" in plain["CMakeLists.txt"]
    template = tiles.template_path
    assert template is not None
    template.write_text('{% include "parts/ptx/sm_90a.cu.jinja" %}\n' + template.read_text())
    special = library_of(tiles)
    assert "set(default_architectures 90a)" in special["CMakeLists.txt"]
    assert '"TORCH_CUDA_ARCH_LIST", "9.0a"' in special["autogemm_torch.py"]


needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
SM_90A = ["-gencode", "arch=compute_90a,code=sm_90a"]


def nvcc(folder: Path, *arguments: str) -> str:
    command = ["nvcc", "-Werror", "all-warnings", "-Xcompiler", "-Wall", "-c", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stderr


@pytest.mark.compile
@needs_nvcc
def test_nvcc_compiles_a_kernel_for_sm_90a(tmp_path: Path) -> None:
    text = exported(tiny_wgmma(), Problem(256, 256, 256, Layout.NT, DType.BF16))
    (tmp_path / "best.cu").write_text(text)
    assert not nvcc(tmp_path, *SM_90A, "-DAUTOGEMM_LIBRARY", "best.cu")
    assert "for compute capability 9.0 alone" in nvcc(tmp_path, "-arch=sm_90", "best.cu")


@pytest.mark.compile
@needs_nvcc
def test_nvcc_compiles_a_library_with_tensor_maps(tiles: Family, tmp_path: Path) -> None:
    for name, text in library_of(tiles).items():
        (tmp_path / name).write_text(text)
    assert not nvcc(tmp_path, "-arch=sm_90", "gemm_f32.cu")


def test_the_map_of_an_input_is_of_its_argument() -> None:
    family = load_family("gemm_wgmma")
    ahead = Config.of("gemm_wgmma", family.seeds[0].as_dict() | {"INPUTS": "ahead"})
    problem = Problem(4096, 4096, 4096, Layout.NT, DType.BF16)
    fused = problem.with_epilogue(Epilogue("silu(acc + bias[n]) * gate[m, n]"))
    text = export_cuda(stored_kernel(family, fused, ahead), family, "best.cu", TODAY)
    # Behind eleven arguments of a GEMM and bias.
    assert "const char* const epilogue_gate = *(char**)arguments[12];" in text
    assert "BFLOAT16, 2, epilogue_gate, N, M, N," in " ".join(text.split())
    assert signature_of(family, ahead, fused).names[-2:] == ("map_c", "map_input")
    assert signature_of(family, ahead, problem).names[-1] == "map_c"


SQUARE = Problem(4096, 4096, 4096, Layout.NT, DType.BF16)
SCALES = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
# Family, what one of its seeds has or gets, problem.
SHIPPED: dict[str, tuple[str, dict[str, Value], Problem]] = {
    "scales of blocks": (
        "gemm_wgmma",
        {"PROMOTE": 128},
        replace(SQUARE, dtype=DType.E4M3).with_epilogue(SCALES),
    ),
    "f16, parts": (
        "gemm_wgmma",
        {"BN": 64, "SPLIT_K": 2},
        Problem(64, 4096, 4096, Layout.TN, DType.F16),
    ),
    "two heights": ("gemm_wgmma", {"SHORT_BY": 24}, Problem(4096, 4096, 4096, dtype=DType.BF16)),
    "tf32": (
        "gemm_wgmma",
        {"WM": 256, "BLOCKS": 0},
        Problem(4096, 4096, 4096, Layout.NN, DType.TF32),
    ),
    "batch with an epilogue": (
        "gemm_wgmma",
        {},
        replace(SQUARE, batch=Batch(8)).with_epilogue(Epilogue("relu(acc + bias[n])")),
    ),
    "8-bit C": (
        "gemm_wgmma",
        {},
        replace(SQUARE, dtype=DType.E4M3_E4M3).with_epilogue(Epilogue("acc * scale")),
    ),
    "packed": (
        "gemm_wgmma",
        {"PACK": "both", "STORE_C": "threads"},
        Problem(1023, 1025, 1021, Layout.TN, DType.BF16),
    ),
    "input ahead": (
        "gemm_wgmma",
        {"INPUTS": "ahead"},
        SQUARE.with_epilogue(Epilogue("acc + rest[m, n]")),
    ),
    "emulated": ("sgemm_emulated_wgmma", {}, Problem(1000, 1000, 1000)),
}


@pytest.mark.compile
@needs_nvcc
@pytest.mark.parametrize("name", one_in(6, SHIPPED))
def test_the_command_in_the_file_builds_it_without_a_word(tmp_path: Path, name: str) -> None:
    family_name, wanted, problem = SHIPPED[name]
    family = load_family(family_name)
    having = (
        seed
        for seed in family.seeds
        if wanted.items() <= seed.as_dict().items()
        and not broken_constraints(family, family.completed(seed), problem, H100)
    )
    config = next(having, Config.of(family_name, family.seeds[0].as_dict() | wanted))
    text = export_cuda(stored_kernel(family, problem, config), family, "best.cu", TODAY)
    (tmp_path / "best.cu").write_text(text)
    (line,) = (line for line in text.splitlines() if line.endswith("&& ./best"))
    command = line.removeprefix("//").removesuffix("&& ./best").split()
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert (tmp_path / "best").exists()


def test_rows_of_groups_end_alike_in_kernels_and_in_their_maps() -> None:
    """The kernel, the exported launcher and `TensorMap.dimensions` agree on where TMA clips."""
    family = load_family("gemm_wgmma")
    problem = replace(SQUARE, groups=Groups.parse("8 uniform"))
    text = export_cuda(stored_kernel(family, problem, family.seeds[0]), family, "best.cu", TODAY)
    shifts = {
        "kernel": re.findall(r"LAST_ROW = 1 << (\d+);", text),
        "map": re.findall(r"last = 1 << (\d+);", text),
    }
    assert shifts == {"kernel": ["30"], "map": ["30"]}
    assert LAST_ROW == 1 << 30
    # As many strides as rows to take back wrap around 2^64.
    (back,) = re.findall(r"\(1ull << (\d+)\) - row_bytes", text)
    assert 30 + int(back) == 64
    flat = " ".join(text.split())
    # A and C have no matrices of their own, B has one for each group.
    assert [flat.count(f"CU_TENSOR_MAP_SWIZZLE_128B, {n}") for n in ("0, 0", "groups,")] == [2, 1]
