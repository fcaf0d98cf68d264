"""8-bit elements of few rows on a GPU that converts 8-bit floats: gemm_skinny."""

from dataclasses import replace

import pytest

import autogemm
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.space import launch_plan, load_family
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu

TILE: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 1024, "WN": 16, "SLICE_K": 8, "SPLIT_K": 1, "STAGES": 1},
    **{"PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 3},
}
WIDE: dict[str, Value] = {"BM": 16, "BN": 64, "BK": 512, "WN": 32, "SLICE_K": 4, "STAGES": 2}
SCALED = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch < 89:
        pytest.skip(f"{target.device.name} does not convert 8-bit floats")
    return target


def measured(
    target: CudaTarget,
    compiler: Compiler,
    problem: Problem,
    edit: tuple[str, str] = ("", ""),
    **changes: Value,
) -> Outcome:
    family = load_family("gemm_skinny")
    config = family.completed(Config.of("gemm_skinny", TILE | changes))
    source = render(family, config, problem)
    assert edit[0] in source.text
    source = replace(source, text=source.text.replace(*edit)) if edit[0] else source
    compiled = compiler.compile(source, target.device.sm)
    plan = launch_plan(family, config, problem)
    return target.measure(Candidate(source, plan, compiled), None)


@pytest.mark.parametrize("epilogue", [Epilogue(), Epilogue("acc * sa[m] * sb[n]"), SCALED], ids=str)
@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (DType.E4M3, {}),
        (DType.E4M3_F32, {"BK": 2048, "SLICE_K": 16, "MIN_BLOCKS": 2}),
        (DType.E4M3_F16, {"BK": 512, "SPLIT_K": 3, "MIN_BLOCKS": 1}),
        (DType.E5M2, WIDE | {"PREFETCH_A": 1, "MIN_BLOCKS": 1}),
        (DType.E5M2_F32, {"BK": 1024, "SLICE_K": 2, "SPLIT_K": 2, "MIN_BLOCKS": 1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [(1, 2112, 7168), (16, 264, 1040), (9, 1001, 1003)], ids=str)
def test_a_kernel_is_right(  # noqa: PLR0917  # a problem and its config
    target: CudaTarget,
    compiler: Compiler,
    dtype: DType,
    changes: dict[str, Value],
    epilogue: Epilogue,
    size: tuple[int, int, int],
) -> None:
    problem = Problem(*size, Layout.NT, dtype, epilogue=epilogue)
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    outcome = measured(target, compiler, problem, **changes)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize("dtype", [one for one in DType if one.ab.is_integer], ids=str)
@pytest.mark.parametrize("size", [(1, 2112, 7168), (9, 1001, 4003)], ids=str)
def test_sums_of_integers_are_exact(
    target: CudaTarget, compiler: Compiler, dtype: DType, size: tuple[int, int, int]
) -> None:
    problem = Problem(*size, Layout.NT, dtype)
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    for changes in ({}, {"BK": 512, "SPLIT_K": 3, "MIN_BLOCKS": 1}):
        outcome = measured(target, compiler, problem, **changes)
        assert (outcome.status, outcome.reason) == (Status.OK, "")
    edit = ("accum[j / 2][i][j % 2 * 2], accum", "(int)(float)accum[j / 2][i][j % 2 * 2], accum")
    if dtype is DType.I8:
        outcome = measured(target, compiler, problem, edit, SLICE_K=2, BK=512, MIN_BLOCKS=1)
        assert outcome.status is Status.WRONG_RESULT


REST = "block_scales.load(k), accum"


@pytest.mark.parametrize(
    "edit",
    [
        ("scales.a[block][i / 4] * scales.b[block]", "1.0f"),
        ("i % 4 * 8 + row + e", "i % 4 * 8 + row + 1 - e"),
        ("k / 128 + at", "k / 128 - at"),
        ("n / 128) * num", "0) * num"),
        (REST, "Scales{}, accum"),
        (REST, "block_scales.load(lane_k), accum"),
        ("a[step][i][word]", "a[step][i][word ^ 1]"),
        ("rows[i][0], rows[i][1]", "rows[i][1], rows[i][0]"),
    ],
    ids=[
        *("no scales", "other row", "other block", "other columns", "rest without"),
        *("rest with the first", "another word", "pairs exchanged"),
    ],
)
def test_planted_bugs_are_seen(
    target: CudaTarget, compiler: Compiler, edit: tuple[str, str]
) -> None:
    """Two blocks for each warp, and a rest that ends within one."""
    problem = Problem(5, 392, 3216, Layout.NT, DType.E4M3, epilogue=SCALED)
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    outcome = measured(target, compiler, problem, edit, SLICE_K=4, MIN_BLOCKS=1)
    assert outcome.status is Status.WRONG_RESULT


def test_sums_are_those_of_fp32(target: CudaTarget, compiler: Compiler) -> None:
    """Those of wgmma that are never promoted have a relative error of 0.0018 and more here."""
    problem = Problem(16, 512, 16384, Layout.NT, DType.E4M3_F32)
    target.prepare(problem, MeasureOptions(deadline_s=20.0, compares=False))
    outcome = measured(target, compiler, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.verification is not None
    print(f"relative error: {outcome.verification.error:.3g}")
    assert outcome.verification.error < 0.00001


def test_gemm_takes_few_rows(target: CudaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NaN as both types have it."""
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("AUTOGEMM_DB", "/nonexistent/none.db")
    assert target.device.arch >= 89
    (m, n, k), cuda = (4, 264, 1040), {"device": "cuda:0"}
    a, b = (torch.randn(rows, k, **cuda).to(torch.float8_e4m3fn) for rows in (m, n))
    sa, sb = torch.rand(9, m, **cuda) + 0.5, torch.rand(3, 9, **cuda) + 0.5
    a.view(torch.uint8)[2, 17] = 0x7F
    out = torch.zeros((m, n), dtype=torch.bfloat16, **cuda)
    autogemm.gemm(a, b.T, out, epilogue=str(SCALED), sa=sa, sb=sb)
    assert bool(out[2].isnan().all()) and not bool(out[[0, 1, 3]].isnan().any())
    wide_a = a.double() * sa.double().repeat_interleave(128, 0)[:k].T
    by_column = sb.double().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    expected = (wide_a @ (b.double() * by_column).T)[[0, 1, 3]]
    assert float((out[[0, 1, 3]].double() - expected).norm() / expected.norm()) < 0.003
