"""Bugs planted in an emitted kernel of gemm_wgmma: a cluster that walks over several tiles, two
warpgroups that multiply, a pipeline of two stages, boxes written by TMA.
"""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

FAMILY = load_family("gemm_wgmma")
CONFIG = Config.of(
    "gemm_wgmma",
    FAMILY.seeds[0].as_dict()
    | {"BM": 64, "BN": 128, "WM": 64, "WN": 64, "STAGES": 2, "C_BUFFERS": 1, "GROUP_M": 1}
    | {"CLUSTER_M": 2},
)
PROBLEM = Problem(200, 136, 200, Layout.NN, DType.BF16)
END = "    // No block exits while others arrive at its barriers.\n    cluster_arrive_relaxed();\n"

# Name: what becomes of which text, and part of what is said of it.
SLIPS = {
    "stages released before their products are done": (
        "wgmma_wait_1();\n            pipeline.release(before);",
        "pipeline.release(before);\n            wgmma_wait_1();",
        "data race",
    ),
    "stages filled that are not empty": (
        "mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);\n",
        "",
        "",
    ),
    "stages released to the own block only": (
        "mbarrier_arrive_relaxed_at_rank(empty + used, lane);",
        "mbarrier_arrive_relaxed_at_rank(empty + used, cluster_rank());",
        "",
    ),
    "the last products not waited for": ("    wgmma_wait_0();\n", "", "in flight"),
    "boxes filled while they are read": (
        "wait_for_tile_reads(C_BUFFERS - 1);",
        "wait_for_tile_reads(C_BUFFERS);",
        "in flight",
    ),
    "boxes not fenced": ("    fence_before_bulk_copies();\n", "", "no proxy fence"),
    "boxes stored before all have filled them": (
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n"
        "    if (thread == 0) {\n        store_tile",
        "    if (thread == 0) {\n        store_tile",
        "data race",
    ),
    "leaves while the last box is read": (
        "            wait_for_tile_reads(0);\n",
        "",
        "nothing waits",
    ),
    "both blocks load the same half of B": (
        "const int own = tiles.row_in_cluster * ROWS;",
        "const int own = 0;",
        "",
    ),
    "the cluster's barriers not awaited": (
        "    cluster_arrive_relaxed();\n    cluster_wait_acquire();\n\n    Tiles tiles;",
        "    __syncthreads();\n\n    Tiles tiles;",
        "",
    ),
    "a block leaves before the other": (
        END + "    cluster_wait_acquire();\n",
        "",
        "ended block",
    ),
    "a turn of a tile too few": ("tile += stride", "tile += 2 * stride", "never written"),
}


def plan_of(config: Config) -> LaunchPlan:
    """One in which one cluster has all tiles."""
    plan = launch_plan(FAMILY, config, PROBLEM)
    (launch,) = plan.launches
    assert launch.grid[0] > 2
    return replace(plan, launches=(replace(launch, grid=(2, 1, 1)),))


def emitted() -> tuple[KernelSource, LaunchPlan]:
    return render(FAMILY, CONFIG, PROBLEM), plan_of(CONFIG)


def test_boxes_that_do_not_come_round_are_no_legal_config(emulator: Emulator) -> None:
    """With two boxes, the one that the last tile left in flight is the next tile's first."""
    config = Config.of("gemm_wgmma", CONFIG.as_dict() | {"C_BUFFERS": 2})
    (broken,) = broken_constraints(FAMILY, config, PROBLEM, find_device("h100"))
    assert "begins with the first box again" in broken
    report = emulator.verify(render(FAMILY, config, PROBLEM), plan_of(config), PROBLEM)
    assert "in flight" in report.message


def test_the_kernel_is_right_as_it_is(emulator: Emulator) -> None:
    report = emulator.verify(*emitted(), PROBLEM)
    assert report.ok, report.message


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_caught(emulator: Emulator, name: str) -> None:
    old, new, says = SLIPS[name]
    source, plan = emitted()
    assert old in source.text, f"the emitted kernel no longer has {old!r}"
    report = emulator.verify(replace(source, text=source.text.replace(old, new)), plan, PROBLEM)
    assert not report.ok
    found = [str(finding) for finding in report.findings]
    assert any(says in text for text in found), found
