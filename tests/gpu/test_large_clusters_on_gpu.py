"""Clusters of four and eight blocks of gemm_wgmma, on a GPU of compute capability 9.0."""

from dataclasses import replace

import pytest
from gpu_kernels import Edited

from autogemm.model.batch import Batch
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 72, "BN": 128, "WM": 72, "WN": 128, "STAGES": 6, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 2, "CLUSTER_N": 4, "SPLIT_K": 1, "BOX_M": 8, "C_BUFFERS": 2, "SWAP_AB": 1},
    **{"GROUP_M": 1, "BLOCKS": 0},
}
STRAIGHT: dict[str, Value] = {"BM": 128, "WM": 64, "SWAP_AB": 0, "BOX_M": 64, "C_BUFFERS": 1}
SCALED = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
GATED = Epilogue("silu(acc[n]) * acc[n + N]")
THOUSAND = Problem(1000, 1000, 1000, Layout.NT, DType.BF16)
BYTES = replace(THOUSAND, k=1024, lda=0, ldb=0, dtype=DType.E4M3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, THOUSAND),
        ({"BM": 168, "WM": 168, "CLUSTER_M": 1, "STAGES": 5}, Problem(2500, 1000, 3000)),
        ({"BM": 80, "WM": 80, "CLUSTER_M": 1, "PDL": "late"}, THOUSAND),
        ({"BM": 104, "WM": 104, "CLUSTER_M": 1, "CLUSTER_N": 4}, THOUSAND),
        (STRAIGHT | {"CLUSTER_M": 4, "CLUSTER_N": 2}, Problem(1000, 1000, 1000, Layout.TT)),
        (STRAIGHT | {"CLUSTER_M": 4, "CLUSTER_N": 1}, THOUSAND),
        (STRAIGHT | {"WM": 128, "SCHEDULE": "pingpong", "BLOCKS": 120}, Problem(3000, 3000, 1000)),
        (STRAIGHT | {"PROMOTE": 128}, BYTES),
        (STRAIGHT | {"PROMOTE": 128}, BYTES.with_epilogue(SCALED)),
        (STRAIGHT, replace(THOUSAND, m=600, batch=Batch.parse("5"), lda=0, ldb=0, ldc=0)),
        ({"STORE_C": "threads"}, replace(THOUSAND, groups=Groups.parse("7"))),
        (STRAIGHT, Problem(1000, 1000, 1000, Layout.TN, groups=Groups.parse("7"))),
    ],
    ids=[
        *("eight", "three load", "two load", "one loads", "across k", "four below each other"),
        *("pingpong", "e4m3", "scales of blocks", "batch", "groups", "groups of k"),
    ],
)
def test_a_kernel_is_right(wgmma: Edited, changes: dict[str, Value], problem: Problem) -> None:
    if problem.dtype is DType.F32:
        problem = replace(problem, dtype=DType.BF16)
    outcome = wgmma.outcome(TILE | changes, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "edit",
    [
        ("0x3u << 2 * tiles.column_in_cluster", "0x3u"),
        ("tiles.column_in_cluster * ROWS", "0 * ROWS"),
        ("own < BM", "own < BM - ROWS"),
    ],
    ids=["other columns' blocks", "the first rows", "the last rows"],
)
def test_a_planted_bug_is_caught(wgmma: Edited, edit: tuple[str, str]) -> None:
    assert wgmma.outcome(TILE, THOUSAND, edit).status is not Status.OK


@pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize(
    "changes", [{}, STRAIGHT | {"CLUSTER_M": 4, "CLUSTER_N": 1}], ids=["eight", "four"]
)
def test_sanitizers_find_nothing(wgmma: Edited, changes: dict[str, Value]) -> None:
    problem = Problem(304, 520, 200, Layout.NT, DType.BF16)
    assert wgmma.findings(TILE | changes, problem) == []
