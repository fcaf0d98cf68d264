"""Clusters of four and eight blocks in gemm_wgmma: right kernels pass in the emulator, planted bugs
do not.
"""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, derive_values, launch_plan, load_family

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 4, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 1, "BLOCKS": 0},
}
# C^T in instructions: eight rows, or a multiple.
SWAPPED: dict[str, Value] = {"BN": 128, "WN": 128, "SWAP_AB": 1, "BOX_M": 8, "C_BUFFERS": 2}
EIGHT: dict[str, Value] = {"CLUSTER_M": 2, "CLUSTER_N": 4}
# Rows and columns beyond the last tiles, and clusters with tiles that are not there.
PROBLEM = Problem(304, 520, 200, Layout.NT, DType.BF16)


def stored(layout: Layout, m: int = PROBLEM.m) -> Problem:
    return Problem(m, PROBLEM.n, PROBLEM.k, layout, PROBLEM.dtype)


BYTES = Problem(304, 520, 272, Layout.NT, DType.E4M3)
SCALED = BYTES.with_epilogue(Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"))


def swapped(rows: int, **changes: Value) -> dict[str, Value]:
    return SWAPPED | {"BM": rows, "WM": rows} | changes


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem", "loads"),
    [
        ({}, PROBLEM, 4),
        ({"CLUSTER_M": 4, "CLUSTER_N": 1}, stored(Layout.NN), 1),
        ({"CLUSTER_M": 4, "CLUSTER_N": 2}, stored(Layout.TT), 2),
        (EIGHT, stored(Layout.TN), 4),
        ({"SCHEDULE": "pingpong", "BLOCKS": 120}, PROBLEM, 4),
        (swapped(72, **EIGHT), PROBLEM, 3),
        (swapped(80), PROBLEM, 2),
        (swapped(104), stored(Layout.NN), 1),
        (EIGHT | {"PROMOTE": 128}, BYTES, 4),
        (EIGHT | {"PROMOTE": 128, "STAGES": 3}, SCALED, 4),
        (EIGHT, replace(PROBLEM, groups=Groups.parse("3")), 4),
        (EIGHT, replace(stored(Layout.TN), groups=Groups.parse("3")), 4),
    ],
    ids=[
        *("A", "B", "both across k", "eight", "pingpong", "72 rows", "80 rows", "104 rows"),
        *("e4m3", "scales of blocks", "groups", "groups of k"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem, loads: int
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    assert derive_values(family, one, problem)["loads_a"] == loads
    plan = launch_plan(family, one, problem)
    report = emulator.verify(render(family, one, problem), plan, problem)
    assert report.ok, report.message


BUGS = {
    "A reaches half of the blocks": ("0x55u <<", "0x5u <<"),
    "A reaches other rows' blocks": ("0x55u << tiles.row_in_cluster", "0x55u"),
    "B reaches other columns' blocks": ("0x3u << 2 * tiles.column_in_cluster", "0x3u"),
    "each block loads the first rows": ("tiles.column_in_cluster * ROWS", "0 * ROWS"),
    "the last rows are never loaded": ("own < BM", "own < BM - ROWS"),
    "the fourth block loads, too": ("own < BM", "own >= 0"),
    "stages are free when half of the blocks say so": (
        "4 * CONSUMERS * 8",
        "4 * CONSUMERS * 4",
    ),
    "half of the blocks are told": ("lane < CLUSTER_M * CLUSTER_N", "lane < CLUSTER_M * 2"),
    "columns of blocks in a cluster": ("cluster_rank() / CLUSTER_M", "cluster_rank() / CLUSTER_N"),
    "clusters of half of the blocks": ("__cluster_dims__(8,", "__cluster_dims__(4,"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    """In clusters of two by four blocks, of which three load a third of A's k tile each."""
    old, new = BUGS[name]
    family, one = load_family("gemm_wgmma"), config(**swapped(72, **EIGHT))
    source, plan = render(family, one, PROBLEM), launch_plan(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, PROBLEM).ok


@pytest.mark.parametrize(
    ("changes", "problem", "rule"),
    [
        ({"CLUSTER_M": 4, "CLUSTER_N": 4}, PROBLEM, "eight blocks at most"),
        ({"SPLIT_K": 2}, PROBLEM, "nothing else in common"),
        (
            swapped(72),
            stored(Layout.TN),
            "by 64 across k",
        ),
    ],
    ids=["sixteen", "split", "across k"],
)
def test_a_cluster_that_cannot_be_is_refused(
    changes: dict[str, Value], problem: Problem, rule: str
) -> None:
    family = load_family("gemm_wgmma")
    broken = broken_constraints(family, config(**changes), problem, find_device("h200"))
    assert any(rule in str(one) for one in broken)
