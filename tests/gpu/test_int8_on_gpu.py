"""8-bit integers on a GPU of compute capability 9.0."""

from dataclasses import replace

import pytest

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
    **{"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 4, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132},
}
# Deep enough for sums that FP32 does not hold.
PROBLEM = Problem(264, 400, 4112, Layout.NT, DType.I8)


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    return target


def measured(
    target: CudaTarget, compiler: Compiler, problem: Problem, plants: tuple[str, str] | None = None
) -> Outcome:
    family = load_family("gemm_wgmma")
    config = family.completed(Config.of("gemm_wgmma", TILE))
    source = render(family, config, problem)
    if plants is not None:
        assert plants[0] in source.text
        source = replace(source, text=source.text.replace(*plants))
    compiled = compiler.compile(source, target.device.sm)
    plan = launch_plan(family, config, problem)
    return target.measure(Candidate(source, plan, compiled), None)


@pytest.mark.parametrize("dtype", [one for one in DType if one.ab.is_integer], ids=str)
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_kernel_is_right(
    target: CudaTarget, compiler: Compiler, dtype: DType, beta: float
) -> None:
    problem = replace(PROBLEM, dtype=dtype, beta=beta)
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    outcome = measured(target, compiler, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


def test_sums_are_scaled_by_row_and_column(target: CudaTarget, compiler: Compiler) -> None:
    problem = replace(PROBLEM, dtype=DType.I8_BF16).with_epilogue(Epilogue("acc * sa[m] * sb[n]"))
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    outcome = measured(target, compiler, problem)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


@pytest.mark.parametrize(
    "plants",
    [
        (".s32.s8.s8 ", ".s32.u8.s8 "),
        (".s32.s8.s8 ", ".s32.s8.u8 "),
        (
            "keep_in_place(accum[i]);\n    }",
            "keep_in_place(accum[i]);\n"
            "        for (int& one : accum[i]) one = (int)(float)one;\n    }",
        ),
    ],
    ids=["unsigned A", "unsigned B", "sums in FP32"],
)
def test_a_planted_bug_is_caught(
    target: CudaTarget, compiler: Compiler, plants: tuple[str, str]
) -> None:
    target.prepare(PROBLEM, MeasureOptions(deadline_s=10.0, compares=False))
    assert measured(target, compiler, PROBLEM, plants).status is Status.WRONG_RESULT


def test_the_baseline_is_exact(target: CudaTarget) -> None:
    """cuBLAS takes 8-bit integers in layout nt where rows are multiples of 4."""
    target.prepare(PROBLEM, MeasureOptions(deadline_s=10.0))
    assert target.baseline_us is not None
