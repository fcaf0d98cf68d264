"""Partial sums of gemm_wgmma's blocks through the workspace: right kernels pass in the emulator,
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

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 4, "PARTIALS": "workspace", "BOX_M": 64},
    **{"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0},
}
SWAPPED: dict[str, Value] = {"BM": 72, "WM": 72, "BN": 128, "WN": 128, "SWAP_AB": 1, "BOX_M": 8}
# Two warpgroups, clusters beside each other, blocks that walk.
WALKING: dict[str, Value] = {"BM": 128, "CLUSTER_N": 2, "SPLIT_K": 2, "BLOCKS": 132}
PROBLEM = Problem(200, 264, 520, Layout.NT, DType.BF16)
# Six tiles, with edges on both sides.
SMALL = Problem(72, 136, 520, Layout.NT, DType.BF16)


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, SMALL),
        (WALKING, PROBLEM),
        (SWAPPED | {"C_BUFFERS": 2, "SPLIT_K": 2}, PROBLEM),
        (
            {"CLUSTER_M": 2, "CLUSTER_N": 2, "STORE_C": "threads"},
            Problem(200, 261, 520, Layout.NN, DType.BF16, ldb=264),
        ),
        ({"PROMOTE": 128, "SPLIT_K": 2}, Problem(72, 144, 528, Layout.NT, DType.E4M3)),
        ({"SPLIT_K": 8}, Problem(72, 136, 1040, Layout.NT, DType.I8)),
        ({"PDL": "late"}, SMALL.with_epilogue(Epilogue("gelu(acc + bias[n])"))),
    ],
    ids=["bf16", "walking", "swapped", "clusters", "e4m3", "i8", "epilogue"],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    plan = launch_plan(family, one, problem)
    assert plan.workspace_bytes > 0
    report = emulator.verify(render(family, one, problem), plan, problem)
    assert report.ok, report.message


BUGS = {
    "the last part is left out": ("other < SPLIT_K; ++other", "other < SPLIT_K - 1; ++other"),
    "parts lie in one place": ("(part * FOURS + at) * WARPGROUP", "at * WARPGROUP"),
    "warpgroups lie in one place": ("tile * CONSUMERS + warpgroup) * SPLIT_K", "tile) * SPLIT_K"),
    "tiles lie in one place": ("((long long)tile * CONSUMERS", "((long long)0 * CONSUMERS"),
    "warpgroups count together": ("counters + tile * CONSUMERS + warpgroup", "counters + tile"),
    "the second to last adds up": ("!= SPLIT_K - 1", "!= SPLIT_K - 2"),
    "every part is stored": ("        return false;\n", ""),
    "the counter is left": ("        *counter = 0;\n", ""),
    "counted too early": (
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n    if (thread == 0) {\n        arr",
        "    if (thread == 0) {\n        arr",
    ),
    "read before it is known": (
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n    if (arrived",
        "    if (arrived",
    ),
    "ranges overlap": ("(place.part + 1) / SPLIT_K", "(place.part + 2) / SPLIT_K"),
    "all parts begin at the first": ("(first_k_tile + k_tile) * BK", "k_tile * BK"),
    "columns of tiles": ("place.m0 / BM * columns", "place.m0 / BM"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    """In clusters of two blocks with two warpgroups each, which walk over parts of tiles."""
    old, new = BUGS[name]
    family, one = load_family("gemm_wgmma"), config(**WALKING)
    source, plan = render(family, one, PROBLEM), launch_plan(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, PROBLEM).ok
