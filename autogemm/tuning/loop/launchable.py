"""Static facts that rule a kernel out before it touches a card."""

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import CompiledKernel, Launch, LaunchPlan, Resources

# Registers are handed out per warp in units of this many (CUDA occupancy calculator, sm_30 on).
REGISTER_UNIT = 256
WARP = 32


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
