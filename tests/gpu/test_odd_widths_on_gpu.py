"""Tiles of gemm_wgmma whose columns boxes do not divide, on a GPU of compute capability 9.0.

That what is written twice is not under way is seen by the emulator's tests alone: it is alike.
"""

from dataclasses import replace

import pytest
from gpu_kernels import Edited

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 256, "BN": 136, "WM": 128, "WN": 136, "STAGES": 4, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 16, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 0},
}
PINGPONG: dict[str, Value] = {
    **{"BM": 128, "SCHEDULE": "pingpong", "BN": 152, "WN": 152, "BLOCKS": 132, "STAGES": 5},
    "PDL": "late",
}
PARTS: dict[str, Value] = {"SPLIT_K": 2, "PARTIALS": "workspace"}
LAYER = Problem(1000, 1512, 2048, Layout.NT, DType.BF16)
BYTES = replace(LAYER, n=1520, ldc=0, dtype=DType.E4M3)
GATED = Epilogue("silu(acc[n]) * acc[n + N]")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, LAYER),
        ({"BOX_M": 64, "C_BUFFERS": 2, "BN": 160, "WN": 160, "STAGES": 3}, LAYER),
        (PINGPONG, replace(LAYER, layout=Layout.TT, lda=0, ldb=0)),
        ({"BM": 128, "BN": 224, "WM": 64, "WN": 224}, replace(LAYER, alpha=0.5, beta=0.5)),
        ({"CLUSTER_M": 2, "CLUSTER_N": 2, "BN": 112, "WN": 112}, LAYER),
        ({"BM": 64, "WM": 64, "BN": 192, "WN": 96, "STAGES": 6}, LAYER),
        ({"STORE_C": "threads"}, replace(LAYER, n=1507, ldc=0)),
        (PARTS, LAYER),
        ({"PROMOTE": 128, "WM": 64, "BM": 128}, BYTES),
        ({"BN": 80, "WN": 80}, replace(BYTES, dtype=DType.I8)),
        ({"BN": 104, "WN": 104}, replace(LAYER, dtype=DType.TF32)),
        ({}, LAYER.with_epilogue(Epilogue("gelu(acc + bias[n])"))),
        ({"BN": 104, "WN": 104, "WM": 64, "BM": 128}, LAYER.with_epilogue(GATED)),
        ({"STORE_C": "threads"}, replace(LAYER, groups=Groups.parse("7"))),
        ({}, replace(LAYER, groups=Groups.parse("7"))),
        ({"BN": 152, "WN": 152, "STAGES": 3}, replace(LAYER, layout=Layout.NN, lda=0, ldb=0)),
        (
            {"BN": 104, "WN": 104, "CLUSTER_M": 2, "CLUSTER_N": 2},
            replace(LAYER, layout=Layout.TN, m=1024, lda=0, ldb=0),
        ),
    ],
    ids=[
        *("warps write", "warpgroups write", "pingpong", "C is read", "clusters", "side by side"),
        *("odd rows of C", "parts", "e4m3", "i8", "tf32", "epilogue", "gated", "groups"),
        *("groups by threads and TMA", "across k", "across k in clusters"),
    ],
)
def test_a_kernel_is_right(wgmma: Edited, changes: dict[str, Value], problem: Problem) -> None:
    outcome = wgmma.outcome(TILE | changes, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "edit",
    [
        (": WN - BOX_N;", ": WN - WN % BOX_N;"),
        ("box < BOXES", "box < WHOLE_BOXES"),
        (": box - WHOLE_BOXES;", ": 0;"),
    ],
    ids=["past the tile", "the last boxes are left out", "the first row tile alone"],
)
def test_a_planted_bug_is_caught(wgmma: Edited, edit: tuple[str, str]) -> None:
    assert wgmma.outcome(TILE, LAYER, edit).status is not Status.OK


@pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("changes", [{}, PINGPONG], ids=["cooperative", "pingpong"])
def test_sanitizers_find_nothing(wgmma: Edited, changes: dict[str, Value]) -> None:
    problem = Problem(304, 520, 200, Layout.NT, DType.BF16)
    assert wgmma.findings(TILE | changes, problem) == []
