"""Tiles of gemm_wgmma that are left for a last wave, and shared along K: right kernels pass in the
emulator, planted bugs do not.
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
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Batch, Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 8, "PARTIALS": "last_wave", "BOX_M": 64},
    **{"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 132},
}
CLUSTERS: dict[str, Value] = {"BM": 128, "CLUSTER_N": 2}
SWAPPED: dict[str, Value] = {
    **{"BM": 72, "WM": 72, "BN": 128, "WN": 128, "SWAP_AB": 1, "BOX_M": 8},
    "C_BUFFERS": 2,
}
# Nine tiles of 64x64, with edges on both sides; nine k tiles.
NINE = Problem(136, 136, 520, Layout.NT, DType.BF16)
# As many, of three k tiles.
SHALLOW = replace(NINE, k=136, lda=0, ldb=0)
# Three columns of clusters in each of two rows, whose last block has no tile.
SIX = Problem(136, 264, 520, Layout.NT, DType.BF16)
GROUPED = replace(NINE, m=200, groups=Groups.parse("0,65,0,7,100"))
MASKED = replace(NINE, m=240, groups=Groups.parse("3 uniform masked=80"))
GELU = Epilogue("gelu(acc + bias[n])")


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


def plan_of(one: Config, problem: Problem, blocks: int) -> LaunchPlan:
    """A grid of fewer blocks than tiles."""
    plan = launch_plan(load_family("gemm_wgmma"), one, problem)
    assert plan.workspace_bytes > 0
    return replace(
        plan, launches=tuple(replace(step, grid=(blocks, 1, 1)) for step in plan.launches)
    )


@pytest.mark.parametrize(
    ("blocks", "changes", "problem"),
    [
        # Nine tiles: none left of three waves; 8 of 8; 4 and 5; 5, 5 and none; all of them shared.
        (3, {}, NINE),
        (2, {}, NINE),
        (5, {}, NINE),
        (8, {}, NINE),
        (4, {}, NINE),
        (27, {}, NINE),
        # A part has a k tile: of nine tiles and 81 blocks not more than 27 have parts.
        (81, {}, SHALLOW),
        (5, {"GROUP_M": 4}, replace(GROUPED, k=8, lda=0, ldb=0)),
        (8, CLUSTERS, SIX),
        (6, CLUSTERS | {"CLUSTER_M": 2, "CLUSTER_N": 1}, NINE),
        (4, SWAPPED, SIX),
        (5, {"GROUP_M": 4, "BM": 128, "WM": 64}, GROUPED),
        (8, {"CLUSTER_N": 2}, GROUPED),
        (4, {}, MASKED),
        (7, {}, replace(NINE, m=64, batch=Batch(4))),
        (8, {"STORE_C": "threads"}, Problem(136, 133, 520, Layout.NN, DType.BF16, ldb=136)),
        (4, {"PROMOTE": 128}, Problem(136, 144, 1040, Layout.NT, DType.E4M3)),
        (4, {"PDL": "late"}, replace(GROUPED, n=72).with_epilogue(GELU)),
    ],
    ids=[
        *("whole waves", "halves", "one each", "eighths", "quarters", "all", "a k tile each"),
        *("one k tile", "clusters", "below", "swapped", "groups", "groups in clusters"),
        *("masked", "batch", "threads", "e4m3", "epilogue"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, blocks: int, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(render(family, one, problem), plan_of(one, problem, blocks), problem)
    assert report.ok, report.message


BUGS = {
    "the last part is left out": ("if (other < parts)", "if (other < parts - 1)"),
    "a part too many": ("if (other < parts)", "if (other <= parts)"),
    "parts lie in one place": ("(part * NEXT * CONSUMERS * FOURS + at)", "at"),
    "warpgroups lie in one place": (
        "(long long)first * FOURS",
        "(long long)(first - warpgroup) * FOURS",
    ),
    "tiles lie in one place": ("((int)blockIdx.x - part * NEXT)", "((int)blockIdx.x % NEXT)"),
    "parts are those of a cluster": ("constexpr int NEXT = 2", "constexpr int NEXT = 1"),
    "warpgroups count together": ("(workspace) + first", "(workspace) + first - warpgroup"),
    "counters lie among sums": ("(MOST_BLOCKS * CONSUMERS + 3)", "(CONSUMERS + 3)"),
    "the second to last adds up": ("!= parts - 1", "!= parts - 2"),
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
    "ranges overlap": ("(part + 1) / parts", "(part + 2) / parts"),
    "all parts begin at the first": ("(first_k_tile + k_tile) * BK", "k_tile * BK"),
    "as many parts as a tile can have": (", stride / left)", ", SPLIT_K)"),
    "a part is left out": ("whole + left * parts", "whole + left * parts - 1"),
    "the wrong tile": ("whole + (step - whole) / parts", "whole + (step - whole) % parts"),
    "the wrong part": ("(step - whole) % parts", "(step - whole) / parts"),
    "whole tiles are added up": ("step < whole ? 1 : parts", "parts"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    """Six tiles of clusters of two blocks, of which two tiles are left for four clusters."""
    old, new = BUGS[name]
    family, one = load_family("gemm_wgmma"), config(**CLUSTERS)
    source, plan = render(family, one, SIX), plan_of(one, SIX, 8)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, SIX).ok


def test_no_part_is_empty(emulator: Emulator) -> None:
    family, one = load_family("gemm_wgmma"), config()
    source, plan = render(family, one, SHALLOW), plan_of(one, SHALLOW, 81)
    wrong = source.text.replace("min(SPLIT_K, num_k_tiles)", "SPLIT_K")
    assert wrong != source.text
    assert not emulator.verify(replace(source, text=wrong), plan, SHALLOW).ok


def test_groups_of_all_lanes_are_counted(emulator: Emulator) -> None:
    """Two groups a lane, but one for the last with groups, which alone has rows."""
    problem = replace(GROUPED, groups=Groups.parse(",".join(["0"] * 60 + ["140"])))
    family, one = load_family("gemm_wgmma"), config()
    source, plan = render(family, one, problem), plan_of(one, problem, 5)
    assert emulator.verify(source, plan, problem).ok
    wrong = source.text.replace("tiles_before, 31)", "tiles_before, 30)")
    assert wrong != source.text
    assert not emulator.verify(replace(source, text=wrong), plan, problem).ok
