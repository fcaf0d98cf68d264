"""Blocks of a cluster that add up a tile's partial sums, in gemm_skinny: right kernels pass in the
emulator, planted bugs do not.
"""

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
    **{"BM": 8, "BN": 16, "BK": 64, "WN": 16, "SLICE_K": 2, "SPLIT_K": 4, "PARTIALS": "cluster"},
    **{"STAGES": 1, "PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}
# Columns beyond the last tile, and a rest of K.
PROBLEM = Problem(5, 264, 592, Layout.NT, DType.BF16)
BYTES = replace(PROBLEM, dtype=DType.E4M3)
SCALED = BYTES.with_epilogue(Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"))
GATED = Epilogue("silu(acc[2 * n]) * acc[2 * n + 1]")
# Tiles of more vectors than a block has threads.
WIDE: dict[str, Value] = {"BM": 16, "BN": 64, "WN": 64, "SLICE_K": 1, "SPLIT_K": 2}


def config(**changes: Value) -> Config:
    return load_family("gemm_skinny").completed(Config.of("gemm_skinny", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        (WIDE, replace(PROBLEM, m=13, beta=-1.5)),
        ({"SPLIT_K": 8, "PDL": "late"}, replace(PROBLEM, k=960, lda=0, ldb=0)),
        ({}, replace(PROBLEM, n=41, k=603, lda=0, ldb=0, ldc=0)),
        ({}, replace(PROBLEM, layout=Layout.NN, ldb=0)),
        ({"PDL": "early", "L2_AHEAD": 1}, replace(PROBLEM, batch=Batch.parse("3"))),
        ({}, replace(PROBLEM, m=20, groups=Groups.parse("3"))),
        ({}, PROBLEM.with_epilogue(GATED)),
        (WIDE, replace(PROBLEM, m=13).with_epilogue(GATED)),
        ({"BK": 128}, BYTES),
        ({"SLICE_K": 7, "BK": 448, "SPLIT_K": 2}, replace(BYTES, k=1344, lda=0, ldb=0)),
        ({"BK": 256, "SPLIT_K": 2}, SCALED),
        ({"BK": 128}, replace(BYTES, dtype=DType.I8)),
        # Blocks without a k_tile.
        ({"BK": 256}, replace(PROBLEM, k=512, lda=0, ldb=0)),
    ],
    ids=[
        *("bf16", "wide", "eight", "any size", "columns", "batch", "groups", "gated"),
        *("gated wide", "e4m3", "sevenths", "scaled", "i8", "idle"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_skinny"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    plan = launch_plan(family, one, problem)
    assert plan.workspace_bytes == 0
    report = emulator.verify(render(family, one, problem), plan, problem)
    assert report.ok, report.message


BUGS = {
    "all partial sums go to one block": ("at / SHARE,", "0,"),
    "partial sums of blocks lie in one place": (
        "received + partial * SHARE + at % SHARE",
        "received + at % SHARE",
    ),
    "shares begin where no block's does": ("4 * (partial * SHARE + at)", "4 * (partial + at)"),
    "every block stores the first share": ("4 * (partial * SHARE + at)", "4 * at"),
    "the last block's partial sums are left out": (
        "partial < SPLIT_K; ++partial",
        "partial < SPLIT_K - 1; ++partial",
    ),
    "another block's partial sums twice": (
        "received[partial * SHARE + at]",
        "received[partial / 2 * SHARE + at]",
    ),
    "added before they are there": ("    mbarrier_wait(arrived, 0);\n", ""),
    "sent before all have begun": ("    cluster_wait_acquire();\n", ""),
    "the barrier expects half of the bytes": ("TILE * (int)sizeof", "TILE / 2 * (int)sizeof"),
    "the barrier expects more bytes": ("TILE * (int)sizeof", "2 * TILE * (int)sizeof"),
    "the barrier is told after the others may send": (
        "        mbarrier_arrive_expect(arrived, TILE * (int)sizeof(float));\n    }\n"
        "    cluster_arrive_relaxed();",
        "    }\n    cluster_arrive_relaxed();",
    ),
    "sent to the tiles of the warps": ("(shared + SLICE_K * TILE)", "(shared)"),
    "ranges of K of two blocks": ("(partial + 1) / SPLIT_K);", "(partial + 2) / SPLIT_K);"),
    "clusters of half of the blocks": (
        "__cluster_dims__(1, 1, SPLIT_K)",
        "__cluster_dims__(1, 1, 2)",
    ),
    "only a tile's first vectors are sent": (
        "vector < VECTORS; ++vector) {\n        if (owned",
        "vector < 1; ++vector) {\n        if (owned",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    """In a tile of which each thread owns two vectors."""
    old, new = BUGS[name]
    family, one = load_family("gemm_skinny"), config(**WIDE | {"SPLIT_K": 4})
    problem = replace(PROBLEM, m=13)
    source, plan = render(family, one, problem), launch_plan(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, problem).ok


GATED_BUGS = {
    "both columns from one": ("owned(vector) % ELEMENTS / 4", "owned(vector) / 4"),
    "second sums of the first": ("from[SHARE], share", "from[0], share"),
    "columns of blocks overlap": ("2 * partial + column", "partial + column"),
    "sums of the next vector": ("share[vector + SHARE_VECTORS][e]", "share[vector + 0][e]"),
}


@pytest.mark.parametrize("name", GATED_BUGS)
def test_a_bug_planted_in_pairs_of_columns_is_caught(emulator: Emulator, name: str) -> None:
    old, new = GATED_BUGS[name]
    problem = PROBLEM.with_epilogue(GATED)
    family, one = load_family("gemm_skinny"), config()
    source, plan = render(family, one, problem), launch_plan(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, problem).ok


@pytest.mark.parametrize(
    ("changes", "gpu", "rule"),
    [
        ({"SPLIT_K": 3}, "h200", "eight blocks at most"),
        ({"SPLIT_K": 16}, "h200", "eight blocks at most"),
        ({"SPLIT_K": 1}, "h200", "eight blocks at most"),
        ({}, "a100", "from sm_90 on"),
    ],
    ids=["three", "sixteen", "one", "a100"],
)
def test_others_are_refused(changes: dict[str, Value], gpu: str, rule: str) -> None:
    broken = broken_constraints(
        load_family("gemm_skinny"), config(**changes), PROBLEM, find_device(gpu)
    )
    assert any(rule in line for line in broken)
