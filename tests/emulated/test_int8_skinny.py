"""8-bit integers by gemm_skinny in the emulator: right kernels pass, planted bugs do not."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

TILE: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 256, "WN": 16, "SLICE_K": 2, "SPLIT_K": 1, "STAGES": 1},
    **{"PREFETCH_A": 1, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}
# Edges on all sides. Sums of each warp, half of K, are beyond 2^24 where all numbers are large.
PROBLEM = Problem(5, 40, 6352, Layout.NT, DType.I8)
SHORT = Problem(5, 40, 592, Layout.NT, DType.I8)
SPLIT: dict[str, Value] = {"SPLIT_K": 3, "STAGES": 2, "PREFETCH_A": 0}
# Threads that add up the same integers.
ADDERS: dict[str, Value] = {"SPLIT_K": 3, "BK": 1024, "SLICE_K": 16}
WIDE: dict[str, Value] = {"BM": 16, "BN": 64, "WN": 32, "STAGES": 2}


def config(**changes: Value) -> Config:
    return load_family("gemm_skinny").completed(Config.of("gemm_skinny", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, replace(PROBLEM, beta=1.0)),
        ({}, replace(SHORT, dtype=DType.I8_F32, alpha=0.5, beta=-1.5)),
        (SPLIT, PROBLEM),
        (ADDERS, PROBLEM),
        (SPLIT, replace(SHORT, dtype=DType.I8_F16, alpha=0.01)),
        (WIDE, replace(PROBLEM, m=13, n=72, ldc=0)),
        ({}, replace(SHORT, n=41, k=603, lda=0, ldb=0, ldc=0)),
        ({}, replace(SHORT, dtype=DType.I8_BF16).with_epilogue(Epilogue("acc * sa[m] * sb[n]"))),
        ({}, replace(SHORT, dtype=DType.I8_F32).with_epilogue(Epilogue("acc[n] * acc[n + N] * s"))),
        ({}, replace(SHORT, m=20, groups=Groups.parse("3"))),
        (SPLIT, replace(SHORT, batch=Batch.parse("2"))),
    ],
    ids=[
        *("i32", "f32", "split", "adders", "split-f16", "wide", "any size", "scaled", "gated"),
        *("groups", "batch"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_skinny"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(
        render(family, one, problem), launch_plan(family, one, problem), problem
    )
    assert report.ok, report.message


def test_deeper_sums_are_refused() -> None:
    family, device = load_family("gemm_skinny"), find_device("h200")
    deep = Problem(8, 64, 131072, Layout.NT, DType.I8)
    assert any("up to K = 131071" in x for x in broken_constraints(family, config(), deep, device))
    deepest = replace(deep, k=131071, lda=0, ldb=0)
    assert broken_constraints(family, config(), deepest, device) == []


MULTIPLIED = "mma_i8_k32(accum[j][i], columns, rows);"
EACH = "for (int& one : accum[j][i])"
BUGS = {
    # Sums rounded to FP32 on the way: integers of 24 bits stay the same.
    "sums in FP32": (MULTIPLIED, f"{MULTIPLIED} {EACH} one = (int)(float)one;"),
    "sums saturate at 24 bits": (
        MULTIPLIED,
        f"{MULTIPLIED} {EACH} one = min(max(one, -(1 << 23)), (1 << 23) - 1);",
    ),
    "sums wrap at 16 bits": (MULTIPLIED, f"{MULTIPLIED} {EACH} one = (short)one;"),
    "words exchanged": ("{a[step][i][word], a[step][i][word + 1]}", "{a[step][i][word + 1], 0u}"),
    "the last word left out": ("half < 2 * STEPS", "half < 2 * STEPS - 1"),
    "tiles of warps in FP32": (
        "accum[j / 2][i][j % 2 * 2], accum",
        "(int)(float)accum[j / 2][i][j % 2 * 2], accum",
    ),
    "the old C is left out": ("accum + old_c", "accum"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    old, new = BUGS[name]
    family, problem = load_family("gemm_skinny"), replace(PROBLEM, beta=1.0)
    source = render(family, config(), problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, config(), problem), problem).ok


IN_OTHERS: dict[str, tuple[dict[str, Value], Problem, str, str]] = {
    "partial sums in FP32": (SPLIT, PROBLEM, "totals[0] += from.x", "totals[0] += (float)from.x"),
    "one partial sum left out": (
        SPLIT,
        PROBLEM,
        "first_member < FAN_IN;",
        "first_member < 1;",
    ),
    "the sign of an element spreads": (
        {},
        replace(SHORT, k=603, lda=0, ldb=0),
        "four |= (unsigned)bits << (8 * e);",
        "four |= (unsigned)(int)(signed char)bits << (8 * e);",
    ),
    "rounded before it is scaled": (
        {},
        replace(SHORT, dtype=DType.I8_F16, alpha=0.01),
        "(float)totals[vector][e]",
        "(float)(short)totals[vector][e]",
    ),
}


@pytest.mark.parametrize("name", IN_OTHERS)
def test_bugs_of_other_kernels_are_caught(emulator: Emulator, name: str) -> None:
    changes, problem, old, new = IN_OTHERS[name]
    family, one = load_family("gemm_skinny"), config(**changes)
    source = render(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, problem), problem).ok
