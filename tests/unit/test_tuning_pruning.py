"""Candidates ruled out before the GPU, compared with the recordings that ship."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from store_samples import H100

from autogemm.codegen import render
from autogemm.formats import Recording, read_recording
from autogemm.model.config import Config
from autogemm.model.kernel import (
    Candidate,
    CompiledKernel,
    KernelSource,
    Launch,
    LaunchPlan,
    Resources,
)
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family
from autogemm.support.resources import data_folder
from autogemm.tuning.loop.static_checks import (
    least_time_us,
    runs_on_fp32_cores,
    why_hopeless,
)

SIZES = ("1024", "4096", "4096x256x1024")
# Pruned for their grid, and for spills: decision 0012 names these figures.
NUM_PRUNED = {"1024": (30, 20), "4096": (0, 12), "4096x256x1024": (0, 0)}


WITHOUT_LAUNCH = {
    *("TM", "TN", "VEC_LOAD", "VEC_STORE", "REG_STAGES", "HANDOVER", "GROUP_M", "MIN_BLOCKS"),
    *("FMA_ORDER", "EDGES", "PACK", "LANE_MAP"),
}


@cache
def recorded(size: str) -> tuple[Recording, list[Candidate]]:
    """A shipped recording, and its configs as candidates without code."""
    folder = data_folder("db/recordings")
    recording = read_recording(folder / f"sgemm_simt_h200_{size}_nn.json.gz")
    family = load_family("sgemm_simt")
    later = {p.name: p.default for p in family.parameters if p.default is not None}
    candidates = []
    plans: dict[tuple[object, ...], LaunchPlan] = {}
    for row in range(len(recording)):
        config = Config.of(family.name, later | recording.values(row))
        # Values that no launch depends on are left out: making a plan takes a millisecond.
        key = tuple(value for name, value in config if name not in WITHOUT_LAUNCH)
        if key not in plans:
            plans[key] = launch_plan(family, config, recording.problem)
        registers, spill = recording.registers[row], recording.spill_bytes[row]
        assert registers is not None
        assert spill is not None
        candidates.append(
            candidate(plans[key], Resources("gemm_kernel", registers, spill, 0, 0, 0))
        )
    return recording, candidates


def candidate(plan: LaunchPlan, *resources: Resources, text: str = "a = b * c + a;") -> Candidate:
    source = KernelSource("f", "", Config.of("f", {"BM": 1}), Layout.NN, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"", resources, "", "", (), 0.1)
    return Candidate(source, plan, compiled if resources else None)


def best_us(recording: Recording) -> float:
    return min(t for t in recording.time_us if t is not None)


@pytest.mark.parametrize("size", SIZES)
def test_no_config_near_the_best_would_have_been_pruned(size: str) -> None:
    recording, candidates = recorded(size)
    us, device = best_us(recording), recording.source.device
    reasons = [why_hopeless(c, recording.problem, device, us) for c in candidates]
    num_by_grid = sum(reason.startswith("cannot win: its multiply-adds") for reason in reasons)
    num_by_spills = sum("spills" in reason for reason in reasons)
    assert (num_by_grid, num_by_spills) == NUM_PRUNED[size]
    pruned = np.array([bool(reason) for reason in reasons])
    times_us = np.array([np.inf if t is None else t for t in recording.time_us])
    assert not pruned[times_us < 1.10 * us].any()


@pytest.mark.parametrize("size", SIZES)
def test_no_kernel_was_ever_faster_than_the_least_time(size: str) -> None:
    recording, candidates = recorded(size)
    problem, device = recording.problem, recording.source.device
    shares = []
    for one, time_us in zip(candidates, recording.time_us, strict=True):
        assert one.compiled is not None
        assert time_us is not None
        compiled_us = least_time_us(one.plan, one.compiled.resources, problem, device)
        early_us = least_time_us(one.plan, (), problem, device)
        assert early_us <= compiled_us
        shares.append(compiled_us / time_us)
    assert 0.6 < max(shares) < 1.0


def test_the_family_that_ships_runs_on_fp32_cores() -> None:
    family = load_family("sgemm_simt")
    problem = Problem(1024, 1024, 1024)
    source = render(family, family.seeds[0], problem)
    assert runs_on_fp32_cores(source, problem)
    assert re.search("mma", source.text) is None


def grid(blocks: int, threads: int = 256, kernel: str = "gemm_kernel") -> Launch:
    return Launch(kernel, (blocks, 1, 1), (threads, 1, 1), 0)


PROBLEM = Problem(1024, 1024, 1024)
# 2^30 multiply-adds on 132 SMs of 128 cores at 1980 MHz.
WHOLE_GPU_US = 2**30 / (132 * 128 * 1980)


@pytest.mark.parametrize(
    ("launches", "share_of_gpu"),
    [
        ((grid(132),), 1.0),
        ((grid(4096),), 1.0),
        ((grid(33),), 33 / 132),
        # One warp: 32 of 128 cores.
        ((grid(132, threads=32),), 32 / 128),
        # Four blocks of a warp each.
        ((grid(4 * 132, threads=32),), 1.0),
        # The second may be the one that multiplies.
        ((grid(33, kernel="split_kernel"), grid(132)), 1.0),
    ],
)
def test_idle_sms_and_cores_cost_time(launches: tuple[Launch, ...], share_of_gpu: float) -> None:
    least_us = least_time_us(LaunchPlan(launches), (), PROBLEM, H100)
    assert least_us == pytest.approx(WHOLE_GPU_US / share_of_gpu)


def test_registers_limit_the_threads_at_work() -> None:
    # 255 registers and 32 threads a block: 8 blocks an SM; at 4 a block would wait for another.
    plan = LaunchPlan((Launch("gemm_kernel", (9999, 1, 1), (32, 1, 1), 100_000),))
    used = Resources("gemm_kernel", 255, 0, 0, 0, 0)
    assert least_time_us(plan, (used,), PROBLEM, H100) == pytest.approx(WHOLE_GPU_US * 128 / 64)


def test_the_reason_has_both_times() -> None:
    slow = candidate(LaunchPlan((grid(33),)))
    assert why_hopeless(slow, PROBLEM, H100, 4 * WHOLE_GPU_US + 0.1) == ""
    reason = why_hopeless(slow, PROBLEM, H100, 100.0)
    assert reason == (
        "cannot win: its multiply-adds alone take 128.4 us with this grid, the best takes 100 us"
    )


@pytest.mark.parametrize(
    "text",
    [
        "wmma::mma_sync(d, a, b, c);",
        'asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"',
        'asm volatile("wgmma.mma_async.sync.aligned"',
    ],
)
def test_tensor_cores_are_not_bound_by_multiply_adds(text: str) -> None:
    fast = candidate(LaunchPlan((grid(33),)), text=text)
    assert why_hopeless(fast, PROBLEM, H100, 1.0) == ""


def test_other_words_do_not_look_like_tensor_cores() -> None:
    source = candidate(LaunchPlan((grid(1),)), text="// a comma; gemm_kernel; dilemma").source
    assert runs_on_fp32_cores(source, PROBLEM)


@pytest.mark.parametrize(("text", "most"), [("", 32), ("wgmma.mma_async.sync.aligned", 128)])
def test_spills_are_ruled_out_above_a_few_registers(text: str, most: int) -> None:
    plan = LaunchPlan((grid(1024),))
    few = Resources("gemm_kernel", 255, most // 2, most // 2, 64, 0)
    assert why_hopeless(candidate(plan, few, text=text), PROBLEM, H100, 1e6) == ""
    many = replace(few, spill_load_bytes=most // 2 + 4)
    reason = why_hopeless(candidate(plan, few, many, text=text), PROBLEM, H100, 1e6)
    assert reason == f"not worth a try: gemm_kernel spills {most + 4} bytes per thread"
