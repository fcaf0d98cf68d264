"""Blocks of a cluster that add up a tile's partial sums in gemm_skinny, on a GPU with clusters."""

from dataclasses import replace

import pytest
from gpu_kernels import Edited

from autogemm.compile import Compiler
from autogemm.model.batch import Batch
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.tools.sanitizer import find_sanitizer

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 256, "WN": 16, "SLICE_K": 4, "SPLIT_K": 2, "PARTIALS": "cluster"},
    **{"STAGES": 1, "PREFETCH_A": 1, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}
WIDE: dict[str, Value] = {"BM": 16, "BN": 64, "WN": 64, "SPLIT_K": 8}
SEVENTHS: dict[str, Value] = {"BM": 16, "BK": 1792, "SLICE_K": 7, "PDL": "early", "L2_AHEAD": 1}
SCALED = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
GATED = Epilogue("silu(acc[n]) * acc[n + N]")
DECODE = Problem(16, 2112, 7168, Layout.NT, DType.E4M3)
BF16 = replace(DECODE, dtype=DType.BF16)
ODD = Problem(9, 1001, 1003, Layout.NT, DType.BF16)


@pytest.fixture(scope="module")
def skinny(target: CudaTarget, compiler: Compiler) -> Edited:
    if target.device.arch < 90:
        pytest.skip(f"{target.device.name} has no clusters")
    return Edited("gemm_skinny", target, compiler)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (SEVENTHS, DECODE),
        (SEVENTHS, DECODE.with_epilogue(SCALED)),
        (SEVENTHS | {"SPLIT_K": 4, "BK": 448}, replace(DECODE, dtype=DType.E5M2_F32)),
        ({}, BF16),
        (WIDE, replace(BF16, layout=Layout.NN, lda=0, ldb=0)),
        (WIDE | {"PDL": "late"}, BF16.with_epilogue(GATED)),
        ({"SPLIT_K": 4}, ODD),
        ({"SPLIT_K": 4}, replace(ODD, batch=Batch.parse("5"))),
        ({"BK": 128}, Problem(48, 512, 1024, Layout.NT, DType.BF16, groups=Groups.parse("7"))),
        ({}, replace(DECODE, dtype=DType.I8)),
        ({"BK": 512}, replace(DECODE, k=512, lda=0, ldb=0, dtype=DType.BF16)),
    ],
    ids=[
        *("e4m3", "scaled", "e5m2", "bf16", "wide", "gated", "odd", "batch", "groups", "i8"),
        "idle",
    ],
)
def test_a_kernel_is_right(skinny: Edited, changes: dict[str, Value], problem: Problem) -> None:
    outcome = skinny.outcome(TILE | changes, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "edit",
    [
        ("partial < SPLIT_K; ++partial", "partial < SPLIT_K - 1; ++partial"),
        ("received + partial * SHARE + at % SHARE", "received + at % SHARE"),
        ("4 * (partial * SHARE + at)", "4 * at"),
    ],
    ids=["one block left out", "in one place", "the first share"],
)
def test_a_planted_bug_is_caught(skinny: Edited, edit: tuple[str, str]) -> None:
    assert skinny.outcome(TILE | SEVENTHS, DECODE, edit).status is Status.WRONG_RESULT


@pytest.mark.skipif(find_sanitizer() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize(
    ("changes", "epilogue"), [(SEVENTHS, SCALED), (WIDE, Epilogue()), (WIDE, GATED)], ids=str
)
def test_sanitizers_find_nothing(
    skinny: Edited, changes: dict[str, Value], epilogue: Epilogue
) -> None:
    dtype = DType.E4M3 if epilogue is SCALED else DType.BF16
    problem = Problem(16, 264, 3584, Layout.NT, dtype, epilogue=epilogue)
    assert skinny.findings(TILE | changes, problem) == []
