"""Scales of blocks of 8-bit floats in the emulator: right kernels pass, planted bugs do not."""

from dataclasses import replace

import pytest
from test_fp8_emulated import config

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

PRODUCT = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
# Edges on all sides: five blocks along k and two along n, of which the last are partial.
PROBLEM = Problem(72, 232, 592, Layout.NT, DType.E4M3_F32, epilogue=Epilogue(PRODUCT))
MORE = Epilogue(f"relu({PRODUCT} + bias[n]); bias: f32")
WIDE: dict[str, Value] = {"BM": 64, "BN": 192, "WN": 192}
OVERLAPPED: dict[str, Value] = {"BM": 64, "WM": 64, "WN": 128, "BN": 128, "PROMOTION": "overlapped"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, PROBLEM),
        (WIDE, PROBLEM),
        ({"BM": 128, "WM": 128, "BN": 128, "WN": 128}, replace(PROBLEM, dtype=DType.E4M3)),
        ({"SCHEDULE": "pingpong", "BOX_M": 16}, replace(PROBLEM, dtype=DType.E5M2_F16)),
        ({"CLUSTER_M": 2, "BLOCKS": 0}, replace(PROBLEM, m=136)),
        ({"SPLIT_K": 2, "BLOCKS": 0}, PROBLEM),
        ({"SPLIT_K": 4, "BLOCKS": 0}, replace(PROBLEM, dtype=DType.E4M3, n=136)),
        ({}, replace(PROBLEM, epilogue=MORE, lda=640, ldb=608, ldc=236)),
        ({}, Problem(1, 8, 16, Layout.NT, DType.E4M3_F32, epilogue=Epilogue(PRODUCT))),
        (
            {"STORE_C": "threads"},
            replace(
                PROBLEM, epilogue=Epilogue(f"aux[m, n] = {PRODUCT}; alpha * aux + beta * c[m, n]")
            ),
        ),
        (OVERLAPPED, PROBLEM),
        (OVERLAPPED | {"BN": 192, "WN": 192}, PROBLEM),
        (OVERLAPPED | {"BN": 256, "WN": 256, "BM": 128}, replace(PROBLEM, dtype=DType.E4M3)),
        (OVERLAPPED | {"BN": 256, "BLOCKS": 0}, replace(PROBLEM, dtype=DType.E4M3, n=264, ldc=0)),
        (OVERLAPPED, replace(PROBLEM, dtype=DType.E5M2_F16, epilogue=MORE, lda=640, ldb=608)),
        (OVERLAPPED | {"CLUSTER_N": 2, "BLOCKS": 0}, replace(PROBLEM, n=392, ldc=0)),
        (OVERLAPPED, Problem(1, 8, 16, Layout.NT, DType.E4M3, epilogue=Epilogue(PRODUCT))),
        (
            OVERLAPPED | {"STORE_C": "threads"},
            replace(
                PROBLEM, epilogue=Epilogue(f"aux[m, n] = {PRODUCT}; alpha * aux + beta * c[m, n]")
            ),
        ),
    ],
    ids=[
        *(
            "f32",
            "wide",
            "bf16",
            "pingpong",
            "cluster",
            "split",
            "split4",
            "more",
            "tiny",
            "second",
        ),
        *("overlapped", "overlapped 192", "overlapped 256", "overlapped two", "overlapped e5m2"),
        *("overlapped cluster", "overlapped tiny", "overlapped second"),
    ],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, **changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(
        render(family, one, problem), launch_plan(family, one, problem), problem
    )
    assert report.ok, report.message


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"PROMOTE": 256}, "factors of sums over 128 of K"),
        ({"PROMOTE": 0}, "factors of sums over 128 of K"),
        ({"K_ORDER": "serpentine"}, "in the order of K"),
        (OVERLAPPED | {"BM": 128, "WM": 128}, "64 columns at a time"),
        (OVERLAPPED | {"WN": 64, "BN": 64}, "64 columns at a time"),
        (OVERLAPPED | {"SPLIT_K": 2, "BLOCKS": 0}, "cooperative warpgroups"),
        (OVERLAPPED | {"SCHEDULE": "pingpong"}, "cooperative warpgroups"),
    ],
)
def test_other_kernels_are_refused(changes: dict[str, Value], rule: str) -> None:
    one = config(**{"PROMOTE": 128} | changes)
    broken = broken_constraints(load_family("gemm_wgmma"), one, PROBLEM, find_device("h200"))
    assert any(rule in line for line in broken)


FACTOR = "partial[j] * scale.of(i, j)"
ADDED = f"accum[i][j] += {FACTOR};"
BUGS = {
    "no scales": (FACTOR, "partial[j]"),
    "no scale of A": ("a[i][j / 2 % 2] * b[", "b["),
    "no scale of B": (" * b[j / 4 * 8 / SCALE_COLUMNS]", ""),
    "the scales of the block before": ("scales.load(k_tile + 1)", "scales.load(k_tile)"),
    "the scales of the next block": ("const Scales scale = next;", "const Scales& scale = next;"),
    "the scale of the row eight further down": ("a[i][j / 2 % 2]", "a[i][1 - j / 2 % 2]"),
    "the scale of the neighbouring row": ("+ row + 8 * half", "+ (row ^ 1) + 8 * half"),
    "one scale for all columns": ("n0 + j * SCALE_COLUMNS, out", "n0, out"),
    "scales of columns of the tile alone": ("min(n0 + j * SCALE", "min(j * SCALE"),
    "rows of scales of B without the partial block": (
        "(n / 128) * num_blocks",
        "(n / 128) * (num_blocks - 1)",
    ),
    "scales of columns that are not there": ("COLUMNS, output.N - 1)", "COLUMNS, output.N + 200)"),
    "scales of rows that are not there": ("half, output.M - 1)", "half, output.M + 200)"),
    "the last partial block is not added": (ADDED, f"if ((k_tile + 1) * 128 <= 592) {ADDED}"),
    "sums that do not begin anew": (", step > 0);", ", k_tile > 0 || step > 0);"),
    "added before products are done": ("wgmma_wait_0();\n            if (i + 1", "if (i + 1"),
    "scaled twice": (FACTOR, f"{FACTOR} * scale.of(i, j)"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    old, new = BUGS[name]
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, **WIDE)
    source = render(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, PROBLEM), PROBLEM).ok


SPLIT_BUGS = {
    "scales of the first blocks": ("first_k_tile + k_tile + 1", "k_tile + 1"),
    "the first scales of all": ("scales.load(first_k_tile);", "scales.load(0);"),
    "rows of scales as of a range of K": (
        "{output, num_blocks",
        "{output, num_k_tiles",
    ),
}


@pytest.mark.parametrize("name", SPLIT_BUGS)
def test_a_bug_planted_in_a_split_product_is_caught(emulator: Emulator, name: str) -> None:
    old, new = SPLIT_BUGS[name]
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, SPLIT_K=2, BLOCKS=0)
    source = render(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, PROBLEM), PROBLEM).ok


DONE = "wgmma_wait_0();\n        pipeline.release(pipeline.stage);\n        pipeline.advance();\n"
NEXT = """        if (k_tile + 1 < num_k_tiles) {
            mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
            load_fragments(pipeline.k_tile_a() + row * 128, fragments);
        }
"""
LATE = """const int used = pipeline.stage;
        pipeline.advance();
{}        wgmma_wait_0();
        pipeline.release(used);
"""
LAST = "add_scaled(partial[(PIECES - 1) % 2]"
OVERLAPPED_BUGS = {
    "sums of other columns": ("% 2], scale, piece - 1", "% 2], scale, piece"),
    "scales of other columns": ("scale.of(0, at)", "scale.of(0, j)"),
    "sums that are not done": ("wgmma_wait_1();", ""),
    "the last sums are not done": (DONE, DONE.replace("wgmma_wait_0();", "wgmma_wait_1();")),
    "the stage is released before its products are done": (
        DONE,
        DONE.replace("wgmma_wait_0();\n", "") + "        wgmma_wait_0();\n",
    ),
    "fragments change while products read them": (DONE + NEXT, LATE.format(NEXT)),
    "the next fragments come before their k tile": (NEXT, NEXT.replace("mbarrier_wait", "(void)")),
    "a piece is left out": (LAST, f"if (k_tile > 0) {LAST}"),
    "sums that do not begin anew": (", step > 0);", ", true);"),
    "columns of the first piece": ("b + (piece * PIECE * 128 >> 4)", "b"),
    "chunks that are not swizzled": ("2 * step + lane / 16 ^ row % 8", "2 * step + lane / 16"),
    "chunks of the step before": ("2 * step + lane / 16 ^", "(step > 0 ? 2 * step - 2 : 0) ^"),
    "rows of another warp": ("/ 32 * 16 + lane % 16", "% 32 * 0 + lane % 16"),
    "no fence": ("wgmma_fence();\n    #pragma unroll\n    for (int step", "for (int step"),
}


@pytest.mark.parametrize("name", OVERLAPPED_BUGS)
def test_a_bug_planted_where_sums_are_scaled_meanwhile_is_caught(
    emulator: Emulator, name: str
) -> None:
    old, new = OVERLAPPED_BUGS[name]
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, **OVERLAPPED | WIDE)
    source = render(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, PROBLEM), PROBLEM).ok
