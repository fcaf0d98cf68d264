"""Tiles of gemm_wgmma that are left for a last wave, on a GPU of compute capability 9.0.

Parts that are added before all of them are there are seen by the emulator's tests alone: on a GPU
they arrive within the time that an atomic operation takes.
"""

from dataclasses import replace

import pytest
from gpu_kernels import Edited

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Batch, Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 8, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 8, "PARTIALS": "last_wave", "BOX_M": 16},
    **{"C_BUFFERS": 1, "GROUP_M": 4, "BLOCKS": 132},
}
LARGE: dict[str, Value] = {
    **{"BM": 192, "BN": 256, "WM": 192, "WN": 128, "STAGES": 3, "SWAP_AB": 1},
    **{"C_BUFFERS": 4, "GROUP_M": 8},
}
PAIRS: dict[str, Value] = {"BM": 128, "WM": 64, "CLUSTER_N": 2, "STAGES": 6}
# 288 tiles of 64x64: 24 are left of two waves, for five blocks each.
PROBLEM = Problem(1000, 1104, 1032, Layout.NT, DType.BF16)
# As many, of three groups.
GROUPED = replace(PROBLEM, n=1024, ldc=0, groups=Groups.parse("0,65,0,7,900"))
MASKED = replace(GROUPED, m=1200, groups=Groups.parse("3 uniform masked=400"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        ({}, replace(PROBLEM, m=128, n=256)),
        # Two parts of a tile, of a k tile each, and one.
        ({}, replace(PROBLEM, k=72, lda=0, ldb=0)),
        ({}, replace(GROUPED, k=64, lda=0, ldb=0)),
        ({"PDL": "late"}, PROBLEM),
        (PAIRS, PROBLEM),
        (LARGE, replace(PROBLEM, m=3000, n=2600, ldc=0)),
        ({"STORE_C": "threads"}, Problem(1000, 1101, 1032, Layout.NN, DType.BF16, ldb=1104)),
        ({"PROMOTE": 128}, replace(PROBLEM, k=1040, lda=0, ldb=0, dtype=DType.E4M3)),
        ({}, replace(PROBLEM, k=1040, lda=0, ldb=0, dtype=DType.I8)),
        ({}, replace(PROBLEM, m=100, batch=Batch(8))),
        ({}, GROUPED),
        (PAIRS, GROUPED),
        ({"BOX_M": 64}, GROUPED.with_epilogue(Epilogue("gelu(acc + bias[g, n])"))),
        ({}, MASKED),
    ],
    ids=[
        *(
            "fifths",
            "all of few tiles",
            "two k tiles",
            "one k tile",
            "two launches at once",
            "clusters",
            "large",
            "odd",
        ),
        *("e4m3", "i8", "batch", "groups", "groups in clusters", "epilogue", "masked"),
    ],
)
def test_a_kernel_is_right(wgmma: Edited, changes: dict[str, Value], problem: Problem) -> None:
    outcome = wgmma.outcome(TILE | changes, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "edit",
    [
        ("if (other < parts)", "if (other < parts - 1)"),
        ("*counter = 0;", ""),
        ("(part * NEXT * CONSUMERS * FOURS + at)", "(0 * FOURS + at)"),
        ("whole + left * parts", "whole + left"),
        ("tiles_before, 31)", "tiles_before, 1)"),
    ],
    ids=[
        *("the last part is left out", "the counter is left", "one place", "parts are left out"),
        "not all groups are counted",
    ],
)
def test_a_planted_bug_is_caught(wgmma: Edited, edit: tuple[str, str]) -> None:
    assert wgmma.outcome(TILE, GROUPED, edit).status is not Status.OK


@pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("changes", [{}, PAIRS], ids=["alone", "clusters"])
def test_sanitizers_find_nothing(wgmma: Edited, changes: dict[str, Value]) -> None:
    assert (
        wgmma.findings(TILE | changes | {"STAGES": 2}, replace(GROUPED, k=520, lda=0, ldb=0)) == []
    )
