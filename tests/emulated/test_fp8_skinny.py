"""8-bit floats by gemm_skinny in the emulator: right kernels pass, planted bugs do not."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode
from autogemm.emulator.buffers import buffers_of
from autogemm.emulator.exchange import Program, RawExchange, run_process
from autogemm.emulator.toolchain import build
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.elements import loaded
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.reference import Inputs
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

Matrix = npt.NDArray[np.float64]

PRODUCT = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
TILE: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 256, "WN": 16, "SLICE_K": 2, "SPLIT_K": 1, "STAGES": 1},
    **{"PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}
# Columns beyond the last tile, and a rest of K that ends within a block, a warp's slice and a step.
PROBLEM = Problem(5, 264, 592, Layout.NT, DType.E4M3_F32)
SCALED = PROBLEM.with_epilogue(Epilogue(PRODUCT))
WIDE: dict[str, Value] = {"BM": 16, "BN": 64, "WN": 32, "STAGES": 2, "PREFETCH_A": 1}
MORE = Epilogue(f"relu({PRODUCT} + bias[n]); bias: f32")
SECOND = Epilogue(f"aux[m, n] = {PRODUCT}; alpha * aux + beta * c[m, n]")


def config(**changes: Value) -> Config:
    return load_family("gemm_skinny").completed(Config.of("gemm_skinny", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        ({}, replace(PROBLEM, dtype=DType.E4M3, alpha=0.5, beta=-1.5)),
        (WIDE, replace(PROBLEM, m=13, dtype=DType.E5M2_F16)),
        ({"SPLIT_K": 3, "BK": 128}, replace(PROBLEM, dtype=DType.E5M2)),
        ({"SPLIT_K": 3, "BK": 448, "SLICE_K": 7}, replace(PROBLEM, k=1360, lda=0, ldb=0)),
        ({}, replace(PROBLEM, n=41, k=603, lda=0, ldb=0, ldc=0)),
        ({}, replace(PROBLEM, n=41, k=592, lda=601, ldb=608, ldc=41)),
        ({}, PROBLEM.with_epilogue(Epilogue("acc * sa[m] * sb[n]"))),
        ({}, replace(PROBLEM, m=20, groups=Groups.parse("3"))),
        ({}, SCALED),
        (WIDE, replace(SCALED, m=13, dtype=DType.E5M2_F16)),
        ({"BK": 512}, replace(SCALED, dtype=DType.E4M3_F16)),
        ({"BK": 128}, replace(SCALED, dtype=DType.E4M3)),
        ({"SPLIT_K": 3, "BK": 128, "STAGES": 2}, replace(SCALED, k=1040, lda=0, ldb=0)),
        ({}, replace(SCALED, epilogue=MORE, lda=640, ldb=608, ldc=270)),
        ({}, replace(SCALED, epilogue=SECOND, alpha=0.5, beta=2.0)),
        ({}, replace(SCALED, n=136, k=593, lda=0, ldb=0, ldc=0)),
        ({}, Problem(1, 8, 16, Layout.NT, DType.E4M3, epilogue=Epilogue(PRODUCT))),
    ],
    ids=[
        *(
            "f32",
            "bf16",
            "wide",
            "split",
            "sevenths",
            "any size",
            "rows apart",
            "row and column",
            "groups",
        ),
        *("scaled", "scaled wide", "scaled two blocks", "scaled half a block", "scaled split"),
        *("more", "second", "scaled any size", "tiny"),
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


@pytest.mark.parametrize(
    ("changes", "problem", "gpu", "rule"),
    [
        ({}, replace(PROBLEM, layout=Layout.NN, ldb=0), "h200", "layout nt"),
        ({}, replace(PROBLEM, layout=Layout.TT, lda=0), "h200", "layout nt"),
        ({}, PROBLEM, "a100", "from sm_89 on"),
        ({"BK": 64}, PROBLEM, "h200", "steps of 64 bytes"),
        ({"BK": 2048}, PROBLEM, "h200", "steps of 64 bytes"),
    ],
    ids=["nn", "tt", "a100", "half a step", "sixteen steps"],
)
def test_others_are_refused(
    changes: dict[str, Value], problem: Problem, gpu: str, rule: str
) -> None:
    broken = broken_constraints(
        load_family("gemm_skinny"), config(**changes), problem, find_device(gpu)
    )
    assert any(rule in line for line in broken)


def special(emulator: Emulator, dtype: DType, edit: tuple[str, str] = ("", "")) -> Matrix:
    """C less the exact one, of any bytes: the smallest and largest numbers, and NaN. What it has is
    NaN where only one of them is.
    """
    problem = Problem(5, 40, 272, Layout.NT, dtype)
    family, element = load_family("gemm_skinny"), dtype.ab
    source, plan = render(family, config(), problem), launch_plan(family, config(), problem)
    assert edit[0] in source.text
    text = source.text.replace(*edit) if edit[0] else source.text
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 256, shape, np.uint8) for shape in ((5, 272), (40, 272)))
    # Few rows have what is not finite.
    for row, matrix in ((2, a), (7, b)):
        finite = np.isfinite(loaded(matrix, element))
        finite[row, 100] = True
        matrix[~finite] = 0x12
        matrix[row, 100] = 0x7F
    c = np.full(200, np.nan, np.float32)
    built = build(text, plan.signature, Mode.FAST, emulator.toolchain, emulator.folder)
    inputs = Inputs(a.reshape(-1), b.reshape(-1), c, (), np.zeros((5, 40)), np.zeros((5, 40)))
    header = RawExchange(deadline_s=60, resident_blocks=1)
    buffers = buffers_of(inputs, problem, plan)
    raw = run_process(Program(built.executable, built.confine), header, plan, problem, buffers)
    assert raw.state.completed
    found = raw.c.reshape(5, 40).astype(np.float64)
    wide_a, wide_b = (loaded(one, element).astype(np.float64) for one in (a, b))
    expected = wide_a @ wide_b.T
    size = np.abs(np.nan_to_num(wide_a)) @ np.abs(np.nan_to_num(wide_b)).T
    both = np.isnan(found) & np.isnan(expected)
    assert np.isnan(expected).sum() == 44
    return np.where(both, 0.0, (found - expected) / size)


@pytest.mark.parametrize("dtype", [DType.E4M3_F32, DType.E5M2_F32], ids=str)
def test_any_bytes_are_multiplied(emulator: Emulator, dtype: DType) -> None:
    """Sums are those of FP32: sums of wgmma would differ by 2^-13 of the largest product."""
    assert float(np.abs(special(emulator, dtype)).max()) < 2.0**-20


def test_nan_that_becomes_a_number_is_caught(emulator: Emulator) -> None:
    word = "b[step][2 * j][word]"
    edit = (f"({word},", f"(({word} & 0x7f) == 0x7f ? {word} & ~1u : {word},")
    assert np.isnan(special(emulator, DType.E4M3_F32, edit)).any()


HALF = "half_pairs_from_e4m3(b[step][2 * j][word], columns[0], columns[2]);"
BUGS = {
    "A of another word": ("a[step][i][word]", "a[step][i][word ^ 1]"),
    "A of another step": ("half_pairs_from_e4m3(a[step]", "half_pairs_from_e4m3(a[0]"),
    "pairs of A exchanged": ("rows[i][0], rows[i][1]", "rows[i][1], rows[i][0]"),
    "pairs of one column exchanged": (HALF, HALF.replace("[0], columns[2]", "[2], columns[0]")),
    "columns exchanged": ("b[step][2 * j][word]", "b[step][2 * j + 1][word]"),
    "bytes of a pair exchanged in A": (
        "half_pairs_from_e4m3(a[step][i][word],",
        "half_pairs_from_e4m3(__byte_perm(a[step][i][word], 0, 0x2301),",
    ),
    "signs are lost": ("(b[step][2 * j][word],", "(b[step][2 * j][word] & 0x7f7f7f7f,"),
    "read as the other type": ("half_pairs_from_e4m3(b", "half_pairs_from_e5m2(b"),
    "lanes that overlap": ("lane % 4 * 16", "lane % 4 * 8"),
    "steps that overlap": ("k + step * 64, fragments", "k + step * 32, fragments"),
    "half of the words": ("quarter < 4 *", "quarter < 2 *"),
    "the rest is left out": ("multiply_slice(rest_a", "if (K < 0) multiply_slice(rest_a"),
    "the rest reaches past K": ("if (k + step * 64 < K)", "if (k + step * 64 < K + 16)"),
    "the last warp's slice alone": ("/ WARPS_N * DEPTH + lane", "/ WARPS_N * 64 + lane"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    old, new = BUGS[name]
    family = load_family("gemm_skinny")
    source = render(family, config(), PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, config(), PROBLEM), PROBLEM).ok


OWN = "scales.a[block][i / 4] * scales.b[block]"
ADDED = "accum[j][i][e] = fmaf(partial[j][i][e], scale, accum[j][i][e]);"
REST = "block_scales.load(k), accum"
SCALED_BUGS = {
    "no scales": (ADDED, "accum[j][i][e] += partial[j][i][e];"),
    "no scale of A": (OWN, "scales.b[block]"),
    "no scale of B": (OWN, "scales.a[block][i / 4]"),
    "scaled twice": ("partial[j][i][e], scale", "partial[j][i][e] * scale, scale"),
    "the scale of the next row": ("i % 4 * 8 + row + e", "i % 4 * 8 + row + 1 - e"),
    "the scale of the lane's own row": ("i % 4 * 8 + row + e", "(int)threadIdx.x % 32"),
    "scales by other lanes": ("threadIdx.x % 4 * 2", "threadIdx.x / 8 * 2"),
    "the scales of the block before": (
        "scales[stage] = block_scales.load(k + STAGES * BK)",
        "scales[stage] = block_scales.load(k)",
    ),
    "the scales of the slice's first block": ("k / 128 + at", "k / 128"),
    "rows of scales as of A": ("(long long)block * M", "(long long)block * 8"),
    "the scale of another 128 columns": ("n / 128) * num", "n / 128 ^ 1) * num"),
    "scales of columns of the tile alone": ("min(n0 + warp_n, N - 1)", "min(warp_n, N - 1)"),
    "rows of scales of B without the partial block": ("(K + 127) / 128", "K / 128"),
    "the scale of the last partial block is forgotten": (REST, "Scales{}, accum"),
    "the rest has the first blocks' scales": (REST, "block_scales.load(lane_k), accum"),
    "scales of rows that are not there": ("min(m + i * 32, M - 1)", "m + i * 32"),
    "scales of blocks that are not there": ("at, num_blocks - 1)", "at, num_blocks + 40)"),
    "the last partial block is not added": (
        "multiply_slice(rest_a",
        "if (K < 0) multiply_slice(rest_a",
    ),
    "sums that do not begin anew": (
        "float partial[TILES_N][TILES_M][4] = {};",
        "float partial[TILES_N][TILES_M][4] = {{{accum[0][0][0]}}};",
    ),
    "the first block's products for both": ("block * BLOCK_STEPS, partial", "0, partial"),
    "half of a block": ("quarter < 4 * BLOCK_STEPS", "quarter < 4 * (BLOCK_STEPS / 2)"),
}


@pytest.mark.parametrize("name", SCALED_BUGS)
def test_a_bug_planted_in_scales_is_caught(emulator: Emulator, name: str) -> None:
    """Each warp has two blocks of a k_tile, of which the rest has a whole one and a part."""
    old, new = SCALED_BUGS[name]
    problem = replace(SCALED, k=1360, lda=0, ldb=0)
    family, one = load_family("gemm_skinny"), config(BK=512)
    source = render(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, problem), problem).ok


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scales.a[block][i / 4]", "scales.a[block][0]"),
        ("i % 4 * 8 + row", "i % 2 * 8 + row"),
        ("m + i * 32", "m + i * 16"),
    ],
    ids=["the first rows'", "of sixteen rows before", "rows overlap"],
)
def test_a_bug_planted_in_rows_of_scales_is_caught(emulator: Emulator, old: str, new: str) -> None:
    """A tile has twice as many rows as a warp has lanes."""
    problem = replace(SCALED, m=69, lda=0, ldb=0, ldc=0)
    family, one = load_family("gemm_skinny"), config(BM=64)
    source, plan = render(family, one, problem), launch_plan(family, one, problem)
    assert emulator.verify(source, plan, problem).ok
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, plan, problem).ok
