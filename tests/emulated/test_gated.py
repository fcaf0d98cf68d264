"""Gated epilogues of gemm_mma, gemm_skinny and sgemm_simt, and bugs planted in them: the emulator
sees each.
"""

from dataclasses import replace
from typing import Any

import pytest

from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family

pytestmark = pytest.mark.emulated

HALVES = "silu(acc[n] + bias[n]) * acc[n + N]"
ALTERNATING = "gelu(acc[2 * n]) * acc[2 * n + 1] + beta * c[m, n]"
TILES: dict[str, dict[str, Value]] = {
    "gemm_mma": {"BM": 32, "BN": 32, "WM": 32, "WN": 16, "STAGES": 2, "GROUP_M": 1},
    "gemm_skinny": {
        **{"BM": 32, "BN": 32, "BK": 64, "WN": 16, "SLICE_K": 2, "STAGES": 1, "PREFETCH_A": 1},
        **{"MIN_BLOCKS": 1},
    },
    "sgemm_simt": {
        **{"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "GROUP_M": 1},
        **{"STAGES": 2, "PAD_A": 0, "VEC_LOAD": 4, "VEC_STORE": 4},
    },
}
THROUGH_REGISTERS: dict[str, Value] = {"STAGES": 1, "REG_STAGES": 1, "SWIZZLE": 0}
SLICED: dict[str, Value] = {
    **{"SLICE_K": 2, "SLICES": "separate", "POINTERS": "held", "CHAIN_K": 128, "PAD_B": 4},
    **{"VEC_LOAD": 1, "VEC_STORE": 1, "EDGES": "inward"},
}

# Eight threads for each four floats of a tile.
ADDERS: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 512, "SLICE_K": 16, "SPLIT_K": 3},
}


def gated(
    family_name: str,
    text: str,
    layout: Layout,
    changes: dict[str, Value] | None = None,
    **facts: Any,
) -> tuple[KernelSource, Problem]:
    """A kernel and a problem with edges on all sides: the last tile has 8 columns."""
    family = load_family(family_name)
    facts = {"dtype": DType.F32 if family_name == "sgemm_simt" else DType.BF16} | facts
    deep = 168 if family_name == "gemm_skinny" else 40
    problem = Problem(44, 72, deep, layout, beta=0.5 if text == ALTERNATING else 0.0, **facts)
    problem = problem.with_epilogue(Epilogue(text))
    values = family.seeds[0].as_dict() | TILES[family_name] | (changes or {})
    config = family.completed(replace(family.seeds[0], values=tuple(values.items())))
    return render(family, config, problem), problem


def complaint(emulator: Emulator, source: KernelSource, problem: Problem) -> str:
    plan = launch_plan(load_family(source.family), source.config, problem)
    report = emulator.verify(source, plan, problem, both_betas=problem.beta != 0)
    return "" if report.ok else report.message


@pytest.mark.parametrize(
    "case",
    [
        ("gemm_mma", HALVES, Layout.NN, {}, DType.BF16),
        ("gemm_mma", HALVES, Layout.TN, THROUGH_REGISTERS, DType.F16),
        ("gemm_mma", ALTERNATING, Layout.NT, {}, DType.BF16_F32),
        ("gemm_mma", ALTERNATING, Layout.TT, {"MMA_K": 8}, DType.TF32),
        ("gemm_skinny", HALVES, Layout.NT, {}, DType.BF16),
        ("gemm_skinny", HALVES, Layout.NN, {"STAGES": 2, "PREFETCH_A": 0}, DType.F16_F32),
        ("gemm_skinny", HALVES, Layout.TN, ADDERS, DType.F16),
        ("gemm_skinny", HALVES, Layout.TT, {"SPLIT_K": 2}, DType.BF16),
        ("gemm_skinny", ALTERNATING, Layout.NT, {"SPLIT_K": 3}, DType.BF16_F32),
        ("gemm_skinny", ALTERNATING, Layout.TT, {}, DType.F16),
        ("gemm_skinny", HALVES, Layout.NT, {"BK": 128}, DType.E4M3),
        ("sgemm_simt", HALVES, Layout.NN, {}, DType.F32),
        ("sgemm_simt", HALVES, Layout.TT, {"STAGES": 1, "REG_STAGES": 1}, DType.F32),
        ("sgemm_simt", ALTERNATING, Layout.NT, SLICED, DType.F32),
    ],
)
def test_two_columns_of_the_product_make_one_of_c(
    emulator: Emulator, case: tuple[str, str, Layout, dict[str, Value], DType]
) -> None:
    name, text, layout, changes, dtype = case
    assert complaint(emulator, *gated(name, text, layout, changes, dtype=dtype)) == ""


@pytest.mark.parametrize("name", TILES)
def test_one_of_the_columns_may_be_a_second_output(emulator: Emulator, name: str) -> None:
    text = "up[m, n] = acc[n + N]; silu(acc[n]) * up; up: f32"
    source, problem = gated(name, text, Layout.NT)
    assert complaint(emulator, source, problem) == ""
    wrong = source.text.replace("with.up[place] = up;", "with.up[place] = accum;")
    assert "up[0,0] is" in complaint(emulator, replace(source, text=wrong), problem)


@pytest.mark.parametrize("name", ["gemm_mma", "gemm_skinny"])
def test_groups_have_both_columns_of_their_weights(emulator: Emulator, name: str) -> None:
    source, problem = gated(name, ALTERNATING, Layout.NT, groups=Groups.parse("3 uniform"))
    assert complaint(emulator, source, problem) == ""
    place = "B += (long long)group * 2 * N * ldb;"
    assert place in source.text
    wrong = source.text.replace(place, place.replace("2 * ", ""))
    assert complaint(emulator, replace(source, text=wrong), problem)


def test_threads_that_own_what_is_not_theirs_are_seen(emulator: Emulator) -> None:
    """Of 512 threads 32 own floats of C, where each adds up four of some partial sums."""
    source, problem = gated("gemm_skinny", HALVES, Layout.NT, ADDERS)
    assert complaint(emulator, source, problem) == ""
    owner = "place < ELEMENTS ? vector"
    assert owner in source.text
    wrong = source.text.replace(owner, "true ? vector")
    assert complaint(emulator, replace(source, text=wrong), problem)


BUGS = {
    # name: (family, text, layout, what stands there, the bug, what the emulator says)
    "mma: the gate from the wrong half": (
        "gemm_mma", HALVES, Layout.NN,
        "epilogue(accum[0], second[0],", "epilogue(second[0], accum[0],", "C[0,0] is",
    ),
    "mma: the gate of another column in the last tile": (
        "gemm_mma", HALVES, Layout.NT, "const float* const second = &accum[i / 2][j + TILES_N / 2]",
        "const float* const second = &accum[i / 2][(tile.n0 < 64 ? j : 1) + TILES_N / 2]",
        "C[0,64] is",
    ),
    "mma: the second half counted from the tile": (
        "gemm_mma", HALVES, Layout.NT, "tile.to_second = (long long)N * ldb;",
        "tile.to_second = (long long)(N - tile.n0) * ldb;", "C[0,33] is",
    ),
    "mma: the second half behind whole tiles": (
        "gemm_mma", HALVES, Layout.NN, "tile.to_second = N;",
        "tile.to_second = (N + BN - 1) / BN * BN;", "out of bounds: B[",
    ),
    "mma: rows of the second half behind the last one": (
        "gemm_mma", HALVES, Layout.NT, "const int num_valid = pass < n_left ?",
        "const int num_valid = pass < n_left + (int)threadIdx.x / COPIERS_B * BN ?", "B[",
    ),
    "mma: columns behind the last one are written": (
        "gemm_mma", HALVES, Layout.NN, "if (n + 1 < tile.columns)", "if (n - 7 < tile.columns)",
        "out of bounds: epilogue_bias[72]",
    ),
    "mma: both halves of the threads copy to one k tile": (
        "gemm_mma", HALVES, Layout.NN, "shared += (int)threadIdx.x / COPIERS_B * K_TILE_B;", "",
        "use of data in flight",
    ),
    "mma: fragments of the first columns for both": (
        "gemm_mma", HALVES, Layout.NN, "j / (TILES_N / 2) * K_TILE_B", "0 * K_TILE_B", "C[0,0] is",
    ),
    "mma: alternating columns off by one": (
        "gemm_mma", ALTERNATING, Layout.NT, "tile.to_second = second_row;",
        "tile.to_second = n0 < 64 ? 2 * second_row : second_row;", "C[0,0] is",
    ),
    "mma: alternating columns taken for halves": (
        "gemm_mma", ALTERNATING, Layout.NT, "ldb *= 2;", "", "C[0,1] is",
    ),
    "skinny: the gate from the wrong half": (
        "gemm_skinny", HALVES, Layout.NN,
        "epilogue(accum, second,", "epilogue(second, accum,", "C[0,0] is",
    ),
    "skinny: the second half counted from the tile": (
        "gemm_skinny", HALVES, Layout.NT, "(long long)N * ldb", "(long long)(N - n0) * ldb",
        "C[0,32] is",
    ),
    "skinny: the second half behind whole tiles": (
        "gemm_skinny", HALVES, Layout.NN, "second_b = B + N;",
        "second_b = B + (N + BN - 1) / BN * BN;", "out of bounds: B[",
    ),
    "skinny: the first columns for both": (
        "gemm_skinny", HALVES, Layout.NT, "multiply_slice(a[stage], second[stage]",
        "multiply_slice(a[stage], b[stage]", "C[0,0] is",
    ),
    "skinny: the rest of the first columns for both": (
        "gemm_skinny", HALVES, Layout.NT, "multiply_slice(rest_a, rest_second",
        "multiply_slice(rest_a, rest_b", "C[0,0] is",
    ),
    "skinny: second columns are not loaded on": (
        "gemm_skinny", HALVES, Layout.NT,
        "load_slice_b(second_rows, k + STAGES * BK, second[stage]);", "", "C[0,0] is",
    ),
    "skinny: second columns over the first ones": (
        "gemm_skinny", HALVES, Layout.NT, "warp_tile + ELEMENTS + (i", "warp_tile + (i",
        "uninitialised memory",
    ),
    "skinny: the second column of another element": (
        "gemm_skinny", HALVES, Layout.NT, "totals[vector + VECTORS_OF_C][e]",
        "totals[vector + VECTORS_OF_C][e ^ 1]", "C[0,0] is",
    ),
    "skinny: alternating columns off by one": (
        "gemm_skinny", ALTERNATING, Layout.NT, "rows_b[j] + second_row",
        "rows_b[j] + 2 * second_row", "out of bounds: B[144,0]",
    ),
    "skinny: alternating columns taken for halves": (
        "gemm_skinny", ALTERNATING, Layout.NT, "ldb *= 2;", "", "C[0,1] is",
    ),
    "simt: the gate from the wrong half": (
        "sgemm_simt", HALVES, Layout.NN,
        "epilogue(accum[e], second[e],", "epilogue(second[e], accum[e],", "C[0,0] is",
    ),
    "simt: the gate of another column in the last tile": (
        "sgemm_simt", HALVES, Layout.NN, "&accum[i][TN + j]",
        "&accum[i][tile.n0 < 64 ? TN + j : TN - 1]", "C[0,64] is",
    ),
    "simt: the second half counted from the tile": (
        "sgemm_simt", HALVES, Layout.NN, "tile.to_second = N;", "tile.to_second = N - n0;",
        "C[0,32] is",
    ),
    "simt: rows of the second half behind the last one": (
        "sgemm_simt", HALVES, Layout.NT, "const int n_left = tile.columns - copy_n;",
        "const int n_left = tile.columns - copy_n + column_b * BN;", "B[",
    ),
    "simt: both halves of the threads copy to one k_tile": (
        "sgemm_simt", HALVES, Layout.NN, "column_b * K_TILE_B + copy_kb", "copy_kb", "data race",
    ),
    "simt: fragments of the first columns for both": (
        "sgemm_simt", HALVES, Layout.NN, "j / TN * K_TILE_B", "0 * K_TILE_B", "C[0,0] is",
    ),
    "simt: alternating columns off by one": (
        "sgemm_simt", ALTERNATING, Layout.NT, "tile.to_second = second_row;",
        "tile.to_second = 2 * second_row;", "out of bounds: B[144,0]",
    ),
    "simt: slices add up the first columns for both": (
        "sgemm_simt", ALTERNATING, Layout.NT, "from[(TN + e) * SLICE_THREADS]",
        "from[e * SLICE_THREADS]", "C[0,0] is",
    ),
    "simt: chains forget the second columns": (
        "sgemm_simt", ALTERNATING, Layout.NT,
        "accum[i % TM][i / TM] = finished[i * THREADS];",
        "accum[i % TM][i / TM] = i < TM * TN ? finished[i * THREADS] : 0.0f;", "C[0,0] is",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen(emulator: Emulator, bug: str) -> None:
    name, text, layout, old, new, seen = BUGS[bug]
    is_sliced = name == "sgemm_simt" and text == ALTERNATING
    source, problem = gated(name, text, layout, SLICED if is_sliced else {})
    assert old in source.text
    found = complaint(emulator, replace(source, text=source.text.replace(old, new)), problem)
    assert seen in found
