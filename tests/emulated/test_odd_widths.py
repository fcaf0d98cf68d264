"""Tiles of gemm_wgmma whose columns boxes do not divide: right kernels pass in the emulator,
planted bugs do not.
"""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.support.errors import KernelCompileError

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 136, "WM": 64, "WN": 136, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 1, "BLOCKS": 0},
}
TALL: dict[str, Value] = {"BM": 256, "WM": 128, "BN": 72, "WN": 72, "C_BUFFERS": 2}
PINGPONG: dict[str, Value] = {"SCHEDULE": "pingpong", "BN": 152, "WN": 152, "BLOCKS": 3}
PARTS: dict[str, Value] = {"SPLIT_K": 2, "PARTIALS": "workspace"}
PROBLEM = Problem(100, 296, 136, Layout.NT, DType.BF16)
GATED = Epilogue("silu(acc[n]) * acc[n + N]")


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        (TALL, replace(PROBLEM, m=300, n=144, beta=0.5, ldc=0)),
        (PINGPONG, replace(PROBLEM, layout=Layout.TT, m=128, lda=0, ldb=0)),
        ({"BOX_M": 16, "C_BUFFERS": 2}, replace(PROBLEM, alpha=2.0)),
        ({"CLUSTER_M": 2, "CLUSTER_N": 2, "BN": 112, "WN": 112}, PROBLEM),
        ({"BN": 192, "WN": 96}, PROBLEM),
        ({"STORE_C": "threads", "BN": 88, "WN": 88}, replace(PROBLEM, n=293, ldc=0)),
        (PARTS, PROBLEM),
        ({"PROMOTE": 128}, replace(PROBLEM, dtype=DType.E4M3, k=144, lda=0, ldb=0)),
        ({"BN": 80, "WN": 80}, replace(PROBLEM, dtype=DType.I8, k=144, lda=0, ldb=0)),
        ({"BN": 40 + 64, "WN": 104}, replace(PROBLEM, dtype=DType.TF32, lda=0, ldb=0)),
        ({}, PROBLEM.with_epilogue(Epilogue("gelu(acc + bias[n])"))),
        ({"BN": 104, "WN": 104}, PROBLEM.with_epilogue(GATED)),
        ({"BN": 104, "WN": 104}, replace(PROBLEM, layout=Layout.NN, lda=0, ldb=0)),
        (
            {"BN": 152, "WN": 152, "CLUSTER_M": 2, "CLUSTER_N": 2},
            replace(PROBLEM, layout=Layout.TN, m=128, lda=0, ldb=0),
        ),
    ],
    ids=[
        *("bf16", "two row tiles, C is read", "pingpong", "warps write, a factor", "clusters"),
        *("side by side", "odd rows of C", "parts", "e4m3", "i8", "tf32", "epilogue", "gated"),
        *("across k", "across k in clusters"),
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


BUGS = {
    "the last box is past the tile": (": WN - BOX_N;", ": WN - WN % BOX_N;"),
    "elements of another box": ("&accum[i][n / 2]", "&accum[i][n / 2 + 4]"),
    "written where no box is": ("n0 + n, words", "n0 + n + 8, words"),
    "steps that do not divide": ("STEP_ACCUM = 4", "STEP_ACCUM = 16"),
    "a box too early": (": WN - BOX_N;", ": WN - BOX_N - 8;"),
    "written twice at a time": ("            wait_for_tile_stores(0);\n", ""),
    "the last boxes are left out": ("box < BOXES", "box < WHOLE_BOXES"),
    "the first row tile alone": (": box - WHOLE_BOXES;", ": 0;"),
}


@pytest.mark.parametrize(("right", "wrong"), BUGS.values(), ids=BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, right: str, wrong: str) -> None:
    family, one = load_family("gemm_wgmma"), config(BM=128, WM=128)
    problem = replace(PROBLEM, beta=0.5)
    source = render(family, one, problem)
    assert source.text.count(right) == 1
    planted = replace(source, text=source.text.replace(right, wrong))
    assert not emulator.verify(planted, launch_plan(family, one, problem), problem).ok


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(BN + BK - 1) / BK * BK", "BN / BK * BK"),
        ("(BM + STRIPES_N) * 128", "(BM + BN) * 128"),
    ],
    ids=["the last stripe is not loaded", "stages of the tile's columns"],
)
def test_a_bug_planted_in_stripes_across_k_is_caught(
    emulator: Emulator, right: str, wrong: str
) -> None:
    family, one = load_family("gemm_wgmma"), config(BN=104, WN=104)
    problem = replace(PROBLEM, layout=Layout.NN, lda=0, ldb=0)
    source = render(family, one, problem)
    assert source.text.count(right) == 1
    planted = replace(source, text=source.text.replace(right, wrong))
    assert not emulator.verify(planted, launch_plan(family, one, problem), problem).ok


@pytest.mark.parametrize(
    ("changes", "problem", "reason"),
    [
        (
            {"BN": 104, "WN": 104},
            replace(PROBLEM, layout=Layout.NN, lda=0, ldb=0).with_epilogue(GATED),
            "across k",
        ),
        ({"EPILOGUE": "overlapped", "BLOCKS": 132}, PROBLEM, "covers some"),
        ({"SPLIT_K": 2}, PROBLEM, "by 64"),
        ({"CLUSTER_M": 2}, PROBLEM, "eight columns"),
        ({}, replace(PROBLEM, dtype=DType.I8, k=144, lda=0, ldb=0), "of integers"),
    ],
    ids=["across k", "overlapped", "parts of a cluster", "fractions", "integers"],
)
def test_other_kernels_have_whole_boxes(
    changes: dict[str, Value], problem: Problem, reason: str
) -> None:
    broken = broken_constraints(
        load_family("gemm_wgmma"), config(**changes), problem, find_device("h200")
    )
    assert any(reason in str(one) for one in broken)


def test_widths_that_no_instruction_has_are_refused(emulator: Emulator) -> None:
    family, one = load_family("gemm_wgmma"), config(BN=72, WN=72)
    problem = replace(PROBLEM, dtype=DType.I8, k=144, lda=0, ldb=0)
    with pytest.raises(KernelCompileError, match="no wgmma has so many columns"):
        emulator.verify(render(family, one, problem), launch_plan(family, one, problem), problem)
