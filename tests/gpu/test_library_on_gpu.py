"""The exported library, built and run: its self-test, and its benchmark without rounds."""

import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen.export import Kind, Library, Part, export_library
from autogemm.dispatch import NearestLegal
from autogemm.dispatch.assembling import variants_of
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout
from autogemm.model.rule import Leaf, Tree
from autogemm.space import load_family
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not all(map(shutil.which, ("cmake", "nvcc"))), reason="cmake or nvcc is not installed"
    ),
]

A100, H100 = find_device("a100"), find_device("h100")
NATIVE = "-DCMAKE_CUDA_ARCHITECTURES=native"


def part_of(
    dtype: DType,
    family_name: str,
    epilogue: Epilogue = PLAIN,
    kind: Kind = Kind.ONE,
    device: Device = A100,
) -> Part:
    """The family's first seed that is legal, in both forms of B; in layout tn where groups divide
    K.
    """
    family = load_family(family_name)
    layouts = (Layout.TN,) if kind.divides_k else (Layout.NN, Layout.NT)
    nearest_legal = NearestLegal((family,), device)
    config, variants = next(
        (seed, found)
        for seed in family.seeds
        if (found := variants_of(seed, 0, layouts, nearest_legal, dtype, epilogue, kind))
    )
    rule, tuned = Tree(Leaf(0)), ((256, 256, 256, *([8] if kind.counted else [])),)
    return Part(
        *(dtype, rule, (config,), variants, (0,), tuned, (0,), ()), epilogue=epilogue, kind=kind
    )


def run_all(folder: Path, *commands: tuple[str, ...]) -> str:
    """Run commands one after the other; returns the output of the last one."""
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_library_is_right_in_every_element_type(tmp_path: Path) -> None:
    parts = (part_of(DType.F32, "tiled"), part_of(DType.BF16, "gemm_mma"))
    gated = Epilogue("silu(acc[n] + bias[n]) * acc[n + N]")
    fused = (part_of(DType.F32, "sgemm_simt", gated), part_of(DType.BF16, "gemm_mma", gated))
    for name, text in export_library(Library(A100, parts, (fused,)), date(2026, 11, 21)).items():
        (tmp_path / name).write_text(text)
    run_all(
        tmp_path,
        ("cmake", "-S", ".", "-B", "build", NATIVE),
        ("cmake", "--build", "build", "-j"),
        ("build/selftest",),
        ("build/selftest_fused",),
        ("build/benchmark_bf16", "512", "512", "512", "1001", "77", "300", "--rounds", "0"),
    )


def test_types_of_8_bits_are_right(target: CudaTarget, tmp_path: Path) -> None:
    """With scales of rows and columns, of blocks, and for a C of 8 bits; batches and groups."""
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    scaled = Epilogue("acc * sa[m] * sb[n]; sa: f32; sb: f32")
    blocks = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
    e4m3, i8 = DType.E4M3, DType.I8
    parts = tuple(
        part_of(dtype, "gemm_wgmma", device=H100)
        for dtype in (e4m3, DType.E5M2_F32, i8, DType.I8_F16)
    )
    fused = tuple(
        tuple(part_of(dtype, "gemm_wgmma", epilogue, device=H100) for dtype in dtypes)
        for epilogue, dtypes in (
            (scaled, (e4m3, DType.I8_BF16)),
            (blocks, (e4m3,)),
            (Epilogue("acc * scale"), (DType.E4M3_E4M3, DType.BF16_E4M3)),
        )
    )
    stacked = tuple(
        part_of(dtype, "gemm_wgmma", kind=kind, device=H100)
        for dtype, kind in ((e4m3, Kind.BATCH), (e4m3, Kind.GROUPED), (i8, Kind.MASKED))
    )
    library = Library(H100, parts, fused, stacked)
    for name, text in export_library(library, date(2026, 11, 24)).items():
        (tmp_path / name).write_text(text)
    run_all(
        tmp_path,
        ("cmake", "-S", ".", "-B", "build"),
        ("cmake", "--build", "build", "-j"),
        *((f"build/selftest{one}",) for one in ("", "_fused", "_fused_2", "_fused_3")),
        *((f"build/selftest_{kind}",) for kind in ("batched", "grouped", "masked")),
        ("build/benchmark_e4m3", "512", "512", "512", "1001", "77", "300", "--rounds", "0"),
        ("build/benchmark_i8", "512", "512", "512", "1001", "77", "300", "--rounds", "0"),
    )


# A call of groups in a graph that is replayed with other offsets: each time C is the fallback's.
REPLAYED = """
#include <vector>

#include "autogemm.h"
#include "check.h"
#include "exact.h"

constexpr int M = 700, N = 256, K = 128, GROUPS = 4;
constexpr auto LAYOUT = AUTOGEMM_NT;
using T = autogemm_bf16;

std::vector<unsigned short> bits_of(const DeviceArray<T>& array) {
    std::vector<unsigned short> bits(array.count);
    CHECK(cudaMemcpy(bits.data(), array.data, array.count * sizeof(T), cudaMemcpyDeviceToHost));
    return bits;
}

int main() {
    DeviceArray<T> a(M * K), b(GROUPS * N * K), c(M * N), expected(M * N);
    DeviceArray<int> offsets(GROUPS + 1);
    fill<<<64, 256>>>(a.data, a.count, 1);
    fill<<<64, 256>>>(b.data, b.count, 2);
    const size_t bytes =
        autogemm_gemm_bf16_grouped_workspace_bytes(LAYOUT, M, N, K, K, K, N, GROUPS);
    DeviceArray<unsigned char> workspace(bytes);
    CHECK(cudaMemset(workspace.data, 0, bytes));
    CHECK(cudaDeviceSynchronize());
    const int fallback = autogemm_gemm_bf16_grouped_num_kernels() - 1;
    const int chosen = autogemm_gemm_bf16_grouped_choice(LAYOUT, M, N, K, a.data, K, b.data, K,
                                                         c.data, N, GROUPS, bytes);
    if (chosen == fallback) {
        std::puts("the fallback was chosen");
        return 1;
    }
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replayed;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(autogemm_gemm_bf16_grouped(LAYOUT, M, N, K, 1.0f, a.data, K, b.data, K, 0.0f, c.data, N,
                                     GROUPS, offsets.data, workspace.data, bytes, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&replayed, graph, 0));
    const std::vector<std::vector<int>> spreads = {
        {0, 175, 350, 525, 700}, {0, 0, 1, 699, 700}, {100, 130, 130, 131, 300}};
    for (const std::vector<int>& given : spreads) {
        CHECK(cudaMemcpy(offsets.data, given.data(), given.size() * sizeof(int),
                         cudaMemcpyHostToDevice));
        CHECK(cudaMemset(c.data, 0xff, c.count * sizeof(T)));
        CHECK(cudaMemset(expected.data, 0xff, c.count * sizeof(T)));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaGraphLaunch(replayed, stream));
        CHECK(autogemm_gemm_bf16_grouped_with(fallback, LAYOUT, M, N, K, 1.0f, a.data, K, b.data,
                                              K, 0.0f, expected.data, N, GROUPS, offsets.data,
                                              nullptr, 0, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (bits_of(c) != bits_of(expected)) {
            std::puts("wrong");
            return 1;
        }
    }
    std::puts("right");
    return 0;
}
"""


def test_batches_and_groups_are_right_and_replayed(tmp_path: Path) -> None:
    stacked = (
        part_of(DType.F32, "sgemm_simt", kind=Kind.BATCH),
        part_of(DType.BF16, "gemm_mma", kind=Kind.BATCH),
        part_of(DType.BF16, "gemm_mma", kind=Kind.GROUPED),
        part_of(DType.BF16, "gemm_mma", kind=Kind.MASKED),
        part_of(DType.BF16, "gemm_mma", kind=Kind.GROUPED_TN),
        part_of(DType.BF16, "gemm_mma", kind=Kind.MASKED_TN),
    )
    build_and_replay(tmp_path, Library(A100, (), stacked=stacked), NATIVE)


def test_batches_and_groups_by_tma(target: CudaTarget, tmp_path: Path) -> None:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    stacked = tuple(
        part_of(DType.BF16, "gemm_wgmma", kind=kind, device=H100)
        for kind in (
            *(Kind.BATCH, Kind.GROUPED, Kind.MASKED),
            *(Kind.GROUPED_TN, Kind.MASKED_TN),
        )
    )
    build_and_replay(tmp_path, Library(H100, (), stacked=stacked))


def build_and_replay(folder: Path, library: Library, *options: str) -> None:
    for name, text in export_library(library, date(2026, 11, 24)).items():
        (folder / name).write_text(text)
    (folder / "replayed.cu").write_text(REPLAYED)
    nvcc = ("nvcc", "-std=c++17", "-arch=native")
    said = run_all(
        folder,
        ("cmake", "-S", ".", "-B", "build", *options),
        ("cmake", "--build", "build", "-j"),
        ("build/selftest_batched",),
        ("build/selftest_grouped",),
        ("build/selftest_masked",),
        ("build/selftest_grouped_tn",),
        ("build/selftest_masked_tn",),
        (*nvcc, "replayed.cu", "build/libautogemm.a", "-o", "replayed"),
        ("./replayed",),
    )
    assert said == "right\n"
