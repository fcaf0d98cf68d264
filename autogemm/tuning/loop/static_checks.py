"""Static facts that rule a candidate out: it cannot be launched, or it cannot win.

The first holds of compiled kernels, the second already before. Decision 0012 has what the rules
that prune would have left out in the recordings that ship.
"""

import math
import re

from autogemm.model.hardware.device import Device
from autogemm.model.hardware.occupancy import occupancy
from autogemm.model.kernel import (
    Candidate,
    CompiledKernel,
    KernelSource,
    Launch,
    LaunchPlan,
    Resources,
)
from autogemm.model.problem import Problem

# Registers are handed out per warp in units of this many (CUDA occupancy calculator, sm_30 on).
REGISTER_UNIT = 256
WARP = 32
# Bytes of spilled registers per thread, stored and loaded: eight registers, one way. Tensor cores
# keep their sums in registers; what is spilled beside them is used once a tile, in the epilogue.
MAX_SPILL_BYTES = 32
MAX_SPILL_BYTES_BESIDE_SUMS = 128
# wmma, mma.sync, wgmma.mma_async, mma_sync: what multiplies on tensor cores has it in its name.
_TENSOR_CORES = re.compile(r"(?<![a-zA-Z])(wg|w)?mma(?![a-zA-Z])")


def why_not_launchable(compiled: CompiledKernel, plan: LaunchPlan, device: Device) -> str:
    """The limit that a launch of the plan breaks, with its numbers; empty if it can launch."""
    by_name = {resources.kernel: resources for resources in compiled.resources}
    for launch in plan.launches:
        resources = by_name.get(launch.kernel)
        if resources is None:
            continue
        if reason := _why_not(launch, resources, device):
            return f"{launch.kernel} {reason}"
    return ""


def _why_not(launch: Launch, resources: Resources, device: Device) -> str:
    threads = launch.num_threads
    if threads > device.max_threads_per_block:
        return f"has {threads} threads per block, the device allows {device.max_threads_per_block}"
    warps = -(-threads // WARP)
    units = -(-resources.registers * WARP // REGISTER_UNIT)
    registers = warps * units * REGISTER_UNIT
    if registers > device.registers_per_sm:
        return (
            f"needs {registers} registers per block ({threads} threads x {resources.registers}), "
            f"an SM has {device.registers_per_sm}"
        )
    smem_bytes = launch.smem_bytes + resources.static_smem_bytes
    if smem_bytes > device.max_smem_per_block_bytes:
        return (
            f"needs {smem_bytes} bytes of shared memory per block, "
            f"the device allows {device.max_smem_per_block_bytes}"
        )
    return ""


def why_hopeless(candidate: Candidate, problem: Problem, device: Device, best_us: float) -> str:
    """Why a candidate will not beat a time already reached; empty if it may.

    Before it is compiled less is known, and less is ruled out.
    """
    resources = candidate.compiled.resources if candidate.compiled is not None else ()
    max_spill_bytes = MAX_SPILL_BYTES_BESIDE_SUMS
    if runs_on_fp32_cores(candidate.source, problem):
        max_spill_bytes = MAX_SPILL_BYTES
        least_us = least_time_us(candidate.plan, resources, problem, device)
        if least_us > best_us:
            return (
                f"cannot win: its multiply-adds alone take {least_us:.4g} us with this grid, "
                f"the best takes {best_us:.4g} us"
            )
    for used in resources:
        spill_bytes = used.spill_store_bytes + used.spill_load_bytes
        if spill_bytes > max_spill_bytes:
            return f"not worth a try: {used.kernel} spills {spill_bytes} bytes per thread"
    return ""


def runs_on_fp32_cores(source: KernelSource, problem: Problem) -> bool:
    """Whether every product of the GEMM costs a multiply-add on an FP32 core."""
    return problem.dtype.has_fp32_products and _TENSOR_CORES.search(source.text) is None


def least_time_us(
    plan: LaunchPlan, resources: tuple[Resources, ...], problem: Problem, device: Device
) -> float:
    """Return the least time of M*N*K multiply-adds in us, for this grid at the highest clock.

    A block stays on one SM, so that fewer blocks than SMs leave SMs idle; a thread issues at most
    one multiply-add a cycle, so that few threads leave cores idle. With several launches, any may
    do the work, so the most favourable one counts.
    """
    fma = problem.flops / 2
    fma_per_cycle = max(
        min(math.prod(launch.grid), device.num_sms)
        * min(device.fp32_cores_per_sm, _threads_per_sm(launch, resources, device))
        for launch in plan.launches
    )
    return fma / max(fma_per_cycle, 1) / device.sm_clock_mhz


def _threads_per_sm(launch: Launch, resources: tuple[Resources, ...], device: Device) -> int:
    """Most threads of a launch that one SM holds at a time."""
    used = next((one for one in resources if one.kernel == launch.kernel), None)
    fitting = occupancy(
        device,
        registers=used.registers if used is not None else 0,
        threads=launch.num_threads,
        smem_bytes=launch.smem_bytes + (used.static_smem_bytes if used is not None else 0),
    ).blocks_per_sm
    blocks = -(-math.prod(launch.grid) // device.num_sms)
    return max(1, min(blocks, fitting)) * launch.num_threads
