"""The attached GPUs, asked for in a child process and remembered, and the facts of one."""

import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from autogemm.model.hardware.device import Device
from autogemm.support.child_process import child_environment
from autogemm.support.installing import how_to_install

PROBE_DEADLINE_S = 120.0
# cudaDeviceAttr, by Device field; the numbers are the CUDA runtime's stable ABI.
DEVICE_ATTRIBUTES = {
    "num_sms": 16,
    "max_threads_per_block": 1,
    "max_threads_per_sm": 39,
    "max_blocks_per_sm": 106,
    "registers_per_sm": 82,
    "max_smem_per_block_bytes": 97,
    "smem_per_sm_bytes": 81,
    "reserved_smem_per_block_bytes": 111,
    "l2_bytes": 38,
    "memory_bus_bits": 37,
}
SM_CLOCK_KHZ, MEMORY_CLOCK_KHZ = 13, 36
COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76

# CUDA C++ Programming Guide, arithmetic throughput table: results per clock and SM.
FP32_CORES_PER_SM = {70: 64, 72: 64, 75: 64, 80: 64}
NEWER_FP32_CORES_PER_SM = 128

NO_DRIVER = "no NVIDIA driver is installed"

# The same on every architecture since 5.0.
MAX_REGISTERS_PER_THREAD = 255


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The attached GPUs; without any, why."""

    devices: tuple[Device, ...]
    reason: str = ""


def attached_devices() -> list[Device]:
    """The attached GPUs in CUDA's order; empty without driver, GPU or CuPy. Never raises."""
    return list(probed().devices)


def why_no_device() -> str:
    """One line that says why there is no usable GPU; empty when there is one."""
    return probed().reason


def no_cupy() -> str:
    """Return the line that says that CuPy is missing, and how to install it."""
    return f"CuPy is not installed: {how_to_install('cuda12')}"


@functools.cache
def probed() -> ProbeResult:
    """Ask once per process."""
    if importlib.util.find_spec("cupy") is None:
        return ProbeResult((), no_cupy())
    command = [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker.probe"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE_S,
            env=child_environment(),
            check=False,
        )
        answer = json.loads(done.stdout)
        devices = tuple(Device(**facts) for facts in answer["devices"])
        return ProbeResult(devices, answer["reason"])
    except subprocess.TimeoutExpired:
        return ProbeResult((), f"the driver did not answer within {PROBE_DEADLINE_S:g} s")
    except (OSError, ValueError, TypeError, KeyError) as error:
        return ProbeResult((), f"asking the driver failed: {error}")


def device_facts(name: str, memory_bytes: int, attribute: Callable[[int], int]) -> Device:
    """The facts of a GPU. ``attribute`` asks the runtime or the driver, which number alike."""
    arch = 10 * attribute(COMPUTE_CAPABILITY_MAJOR) + attribute(COMPUTE_CAPABILITY_MINOR)
    return Device(
        name=name,
        arch=arch,
        max_registers_per_thread=MAX_REGISTERS_PER_THREAD,
        memory_bytes=memory_bytes,
        sm_clock_mhz=attribute(SM_CLOCK_KHZ) // 1000,
        memory_clock_mhz=attribute(MEMORY_CLOCK_KHZ) // 1000,
        fp32_cores_per_sm=FP32_CORES_PER_SM.get(arch, NEWER_FP32_CORES_PER_SM),
        **{name: attribute(number) for name, number in DEVICE_ATTRIBUTES.items()},
    )
