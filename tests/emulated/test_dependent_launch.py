"""Kernels that may begin before the one before them has ended: in the emulator no thread may use
global memory before it has waited.
"""

from dataclasses import replace

import pytest
from golden_cases import GOLDEN_CASES, GoldenCase

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator, FindingKind
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

CASES = {str(case): case for case in GOLDEN_CASES if dict(case.config).get("PDL", "none") != "none"}
SKINNY, AHEAD = "gemm_skinny_bf16_dependent", "gemm_skinny_e4m3_dependent_ahead"
WGMMA, SPLIT = "gemm_wgmma_bf16_dependent", "gemm_wgmma_f16_dependent_split"
WAIT = "wait_for_kernels_before();\n"
SHORT = Problem(5, 264, 592, Layout.NT, DType.BF16)
DEEP = Problem(5, 264, 2600, Layout.NT, DType.BF16)


def small(case: GoldenCase) -> Problem:
    rows = 9 if "skinny" in case.family else 150
    beta = -0.5 if case.problem.epilogue.is_plain else 0.0
    return replace(case.problem, m=rows, n=264, k=592, lda=0, ldb=0, ldc=0, beta=beta)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *((name, None) for name in CASES),
        (SKINNY, replace(SHORT, layout=Layout.NN, ldb=0, batch=Batch.parse("3"))),
        (SKINNY, replace(SHORT, m=20, groups=Groups.parse("4,0,11,5"))),
        (
            "gemm_skinny_bf16_dependent_split",
            Problem(5, 264, 2600, Layout.NT, DType.BF16, batch=Batch.parse("2")),
        ),
        (WGMMA, replace(SHORT, m=200, groups=Groups.parse("130,0,65,5"))),
        (WGMMA, replace(SHORT, m=70, batch=Batch.parse("3"))),
    ],
)
def test_a_right_kernel_passes(emulator: Emulator, name: str, problem: Problem | None) -> None:
    case = CASES[name]
    problem = problem or small(case)
    family = load_family(case.family)
    assert broken_constraints(family, case.config, problem, find_device("h200")) == []
    plan = launch_plan(family, case.config, problem)
    assert plan.main.overlaps
    report = emulator.verify(render(family, case.config, problem), plan, problem)
    assert report.ok, report.message


BUGS = {
    "no wait": (SKINNY, WAIT, ""),
    "no wait behind prefetches": (AHEAD, WAIT, ""),
    "tiles without a wait": (WGMMA, WAIT, ""),
    "partial sums without a wait": (SPLIT, WAIT, ""),
    "FP32 without a wait": ("sgemm_simt_pipeline_dependent", WAIT, ""),
    "FP32, partial sums without a wait": ("sgemm_simt_double_buffer_dependent_split", WAIT, ""),
    "FP32, few rows without a wait": ("sgemm_skinny_dependent", WAIT, ""),
    "one warp waits for all": (SKINNY, WAIT, "if (threadIdx.x < 32) " + WAIT),
    "the thread that loads does not wait": (
        *(WGMMA, WAIT),
        "if (threadIdx.x != CONSUMERS * WARPGROUP) " + WAIT,
    ),
    "only the thread that loads waits": (
        *(WGMMA, WAIT),
        "if (threadIdx.x == CONSUMERS * WARPGROUP) " + WAIT,
    ),
    "data are read in place of prefetched": (
        *(AHEAD, "prefetch_into_l2(B + (long long)n * ldb + k);"),
        "shared[0] = B[(long long)n * ldb + k];",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    case, old, new = CASES[BUGS[name][0]], *BUGS[name][1:]
    problem, family = small(case), load_family(case.family)
    source = render(family, case.config, problem)
    assert source.text.count(old) == 1
    wrong = replace(source, text=source.text.replace(old, new))
    report = emulator.verify(wrong, launch_plan(family, case.config, problem), problem)
    assert FindingKind.BEFORE_WAIT in {finding.kind for finding in report.findings}
    assert "before wait_for_kernels_before()" in report.message


def test_a_launch_that_does_not_overlap_needs_no_wait(emulator: Emulator) -> None:
    case = CASES[SKINNY]
    problem, family = small(case), load_family(case.family)
    source = render(family, case.config, problem)
    plan = launch_plan(family, case.config, problem)
    alone = replace(plan, launches=tuple(replace(one, overlaps=False) for one in plan.launches))
    without = replace(source, text=source.text.replace(WAIT, ""))
    report = emulator.verify(without, alone, problem)
    assert report.ok, report.message


@pytest.mark.parametrize("family", ["gemm_skinny", "gemm_wgmma", "sgemm_simt", "sgemm_skinny"])
def test_texts_of_others_do_not_say_it(family: str) -> None:
    """A parameter that a kernel does not use leaves its text as it was."""
    case = next(one for one in GOLDEN_CASES if one.family == family and str(one) not in CASES)
    assert "PDL" not in case.path.read_text()
    assert "griddepcontrol" not in case.path.read_text()
