"""Scales of blocks of 8-bit floats in the emulator: right kernels pass, planted bugs do not."""

from dataclasses import replace

import pytest
from test_fp8_emulated import config

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator, FindingKind
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
ALTERNATING: dict[str, Value] = {"BM": 128, "WN": 128, "BN": 128, "PROMOTION": "alternating"}
# More tiles than blocks.
MANY = replace(PROBLEM, m=392, n=264, ldc=0)


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
        ({"BM": 128, "BN": 128, "WN": 128, "BLOCKS": 1}, replace(MANY, k=200)),
        (
            {"BM": 128, "WM": 128, "BN": 256, "WN": 128, "SPLIT_K": 2, "BLOCKS": 0}
            | {"PARTIALS": "in_stages"},
            PROBLEM,
        ),
        (ALTERNATING, PROBLEM),
        (ALTERNATING | {"STAGES": 3}, replace(PROBLEM, k=768, lda=0, ldb=0)),
        (ALTERNATING | {"CLUSTER_M": 2, "BLOCKS": 2}, replace(MANY, dtype=DType.E4M3, k=128)),
        (ALTERNATING | {"SPLIT_K": 2, "BLOCKS": 0}, PROBLEM),
        (ALTERNATING, replace(PROBLEM, dtype=DType.E5M2_F16, epilogue=MORE, lda=640, ldb=608)),
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
        *("many", "split in stages"),
        *("alternating", "alternating three", "alternating cluster", "alternating split"),
        "alternating e5m2",
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
        ({"STAGES": 2}, "three warps bring scales in turns"),
        (ALTERNATING | {"SCHEDULE": "pingpong"}, "with 64 rows each"),
        (ALTERNATING | {"BM": 256, "WM": 128}, "with 64 rows each"),
    ],
)
def test_other_kernels_are_refused(changes: dict[str, Value], rule: str) -> None:
    one = config(**{"PROMOTE": 128} | changes)
    broken = broken_constraints(load_family("gemm_wgmma"), one, PROBLEM, find_device("h200"))
    assert any(rule in line for line in broken)


FACTOR = "partial[j] * scale.of(i, j)"
ADDED = f"accum[i][j] += {FACTOR};"
EMPTY = "mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);"
READ = """mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
                    next ="""
# A warp's first lane arrives in place of all, of which nothing says what they have done.
ONE_FOR_ALL = "for (int n = 0; n < 32 && threadIdx.x %% 32 == 0; ++n) mbarrier_arrive(%s);"
BUGS = {
    "no scales": (FACTOR, "partial[j]"),
    "no scale of A": ("a[i][j / 2 % 2] * b[", "b["),
    "no scale of B": (" * b[j / 4 * 8 / SCALE_COLUMNS]", ""),
    "the scales of the first stage": ("scales + pipeline.stage * STAGE_SCALES", "scales"),
    "the scales of the k tile before": ("scale = next;", ""),
    "products of the k tile before": ("compute_now(a, b);", "a -= STAGE_BYTES >> 4;"),
    "the next stage is released": ("pipeline.release(used);", "pipeline.release(pipeline.stage);"),
    "the scales of the block before": ("place.n0, k_tile);", "place.n0, max(0, k_tile - 1));"),
    "the scale of the row eight further down": ("a[i][j / 2 % 2]", "a[i][1 - j / 2 % 2]"),
    "the scale of the neighbouring row": (
        "stage_scales[thread_row +",
        "stage_scales[(thread_row ^ 1) +",
    ),
    "the scale of another warp's row": (
        "% WARPGROUP / 32 * 16 + lane / 4;",
        "/ 32 * 0 + lane / 4;",
    ),
    "one scale for all columns": ("column / SCALE_COLUMNS + j]", "column / SCALE_COLUMNS]"),
    "scales of columns of the tile alone": ("n0 + lane * SCALE_COLUMNS;", "lane * SCALE_COLUMNS;"),
    "scales of rows of the tile alone": ("(m0 + lane);", "lane;"),
    "rows of scales of B without the partial block": (
        "(n / 128) * num_blocks",
        "(n / 128) * (num_blocks - 1)",
    ),
    "scales of columns that are not there": (" && n < N)", ")"),
    "scales of rows that are not there": ("m0 + lane + 32 * i < M", "true"),
    "the last partial block is not added": (ADDED, f"if ((k_tile + 1) * 128 <= 592) {ADDED}"),
    "sums that do not begin anew": (", step > 0);", ", k_tile > 0 || step > 0);"),
    "added before products are done": ("wgmma_wait_0();\n            if (i + 1", "if (i + 1"),
    "scaled twice": (FACTOR, f"{FACTOR} * scale.of(i, j)"),
    "a stage is full without its scales": (
        "pipeline.full + stage, 1 + 32)",
        "pipeline.full + stage, 1)",
    ),
    "scales come to a stage that is in use": (
        f"{EMPTY}\n        float* const to",
        "float* const to",
    ),
    "read before the stage is full": (READ, "next ="),
    "released before all lanes have read": (
        "mbarrier_arrive(empty + used);",
        ONE_FOR_ALL % "empty + used",
    ),
    "announced before all lanes have written": (
        "mbarrier_arrive(pipeline.full + pipeline.stage);",
        ONE_FOR_ALL % "pipeline.full + pipeline.stage",
    ),
    "every other k tile has no scales": ("turn = 3;", "turn = 4;"),
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
    "scales of the first blocks": ("first_k_tile + k_tile);", "k_tile);"),
    "rows of scales as of a range of K": ("(int)all_k_tiles, scales}", "num_k_tiles, scales}"),
    "one warp for all": ("k_tile % 3 == warp % 4 - 1", "warp % 4 == 1 && k_tile % 3 == 0"),
}


@pytest.mark.parametrize("name", SPLIT_BUGS)
def test_a_bug_planted_in_a_split_product_is_caught(emulator: Emulator, name: str) -> None:
    old, new = SPLIT_BUGS[name]
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, SPLIT_K=2, BLOCKS=0)
    source = render(family, one, PROBLEM)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, PROBLEM), PROBLEM).ok


ALTERNATING_BUGS = {
    "sums are not done": ("wgmma_wait_1();", ""),
    "the last sums are not done": ("wgmma_wait_0();", "wgmma_wait_1();"),
    "the stage of products under way is released": ("release(before.stage)", "release(next.stage)"),
    "scales of the next sums": (
        "before.add_to(accum);",
        "before.scales = next.scales;\n    before.add_to(accum);",
    ),
    "sums that do not begin anew": (", step > 0);", ", true);"),
    "an odd k tile is left out": ("odd.add_to(accum[0]);", ""),
    "the scales of the first stage": ("stage_scales + stage * STAGE_SCALES", "stage_scales"),
    "no fence": ("wgmma_fence();", ""),
}


@pytest.mark.parametrize("name", ALTERNATING_BUGS)
def test_a_bug_planted_in_two_sets_of_sums_is_caught(emulator: Emulator, name: str) -> None:
    old, new = ALTERNATING_BUGS[name]
    problem = replace(PROBLEM, k=720, lda=0, ldb=0)
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, **ALTERNATING)
    source = render(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, problem), problem).ok


# More k tiles than stages, so that other warps write a stage's scales again.
CLUSTERS: list[dict[str, Value]] = [
    ALTERNATING | {"CLUSTER_N": 2, "STAGES": 4, "BLOCKS": 0},
    {"CLUSTER_M": 2, "STAGES": 4, "BLOCKS": 0},
]
OWN = "mbarrier_arrive(empty + used);"


@pytest.mark.parametrize("changes", CLUSTERS, ids=["side by side", "one below the other"])
def test_scales_of_a_cluster_are_read_before_they_are_written_again(
    emulator: Emulator, changes: dict[str, Value]
) -> None:
    """Arrivals that order nothing are for stages that TMA alone fills."""
    problem = replace(PROBLEM, m=136, n=264, k=768, lda=0, ldb=0, ldc=0)
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, **changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    source, plan = render(family, one, problem), launch_plan(family, one, problem)
    report = emulator.verify(source, plan, problem)
    assert report.ok, report.message
    assert source.text.count(OWN) == 1
    relaxed = source.text.replace(
        OWN, "mbarrier_arrive_relaxed_at_rank(empty + used, cluster_rank());"
    )
    report = emulator.verify(replace(source, text=relaxed), plan, problem)
    assert FindingKind.RACE in {finding.kind for finding in report.findings}


def test_with_two_stages_a_warp_would_fill_a_stage_too_early(emulator: Emulator) -> None:
    """Why the search space has no such kernels: the parity of a barrier tells two rounds apart."""
    problem = replace(PROBLEM, k=768, lda=0, ldb=0)
    family, one = load_family("gemm_wgmma"), config(PROMOTE=128, STAGES=2)
    source, plan = render(family, one, problem), launch_plan(family, one, problem)
    assert not emulator.verify(source, plan, problem).ok
