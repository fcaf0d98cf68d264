"""Inputs of an epilogue whose tiles come through the stages, and bugs planted there."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

GATE = "silu(acc + bias[n]) * gate[m, n]"
RESIDUAL = "acc * scale[m] + rest[m, n] + beta * c[m, n]"
SECOND = "aux[m, n] = acc + rest[m, n]; gelu(aux)"
BASE: dict[str, Value] = {
    **{"BM": 64, "BN": 128, "WM": 64, "WN": 64, "STAGES": 2, "CLUSTER_M": 1, "CLUSTER_N": 1},
    **{"SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 2, "EPILOGUE": "after"},
    **{"SCHEDULE": "cooperative", "K_ORDER": "forward", "INPUTS": "ahead"},
}
# Tiles of 72 rows, which end within a load of 16; one box in a stage, and several stages.
SWAPPED: dict[str, Value] = {
    **{"SWAP_AB": 1, "BM": 72, "WM": 72, "BN": 256, "WN": 128, "BOX_M": 8, "STAGES": 3},
    "C_BUFFERS": 2,
}
TWO_HEIGHTS: dict[str, Value] = {
    **{"SWAP_AB": 1, "BM": 64, "WM": 64, "EPILOGUE": "overlapped", "SHORT_BY": 24},
}
OVERLAPPED: dict[str, Value] = {"EPILOGUE": "overlapped", "BN": 128, "WN": 128}
PINGPONG: dict[str, Value] = {"SCHEDULE": "pingpong", "BN": 64, "WN": 64, "STAGES": 3}
SHARED: dict[str, Value] = {"CLUSTER_M": 2, "BLOCKS": 4, "BN": 192, "WN": 192}
# The second warpgroup begins within a box.
WITHIN: dict[str, Value] = {"BN": 192, "WN": 96, "STAGES": 3}


def ahead(
    text: str, changes: dict[str, Value], dtype: DType = DType.BF16
) -> tuple[KernelSource, Problem]:
    """A kernel and a problem with edges on all sides, of more tiles than blocks."""
    family = load_family("gemm_wgmma")
    beta = 0.5 if text == RESIDUAL else 0.0
    problem = Problem(200, 328, 72, Layout.NT, dtype, beta=beta).with_epilogue(Epilogue(text))
    values = family.seeds[0].as_dict() | BASE | changes
    config = family.completed(replace(family.seeds[0], values=tuple(values.items())))
    assert broken_constraints(family, config, problem, find_device("H200")) == []
    return render(family, config, problem), problem


def complaint(emulator: Emulator, source: KernelSource, problem: Problem) -> str:
    plan = launch_plan(load_family(source.family), source.config, problem, few_blocks=True)
    report = emulator.verify(source, plan, problem, both_betas=problem.beta != 0)
    return "" if report.ok else report.message


@pytest.mark.parametrize(
    "case",
    [
        (GATE, {}, DType.BF16),
        (RESIDUAL, {"STORE_C": "threads", "BOX_M": 16}, DType.F16),
        (SECOND, OVERLAPPED, DType.BF16),
        (GATE, SWAPPED, DType.F16),
        (RESIDUAL, TWO_HEIGHTS, DType.BF16),
        (RESIDUAL, PINGPONG, DType.BF16),
        (
            GATE,
            PINGPONG | {"SWAP_AB": 1, "BN": 128, "WN": 128, "BOX_M": 16, "C_BUFFERS": 2},
            DType.BF16,
        ),
        (GATE, SHARED, DType.BF16),
        (GATE, WITHIN, DType.BF16),
    ],
)
def test_a_tile_of_an_input_comes_ahead(
    emulator: Emulator, case: tuple[str, dict[str, Value], DType]
) -> None:
    source, problem = ahead(*case)
    assert "load_input(pipeline, map_input" in source.text
    assert complaint(emulator, source, problem) == ""


WAIT = """\
        mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);
        pipeline.advance();
"""
RELEASE = "        pipeline.release((first_stage + i) % STAGES);\n"
BUGS = {
    # name: (expression, changes, what stands there, the bug, what the emulator says)
    "the tile is not waited for": (
        GATE, {}, WAIT, "        pipeline.advance();\n", "bad use of a barrier",
    ),
    "a stage is not released": (GATE, {}, RELEASE, "", "deadlock"),
    "the box of another stage": (
        GATE, SWAPPED | {"BN": 256, "STAGES": 4}, "box / INPUT_BOXES) % STAGES",
        "box / INPUT_BOXES + 1) % STAGES", "use of data in flight",
    ),
    "loads may be under way when TMA fills a stage anew": (
        RESIDUAL, PINGPONG, "fence_before_bulk_copies();\n    __syncwarp();\n    for",
        "__syncwarp();\n    for", "stored or loaded",
    ),
    "the same, of C^T": (
        GATE, SWAPPED, "fence_before_bulk_copies();\n    __syncwarp();\n    for",
        "__syncwarp();\n    for", "stored or loaded",
    ),
    "the box of the warpgroup before": (
        GATE, WITHIN, "in_tile / 64);", "column / 64 + first / 32);", "is",
    ),
    "the first box for all columns": (
        GATE, {}, "box % INPUT_BOXES * INPUT_BYTES", "0 * box * INPUT_BYTES", "C[0,64] is",
    ),
    "more bytes are expected than come": (
        GATE, {}, "(full, num_boxes * INPUT_BYTES)", "(full, INPUT_BOXES * INPUT_BYTES)",
        "deadlock",
    ),
    "rows of another tile": (
        RESIDUAL, OVERLAPPED, "n0 + (first + i) * 64, m0, full",
        "n0 + (first + i) * 64, m0 + 64, full", "C[0,0] is",
    ),
    "the bias of the column before, in the last tile": (
        GATE, {}, "with.bias[n]", "with.bias[n >= 256 ? n - 1 : n]", "C[0,256] is",
    ),
    "C is stored where the tile lies": (
        RESIDUAL, {"STAGES": 3}, "boxes = shared + STAGES * STAGE_BYTES;", "boxes = shared;",
        "an mbarrier used as data",
    ),
    "the other warpgroup's tile is not passed over": (
        RESIDUAL, PINGPONG, "pipeline.skip(num_k_tiles + INPUT_STAGES);\n            store",
        "pipeline.skip(num_k_tiles);\n            store", "bad use of a barrier",
    ),
    "chunks are not swizzled": (
        RESIDUAL, {}, "lane / 16) ^ lane % 8;\n        #pragma", "lane / 16);\n        #pragma",
        "is",
    ),
    "rows of a transposed tile in another order": (
        RESIDUAL, TWO_HEIGHTS, "2 * first + lane / 16 * 8", "2 * first + lane / 8 % 2 * 8", "is",
    ),
    "rows behind the tile's last one": (
        GATE, SWAPPED, "lane / 16 * 8, WM - 8)", "lane / 16 * 8, WM)",
        "uninitialised memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen(emulator: Emulator, bug: str) -> None:
    text, changes, old, new, seen = BUGS[bug]
    source, problem = ahead(text, changes)
    assert old in source.text
    found = complaint(emulator, replace(source, text=source.text.replace(old, new)), problem)
    assert seen in found


def test_a_stage_that_is_released_before_it_was_read_is_seen(emulator: Emulator) -> None:
    source, problem = ahead(GATE, {})
    early = WAIT.replace("pipeline.adv", "pipeline.release(pipeline.stage);\n        pipeline.adv")
    assert WAIT in source.text and RELEASE in source.text
    wrong = source.text.replace(WAIT, early).replace(RELEASE, "")
    assert "stored or loaded" in complaint(emulator, replace(source, text=wrong), problem)
