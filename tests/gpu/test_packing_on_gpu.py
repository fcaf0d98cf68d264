"""Operands that gemm_wgmma packs, and C that threads write, on a GPU."""

import pytest
from packed_cases import CASES, PackedCase

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Status
from autogemm.space import launch_plan, load_family
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_emulator_holds_for_right_is(
    target: CudaTarget, compiler: Compiler, case: PackedCase
) -> None:
    if target.device.arch != 90:
        pytest.skip(f"{target.device.name} has no wgmma")
    family = load_family("gemm_wgmma")
    source = render(family, case.config, case.problem)
    compiled = compiler.compile(source, target.device.sm)
    plan = launch_plan(family, case.config, case.problem)
    target.prepare(case.problem, MeasureOptions(deadline_s=10.0))
    outcome = target.measure(Candidate(source, plan, compiled), None)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
