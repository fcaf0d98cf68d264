"""Threads that hand over data without a barrier of their block: right passes, slips are caught."""

import pytest
from handover import KERNELS
from handover.edits import Kernel

from autogemm.targets.emulator import Emulator, Mode, RunOptions

pytestmark = pytest.mark.emulated

RIGHT = [(kernel, name) for kernel in KERNELS for name in ("", *KERNELS[kernel].right)]
WRONG = [(kernel, name) for kernel in KERNELS for name in KERNELS[kernel].wrong]


@pytest.mark.parametrize(("kernel", "name"), RIGHT)
def test_handing_over_as_it_should_be_passes(emulator: Emulator, kernel: str, name: str) -> None:
    case: Kernel = KERNELS[kernel]
    report = emulator.verify(case.edited(name), case.plan, case.problem)
    assert report.ok, [str(finding) for finding in report.findings]


@pytest.mark.parametrize(("kernel", "name"), WRONG)
def test_a_slip_in_handing_over_is_caught(emulator: Emulator, kernel: str, name: str) -> None:
    case: Kernel = KERNELS[kernel]
    report = emulator.verify(case.edited(name), case.plan, case.problem)
    assert not report.ok
    found = [str(finding) for finding in report.findings]
    assert any(case.wrong[name].says in text for text in found), found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("mode", Mode)
def test_any_schedule_gives_the_result(emulator: Emulator, kernel: str, mode: Mode) -> None:
    case: Kernel = KERNELS[kernel]
    for seed in range(6):
        options = RunOptions(mode=mode, seed=seed, late_copies=seed % 2 == 0)
        report = emulator.run(case.edited(), case.plan, case.problem, options)
        assert report.ok, report.message
