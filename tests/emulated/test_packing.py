"""Operands that gemm_wgmma packs, and C that threads write: right in the emulator."""

from dataclasses import replace

import pytest
from packed_cases import CASES, PackedCase

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

FAMILY = load_family("gemm_wgmma")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packed_operands_give_the_product(emulator: Emulator, case: PackedCase) -> None:
    assert not broken_constraints(FAMILY, case.config, case.problem, find_device("h200"))
    plan = launch_plan(FAMILY, case.config, case.problem, few_blocks=True)
    report = emulator.verify(render(FAMILY, case.config, case.problem), plan, case.problem)
    assert report.ok, report.message


def test_padding_behind_packed_rows_is_no_data(emulator: Emulator) -> None:
    """Nothing is written there: a map that has it as columns brings garbage."""
    case = CASES[0]
    plan = launch_plan(FAMILY, case.config, case.problem, few_blocks=True)
    wider = tuple(
        replace(one, extent=(one.ld, one.extent[1])) if one.matrix == "workspace" else one
        for one in plan.tensor_maps
    )
    assert wider != plan.tensor_maps
    source = render(FAMILY, case.config, case.problem)
    report = emulator.verify(source, replace(plan, tensor_maps=wider), case.problem)
    assert not report.ok
