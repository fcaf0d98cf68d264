"""8-bit integers by wgmma in the emulator: right kernels pass, planted bugs do not."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132},
}
# Edges on all sides; 17 k tiles, of which the last is partial. Sums reach 2112 * 127^2 > 2^24.
PROBLEM = Problem(72, 136, 2112, Layout.NT, DType.I8)
SHORT = Problem(72, 136, 592, Layout.NT, DType.I8)
SPLIT: dict[str, Value] = {"SPLIT_K": 2, "BLOCKS": 0}
SCALED = replace(SHORT, dtype=DType.I8_BF16).with_epilogue(Epilogue("acc * sa[m] * sb[n]"))


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, replace(SHORT, beta=1.0)),
        ({}, replace(SHORT, dtype=DType.I8_F32, alpha=0.5, beta=-1.5)),
        ({"SCHEDULE": "pingpong", "BOX_M": 16}, SHORT),
        ({"STORE_C": "threads"}, replace(SHORT, ldc=137, beta=1.0)),
        (SPLIT, PROBLEM),
        (SPLIT, replace(SHORT, dtype=DType.I8_F16, alpha=0.01)),
        ({"EPILOGUE": "overlapped"}, replace(SHORT, dtype=DType.I8_BF16)),
        ({}, SCALED),
        ({}, replace(SHORT, lda=640, ldb=608, groups=Groups.parse("3"))),
        ({}, replace(SHORT, batch=Batch.parse("2"))),
    ],
    ids=[
        *("i32", "f32", "pingpong", "threads", "split", "split-f16", "overlapped", "scaled"),
        *("groups", "batch"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(
        render(family, one, problem), launch_plan(family, one, problem), problem
    )
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("changes", "problem", "because"),
    [
        ({}, replace(SHORT, layout=Layout.NN, lda=0, ldb=0), "along k alone: layout nt"),
        ({}, Problem(64, 64, 131072, Layout.NT, DType.I8), "fit in 32 bits up to K = 131071"),
        ({"PROMOTE": 128}, SHORT, "those of integers exact"),
        ({"PACK": "a"}, SHORT, "rows of 8-bit elements are not packed"),
    ],
    ids=["layout", "depth", "promoted", "packed"],
)
def test_what_is_not_there_is_refused(
    changes: dict[str, Value], problem: Problem, because: str
) -> None:
    family, device = load_family("gemm_wgmma"), find_device("h200")
    broken = broken_constraints(family, config(**changes), problem, device)
    assert any(because in one for one in broken), broken


def test_the_deepest_sums_fit_in_32_bits() -> None:
    deepest = Problem(64, 64, 131071, Layout.NT, DType.I8)
    family, device = load_family("gemm_wgmma"), find_device("h200")
    assert "fit in 32 bits" not in " ".join(broken_constraints(family, config(), deepest, device))
    assert 128 * 128 * 131071 < 2**31 == 128 * 128 * 131072


AGAIN = "k_tile > 0 || step > 0"
KEPT = "keep_in_place(accum[i]);"
EACH = "for (int j = 0; j < NUM_ACCUM; ++j)"
BUGS = {
    # Sums rounded to FP32 on the way: integers of 24 bits stay the same.
    "sums in FP32": (KEPT, f"{KEPT} {EACH} accum[i][j] = (int)(float)accum[i][j];"),
    "sums saturate at 24 bits": (
        KEPT,
        f"{KEPT} {EACH} accum[i][j] = min(max(accum[i][j], -(1 << 23)), (1 << 23) - 1);",
    ),
    "sums wrap at 16 bits": (KEPT, f"{KEPT} {EACH} accum[i][j] = (short)accum[i][j];"),
    "the last partial k tile is left out": (
        "const int num_k_tiles = (K + BK - 1) / BK;",
        "const int num_k_tiles = K / BK;",
    ),
    "half of the depth": ("step < BK / STEP", "step < BK / STEP / 2"),
    "sums do not begin anew": (AGAIN, "true"),
    "sums begin anew with each k tile": (AGAIN, "step > 0"),
    "rows of B 8 apart by 512 bytes": (
        "matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 1024)",
        "matrix_descriptor_128(pipeline.k_tile_b() + column * 128, BK * 128, 512)",
    ),
    "B's descriptor moves by 64 bytes a step": (
        "const int in_b = step * 32;",
        "const int in_b = step * 64;",
    ),
    "B read from A's k tile": ("pipeline.k_tile_b() + column", "pipeline.k_tile_a() + column"),
    "read before products are done": ("wgmma_wait_0();", ""),
    "the old C is left out": ("accum + old_c", "accum"),
    "neighbours exchanged": (
        "make_int2(elements[at], elements[at + 1])",
        "make_int2(elements[at + 1], elements[at])",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    old, new = BUGS[name]
    family, problem = load_family("gemm_wgmma"), replace(PROBLEM, beta=1.0)
    source = render(family, config(), problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    report = emulator.verify(wrong, launch_plan(family, config(), problem), problem)
    assert not report.ok


IN_OTHERS = {
    "partial sums in FP32": (
        SPLIT,
        PROBLEM,
        "own[at][0] = sum.x;",
        "own[at][0] = (int)(float)sum.x;",
    ),
    "a scale of another row": ({}, SCALED, "with.sa[m]", "with.sa[m ^ 1]"),
    "sums taken for the bits of floats": (
        {"EPILOGUE": "overlapped"},
        replace(SHORT, dtype=DType.I8_BF16),
        "(float)sums[i][j]",
        "__int_as_float(sums[i][j])",
    ),
}


@pytest.mark.parametrize("name", IN_OTHERS)
def test_a_bug_planted_in_other_kernels_is_caught(emulator: Emulator, name: str) -> None:
    changes, problem, old, new = IN_OTHERS[name]
    family, one = load_family("gemm_wgmma"), config(**changes)
    source = render(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, problem), problem).ok
