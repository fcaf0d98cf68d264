"""Parts of tiles of gemm_wgmma that are added up through the workspace, on a GPU of compute
capability 9.0.

Parts that are added before all of them are there are seen by the emulator's tests alone: on a GPU
they arrive within the time that an atomic operation takes.
"""

from dataclasses import replace

import pytest
from gpu_kernels import Edited

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 10, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 4, "PARTIALS": "workspace", "BOX_M": 16},
    **{"C_BUFFERS": 1, "GROUP_M": 4, "BLOCKS": 0},
}
CLUSTERS: dict[str, Value] = {"BM": 128, "CLUSTER_M": 2, "CLUSTER_N": 2, "SPLIT_K": 2, "STAGES": 6}
WALKING: dict[str, Value] = {"BM": 128, "SPLIT_K": 2, "BLOCKS": 132, "STAGES": 6}
SWAPPED: dict[str, Value] = {
    **{"BM": 72, "WM": 72, "BN": 128, "WN": 128, "SWAP_AB": 1, "BOX_M": 8, "C_BUFFERS": 2},
    "STAGES": 6,
}
DEEP = Problem(256, 512, 8192, Layout.NT, DType.BF16)
BYTES = replace(DEEP, lda=0, ldb=0, dtype=DType.E4M3)
# Rows of C that TMA does not take.
ODD = Problem(250, 517, 8200, Layout.NN, DType.BF16, ldb=520)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, DEEP),
        ({"PDL": "late"}, replace(DEEP, layout=Layout.NN, lda=0, ldb=0)),
        ({"SPLIT_K": 8, "PDL": "early"}, replace(DEEP, layout=Layout.TT, lda=0, ldb=0)),
        (CLUSTERS, DEEP),
        (WALKING, Problem(1000, 1320, 520, Layout.NT, DType.BF16)),
        (SWAPPED, DEEP),
        ({"STORE_C": "threads"}, ODD),
        ({"STORE_C": "threads", "CLUSTER_N": 2}, ODD),
        ({"PROMOTE": 128}, BYTES),
        ({}, replace(BYTES, dtype=DType.I8)),
        ({"BOX_M": 64}, DEEP.with_epilogue(Epilogue("gelu(acc + bias[n])"))),
    ],
    ids=[
        *("four", "two launches at once", "eight", "clusters", "walking", "swapped", "odd"),
        *("odd in clusters", "e4m3", "i8", "epilogue"),
    ],
)
def test_a_kernel_is_right(wgmma: Edited, changes: dict[str, Value], problem: Problem) -> None:
    outcome = wgmma.outcome(TILE | changes, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "edit",
    [
        ("other < SPLIT_K; ++other", "other < SPLIT_K - 1; ++other"),
        ("*counter = 0;", ""),
        ("(part * FOURS + at)", "(0 * FOURS + at)"),
    ],
    ids=["the last part is left out", "the counter is left", "one place"],
)
def test_a_planted_bug_is_caught(wgmma: Edited, edit: tuple[str, str]) -> None:
    assert wgmma.outcome(TILE, DEEP, edit).status is not Status.OK


@pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("changes", [{}, CLUSTERS], ids=["alone", "clusters"])
def test_sanitizers_find_nothing(wgmma: Edited, changes: dict[str, Value]) -> None:
    problem = Problem(304, 520, 400, Layout.NT, DType.BF16)
    assert wgmma.findings(TILE | changes | {"STAGES": 2}, problem) == []
