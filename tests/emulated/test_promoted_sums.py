"""Sums of 8-bit floats that are promoted more seldom than a config says, in the emulator; and the
model that errors are compared with.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from promotion_bugs import NEVER, Edit, promoted_every, with_edits

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.emulator.emulator import RunOptions
from autogemm.emulator.findings import EmulatorReport, FindingKind
from autogemm.model.accuracy.short_sums import promise_of, short_sums, variance_of_sums
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.reference import Data
from autogemm.space import launch_plan, load_family

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132},
}
# Few results of many products.
PROBLEM = Problem(16, 16, 16384, Layout.NT, DType.E4M3_F32)
SCALED = PROBLEM.with_epilogue(Epilogue("relu(acc * sa[m] * sb[n] + bias[n])"))
BLOCKS = PROBLEM.with_epilogue(Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"))
WITH_REST = replace(PROBLEM, k=16400, lda=0, ldb=0)
BF16 = replace(PROBLEM, m=64, n=64, dtype=DType.E4M3, ldc=0)

SELDOM = 1024 // 128
ADDED = "accum[i][j] += partial[i][j];"
NO_REST = ((ADDED, f"if (end - first == K_TILES) {ADDED}"),)


def reported(
    emulator: Emulator, problem: Problem, promote: int, edits: tuple[Edit, ...] = ()
) -> EmulatorReport:
    """What is found on reals alone."""
    family = load_family("gemm_wgmma")
    config = family.completed(Config.of("gemm_wgmma", TILE | {"PROMOTE": promote}))
    source, plan = render(family, config, problem), launch_plan(family, config, problem)
    source = replace(source, text=with_edits(source.text, edits))
    return emulator.run(source, plan, problem, RunOptions(data=Data.REALS))


@pytest.mark.parametrize(
    ("problem", "promote"),
    [
        *((PROBLEM, promote) for promote in (0, 128, 256, 512)),
        *((one, 128) for one in (SCALED, BLOCKS, BF16, replace(PROBLEM, dtype=DType.E5M2_F16))),
        (WITH_REST, 256),
    ],
)
def test_sums_that_are_promoted_as_said_are_right(
    emulator: Emulator, problem: Problem, promote: int
) -> None:
    report = reported(emulator, problem, promote)
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("problem", "promote", "edits"),
    [
        (PROBLEM, 128, promoted_every(NEVER, 128)),
        (PROBLEM, 512, promoted_every(NEVER, 512)),
        (PROBLEM, 128, promoted_every(SELDOM, 128)),
        (WITH_REST, 256, NO_REST),
        (SCALED, 128, promoted_every(NEVER, 128)),
        (BF16, 128, promoted_every(NEVER, 128)),
        (replace(PROBLEM, dtype=DType.E4M3_F16), 128, promoted_every(SELDOM, 128)),
        (replace(PROBLEM, dtype=DType.E5M2_F32), 128, promoted_every(NEVER, 128)),
    ],
)
def test_sums_that_are_promoted_more_seldom_are_found(
    emulator: Emulator, problem: Problem, promote: int, edits: tuple[Edit, ...]
) -> None:
    report = reported(emulator, problem, promote, edits)
    assert [one.kind for one in report.findings] == [FindingKind.INEXACT]
    assert f"added in FP32 every {promote} of K" in report.message


def test_the_bound_of_each_element_does_not_find_them(emulator: Emulator) -> None:
    """So that the errors as a whole are what does."""
    assert reported(emulator, PROBLEM, 128, promoted_every(NEVER, 128)).max_error_ratio < 1


def test_sums_of_blocks_with_scales_begin_anew(emulator: Emulator) -> None:
    """One that does not is multiplied by other scales, which elements show."""
    never = ("step > 0", "k_tile > 0 || step > 0")
    report = reported(emulator, BLOCKS, 128, (never,))
    assert not report.ok


def test_few_rows_are_held_to_sums_in_fp32(emulator: Emulator) -> None:
    family = load_family("gemm_skinny")
    values: dict[str, Value] = {
        **{"BM": 8, "BN": 16, "BK": 256, "WN": 16, "SLICE_K": 2, "SPLIT_K": 1, "STAGES": 1},
        **{"PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
    }
    problem = Problem(8, 32, 4096, Layout.NT, DType.E4M3_F32)
    config = family.completed(Config.of("gemm_skinny", values))
    source, plan = render(family, config, problem), launch_plan(family, config, problem)
    assert plan.fp32_every == 1 and promise_of(problem, 256, 1) is not None
    report = emulator.run(source, plan, problem, RunOptions(data=Data.REALS))
    assert report.ok, report.message


@pytest.mark.parametrize("element", [Element.E4M3, Element.E5M2], ids=str)
def test_errors_grow_with_the_depth(element: Element) -> None:
    uniform, normal = (
        [variance_of_sums(element, depth, normal=normal) ** 0.5 for depth in (128, 256, 512, 1024)]
        for normal in (False, True)
    )
    for errors in (uniform, normal):
        assert all(1.3 < after / before < 2 for before, after in pairwise(errors))
    assert 0.00006 < uniform[0] < normal[0] < 0.00015


def test_a_sum_is_cut_off_behind_13_bits_toward_zero() -> None:
    large = 2.0**13

    def short(*products: float) -> float:
        terms = np.zeros(32 * len(products))
        terms[::32] = products
        return float(short_sums(terms, Element.E4M3))

    assert short(large, 1.0) == large + 1
    assert short(2 * large, 1.0, 1.0) == 2 * large
    assert short(2 * large, -1.5) == 2 * large
    assert short(large, large, 1.0) == 2 * large
    assert short(1 + 2.0**-20, 0.0) == 1
    assert short(0.0, 0.0) == 0


def test_where_nothing_is_told_nothing_is_promised() -> None:
    assert promise_of(PROBLEM, 256, 0) is None
    assert promise_of(PROBLEM, 31, 128) is None and promise_of(PROBLEM, 32, 128) is not None
    narrow = replace(PROBLEM, dtype=DType.E4M3_E4M3)
    assert promise_of(narrow, 256, 128) is None
    assert promise_of(replace(PROBLEM, dtype=DType.I8_F32), 256, 128) is None
    # An epilogue's own rounding may be as large as that of sums in FP32.
    assert promise_of(SCALED, 256, 1) is None and promise_of(SCALED, 256, 128) is not None
