"""Products of warpgroups in the emulator: right kernels pass in all layouts, slips are caught."""

from dataclasses import replace

import pytest
from hopper import PROBLEMS, tiny_wgmma

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator, Mode, RunOptions
from autogemm.model.dtypes import DType
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan

pytestmark = pytest.mark.emulated


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.label)
def test_each_way_to_store_operands_is_right(emulator: Emulator, problem: Problem) -> None:
    family = tiny_wgmma()
    for config in family.seeds:
        source, plan = render(family, config, problem), launch_plan(family, config, problem)
        report = emulator.verify(source, plan, problem)
        assert report.ok, report.message
    fast = emulator.run(source, plan, problem, RunOptions(mode=Mode.FAST))
    assert fast.ok, fast.message


def test_rows_that_end_within_16_bytes_are_written_beyond_their_end(emulator: Emulator) -> None:
    """As the GPU does it: padding, or what else lies there, is overwritten."""
    family = tiny_wgmma()
    problem = Problem(72, 133, 88, Layout.NT, DType.BF16, ldc=136)
    config = family.seeds[0]
    assert broken_constraints(family, config, problem, find_device("h100"))
    plan = launch_plan(family, config, problem)
    report = emulator.run(render(family, config, problem), plan, problem, RunOptions(Mode.FAST))
    assert not report.ok
    assert "padding between rows" in report.message


PROBLEM = Problem(72, 136, 200, Layout.NN, DType.BF16)
WAIT = "        wgmma_wait_0();\n"
FULL = "        mbarrier_wait(&full, k_tile & 1);\n"
# The edited text, its replacement, and part of the message about it.
SLIPS = {
    "products not waited for": (WAIT, "", "in flight"),
    "one group left": (WAIT, "        wgmma_wait_1();\n", "in flight"),
    "not committed": ("        wgmma_commit();\n", "", "in flight"),
    "no fence before the first": ("        wgmma_fence();\n", "", "no wgmma_fence"),
    "accumulators written behind the fence": (
        "wgmma_fence();\n",
        "wgmma_fence();\n        if (k_tile == 1) accum[0] += 1.0f;\n",
        "no wgmma_fence",
    ),
    "accumulators read before the wait": (
        WAIT,
        "        if (accum[3] == 1.0f) alpha = 2.0f;\n" + WAIT,
        "of accumulators that a product still adds to",
    ),
    "the k tile not waited for": (FULL, "", "in flight"),
    "written by threads, not fenced": (
        FULL,
        FULL + "        ((unsigned*)k_tile_a)[threadIdx.x] = 0;\n        __syncthreads();\n",
        "no proxy fence",
    ),
    "eight rows of A too near": ("k_tile_a, 16, 1024", "k_tile_a, 16, 512", ""),
    "the next 64 columns of B too near": ("k_tile_b, 8192, 1024", "k_tile_b, 4096, 1024", ""),
    "steps of A too short": ("a + step * 2", "a + step", ""),
    "the first product adds": ("k_tile > 0 || step > 0", "1", ""),
    "beyond shared memory": ("k_tile_b, 8192, 1024", "k_tile_b, 65536, 1024", "out of bounds"),
    "no descriptor of shared memory": (
        "matrix_descriptor_128(k_tile_a,",
        "matrix_descriptor_128(A,",
        "bad asynchronous copy",
    ),
    "half a warp": ("wgmma_commit();", "if (threadIdx.x % 32 < 16) wgmma_commit();", "warp"),
    "rows of the accumulators exchanged": ("i / 2 % 2 * 8", "(1 - i / 2 % 2) * 8", "wrong value"),
}


def edited(source: KernelSource, old: str, new: str) -> KernelSource:
    assert old in source.text, old
    return replace(source, text=source.text.replace(old, new))


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_caught(emulator: Emulator, name: str) -> None:
    old, new, says = SLIPS[name]
    family = tiny_wgmma()
    config = family.seeds[1]
    source = edited(render(family, config, PROBLEM), old, new)
    report = emulator.verify(source, launch_plan(family, config, PROBLEM), PROBLEM)
    assert not report.ok
    found = [str(finding) for finding in report.findings]
    assert any(says in text for text in found), found


def test_two_groups_in_flight_and_a_fence_of_its_own_are_right(emulator: Emulator) -> None:
    family = tiny_wgmma()
    config = family.seeds[0]
    source = render(family, config, PROBLEM)
    each = edited(source, "k_tile > 0 || step > 0);", "k_tile > 0 || step > 0);\n wgmma_commit();")
    late = edited(each, WAIT, "        wgmma_wait_1();\n" + WAIT)
    report = emulator.verify(late, launch_plan(family, config, PROBLEM), PROBLEM)
    assert report.ok, report.message


def test_one_warp_waits_for_the_products_of_all_four(emulator: Emulator) -> None:
    """A stage that one thread frees behind its wait is free of the whole group's reads."""
    family = tiny_wgmma()
    config = family.seeds[0]
    source = edited(
        render(family, config, PROBLEM), "        __syncthreads();  // the k tile is free\n", ""
    )
    source = edited(source, "    const int warp =", "    __syncthreads();\n    const int warp =")
    report = emulator.verify(source, launch_plan(family, config, PROBLEM), PROBLEM)
    assert report.ok, report.message


def test_lanes_may_leave_right_behind_the_last_wait(emulator: Emulator) -> None:
    """In one block after the other: nothing of a warp that has left keeps the others."""
    family = tiny_wgmma()
    config = family.seeds[0]
    source = render(family, config, PROBLEM)
    for old, new in (
        ("        __syncthreads();  // the k tile is free\n", ""),
        ("tile_c[row * BN + column] =", "if (m < M && n < N) C[(long long)m * ldc + n] ="),
        (
            "    fence_before_bulk_copies();\n    __syncthreads();  // the tile is full\n",
            "return;\n",
        ),
    ):
        source = edited(source, old, new)
    report = emulator.verify(source, launch_plan(family, config, PROBLEM), PROBLEM)
    assert report.ok, report.message


def test_a_warp_that_multiplies_alone_waits_forever(emulator: Emulator) -> None:
    family = tiny_wgmma()
    config = family.seeds[0]
    source = edited(
        render(family, config, PROBLEM),
        "        wgmma_fence();\n",
        "        wgmma_fence();\n        if (threadIdx.x >= 32) continue;\n",
    )
    report = emulator.verify(source, launch_plan(family, config, PROBLEM), PROBLEM)
    assert "deadlock" in str(report.findings)


A_IN_REGISTERS = """
        unsigned fragments[4][4];
        for (int step = 0; step < 4; ++step) {
            for (int i = 0; i < 4; ++i) {
                const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 2 * 8;
                const int byte = 32 * step + i / 2 * 16 + threadIdx.x % 4 * 4;
                fragments[step][i] = *(unsigned*)(k_tile_a + 128 * row + (byte ^ row % 8 * 16));
            }
            wgmma_fence();
"""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wgmma_bf16_r", Problem(72, 136, 200, Layout.NN, DType.BF16)),
        ("wgmma_bf16_r", Problem(72, 136, 200, Layout.NT, DType.BF16)),
        ("wgmma_f16_r", Problem(72, 136, 200, Layout.NT, DType.F16)),
        ("wgmma_tf32_r", Problem(72, 136, 100, Layout.NT, DType.TF32)),
    ],
)
@pytest.mark.parametrize("slip", ["", "pairs exchanged", "no fence", "overwritten"])
def test_a_in_registers(emulator: Emulator, name: str, problem: Problem, slip: str) -> None:
    family = tiny_wgmma()
    config = family.seeds[0]
    source = render(family, config, problem)
    body = A_IN_REGISTERS
    if slip == "pairs exchanged":
        body = body.replace("i % 2 * 8", "i / 2 * 8").replace("i / 2 * 16", "i % 2 * 16")
    if slip == "no fence":
        body = body.replace("wgmma_fence();", "")
    if slip == "overwritten":
        # By the fragments of the next step, before the products of this one are done.
        body = body.replace("[4][4]", "[1][4]").replace("[step]", "[0]")
    source = edited(source, "        for (int step = 0; step < 4; ++step) {\n", body)
    source = edited(source, f"{name[:-1]}k", name)
    source = edited(
        source,
        "(accum, a + step * 2,",
        "(accum, fragments[" + ("0" if slip == "overwritten" else "step") + "],",
    )
    report = emulator.verify(source, launch_plan(family, config, problem), problem)
    assert report.ok == (not slip), report.message
