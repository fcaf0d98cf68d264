"""8-bit floats on a GPU of compute capability 9.0."""

import pytest

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
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


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    return target


def measured(target: CudaTarget, compiler: Compiler, problem: Problem, promote: int) -> Outcome:
    family = load_family("gemm_wgmma")
    config = family.completed(Config.of("gemm_wgmma", TILE | {"PROMOTE": promote}))
    source = render(family, config, problem)
    compiled = compiler.compile(source, target.device.sm)
    plan = launch_plan(family, config, problem)
    return target.measure(Candidate(source, plan, compiled), None)


@pytest.mark.parametrize("dtype", [one for one in DType if one.size_bytes == 1], ids=str)
@pytest.mark.parametrize("promote", [0, 128, 512])
def test_a_kernel_is_right(
    target: CudaTarget, compiler: Compiler, dtype: DType, promote: int
) -> None:
    problem = Problem(264, 392, 1040, Layout.NT, dtype)
    target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
    outcome = measured(target, compiler, problem, promote)
    assert (outcome.status, outcome.reason) == (Status.OK, "")


def test_the_accumulation_width_is_the_published_one(
    target: CudaTarget, compiler: Compiler
) -> None:
    """The error that never promoting adds depends on the width alone: the emulator's model has a
    relative error of 0.0027 at K = 16384 and 13 bits, about half with each bit more, and 0.0001
    promoted every 128.
    """
    problem = Problem(512, 512, 16384, Layout.NT, DType.E4M3_F32)
    target.prepare(problem, MeasureOptions(deadline_s=20.0, compares=False))
    found = []
    for promote in (0, 128):
        outcome = measured(target, compiler, problem, promote)
        assert (outcome.status, outcome.reason) == (Status.OK, "")
        assert outcome.verification is not None
        found.append(outcome.verification.error)
    print(f"relative error, never promoted: {found[0]:.3g}, every 128: {found[1]:.3g}")
    assert 0.0018 < found[0] < 0.0042
    assert found[1] < 0.0005
