"""Threads that hand over data without a barrier of their block: right passes, slips are caught."""

from dataclasses import replace

import pytest
from handover import KERNELS
from handover.cluster_sum import CLUSTER_SUM, READ
from handover.edits import Kernel
from sampling import one_in

from autogemm.emulator import Emulator, FindingKind, Mode, RunOptions

pytestmark = pytest.mark.emulated

RIGHT = [(kernel, name) for kernel in KERNELS for name in ("", *KERNELS[kernel].right)]
WRONG = [(kernel, name) for kernel in KERNELS for name in KERNELS[kernel].wrong]


@pytest.mark.parametrize(("kernel", "name"), one_in(3, RIGHT, lambda one: one[0]))
def test_handing_over_as_it_should_be_passes(emulator: Emulator, kernel: str, name: str) -> None:
    case: Kernel = KERNELS[kernel]
    report = emulator.verify(case.edited(name), case.plan, case.problem)
    assert report.ok, [str(finding) for finding in report.findings]


@pytest.mark.parametrize(("kernel", "name"), one_in(3, WRONG, lambda one: one[0]))
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


@pytest.mark.parametrize("end", ["", "cluster_sync();"])
def test_a_block_that_ended_later_by_chance_is_found(emulator: Emulator, end: str) -> None:
    """Threads in order: rank 0 reads before rank 1 ends, but nothing makes rank 1 wait for it."""
    text = CLUSTER_SUM.text.replace("load_from_rank(partial + n, i)", "LOAD").replace(READ, end)
    text = text.replace("LOAD", "rank > 0 ? make_float4(0, 0, 0, 0) : load_from_rank(partial, 1)")
    source = replace(CLUSTER_SUM.edited(), text=text)
    report = emulator.run(source, CLUSTER_SUM.plan, CLUSTER_SUM.problem)
    kinds = {finding.kind for finding in report.findings}
    assert (FindingKind.ENDED_BLOCK in kinds) == (not end)
