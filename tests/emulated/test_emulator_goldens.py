"""The golden sources run on the CPU: problems cut down in size need the very same text."""

import pytest
from golden_cases import GOLDEN_CASES, GoldenCase
from sampling import one_in

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Problem
from autogemm.space import launch_plan, load_family
from autogemm.verify.edge_cases import reduced

pytestmark = pytest.mark.emulated


def cut_down(case: GoldenCase) -> Problem:
    # A kernel without BK steps through K by something that divides 64, each of its parts.
    values = case.config.as_dict()
    values = {"BK": 64 * int(values.get("SPLIT_K", 1))} | values
    bm, bn, bk = (int(values[name]) for name in ("BM", "BN", "BK"))
    return reduced(case.problem, (bm, bn, bk))


@pytest.mark.parametrize(
    "case", one_in(12, GOLDEN_CASES, lambda case: case.family), ids=lambda case: case.name
)
def test_a_golden_source_passes(emulator: Emulator, case: GoldenCase) -> None:
    family = load_family(case.family)
    problem = cut_down(case)
    assert problem.flops < case.problem.flops
    rendered = render(family, case.config, problem)
    text = case.path.read_text()
    assert rendered.text == text
    source = KernelSource(family.name, "", case.config, problem.layout, text)
    report = emulator.verify(source, launch_plan(family, case.config, problem), problem)
    assert report.ok, report.message
