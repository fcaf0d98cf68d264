"""Gated epilogues of gemm_mma and sgemm_simt, and bugs planted in them: the emulator sees each."""

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


def gated(
    family_name: str,
    text: str,
    layout: Layout,
    changes: dict[str, Value] | None = None,
    **facts: Any,
) -> tuple[KernelSource, Problem]:
    """A kernel and a problem with edges on all sides: the last tile has 8 columns."""
    family = load_family(family_name)
    facts = {"dtype": DType.BF16 if family_name == "gemm_mma" else DType.F32} | facts
    problem = Problem(44, 72, 40, layout, beta=0.5 if text == ALTERNATING else 0.0, **facts)
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


def test_groups_have_both_columns_of_their_weights(emulator: Emulator) -> None:
    source, problem = gated("gemm_mma", ALTERNATING, Layout.NT, groups=Groups.parse("3 uniform"))
    assert complaint(emulator, source, problem) == ""
    place = "B += (long long)group * 2 * N * ldb;"
    assert place in source.text
    wrong = source.text.replace(place, place.replace("2 * ", ""))
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
