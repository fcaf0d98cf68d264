"""Kernels that the emulator accepts are right on a GPU of compute capability 9.0 too."""

import pytest
from handover import KERNELS

from autogemm.compile import Compiler
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Status
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu

RIGHT = [(kernel, name) for kernel in KERNELS for name in ("", *KERNELS[kernel].right)]


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch < 90:
        pytest.skip(f"{target.device.name} has no clusters")
    return target


@pytest.mark.parametrize(("kernel", "name"), RIGHT)
def test_a_kernel_that_hands_over_rightly_is_right(
    target: CudaTarget, compiler: Compiler, kernel: str, name: str
) -> None:
    case = KERNELS[kernel]
    source = case.for_a_gpu(name)
    compiled = compiler.compile(source, target.device.sm)
    target.prepare(case.problem, MeasureOptions(deadline_s=10.0))
    outcome = target.measure(Candidate(source, case.plan, compiled), None)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
