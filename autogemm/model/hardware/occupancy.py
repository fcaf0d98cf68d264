"""The number of thread blocks of a kernel that one SM holds at a time, from static facts alone."""

from dataclasses import dataclass
from enum import StrEnum

from autogemm.model.hardware.device import Device

WARP_SIZE = 32
# Registers are given out to whole warps, in units of 256, by each of the SM's four partitions.
_REGISTER_UNIT = 256
_PARTITIONS_PER_SM = 4


class Limiter(StrEnum):
    """The resource that keeps one more block from fitting on the SM."""

    WARPS = "warps"
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SMEM = "smem"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps resident on one SM; ``fraction`` is relative to the SM's most warps.

    ``blocks_per_sm`` is 0 when a single block does not fit: the kernel cannot be launched. Among
    limiters that allow equally few blocks, it is the first in the order of :class:`Limiter`.
    """

    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limiter: Limiter


def occupancy(device: Device, *, registers: int, threads: int, smem_bytes: int) -> Occupancy:
    """Occupancy of a kernel by its registers per thread, and threads and shared memory per block.

    ``smem_bytes`` is static plus dynamic, without what the driver reserves. Assumes that the
    driver gives shared memory the largest carve-out. The rules are those of NVIDIA's occupancy
    calculator, for compute capability 7.0 and later.
    """
    limits = blocks_by_limiter(device, registers=registers, threads=threads, smem_bytes=smem_bytes)
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    warps = -(-threads // WARP_SIZE)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        fraction=blocks * warps / (device.max_threads_per_sm // WARP_SIZE),
        limiter=limiter,
    )


def blocks_by_limiter(
    device: Device, *, registers: int, threads: int, smem_bytes: int
) -> dict[Limiter, int]:
    """Blocks per SM that each limiter alone allows, as for :func:`occupancy`."""
    warps = -(-threads // WARP_SIZE)
    max_warps = device.max_threads_per_sm // WARP_SIZE
    return {
        Limiter.WARPS: max_warps // warps if threads <= device.max_threads_per_block else 0,
        Limiter.BLOCKS: device.max_blocks_per_sm,
        Limiter.REGISTERS: _blocks_by_registers(device, registers, warps),
        Limiter.SMEM: _blocks_by_smem(device, smem_bytes),
    }


def _blocks_by_registers(device: Device, registers: int, warps: int) -> int:
    if registers > device.max_registers_per_thread:
        return 0
    per_warp = -(-max(registers, 1) * WARP_SIZE // _REGISTER_UNIT) * _REGISTER_UNIT
    # A warp's registers lie in one partition: 168 a thread are 5376 a warp, and of the 16384 of
    # a partition 3 warps can be served, 12 an SM, although 65536 / 5376 is 12.2.
    warps_per_partition = device.registers_per_sm // _PARTITIONS_PER_SM // per_warp
    return warps_per_partition * _PARTITIONS_PER_SM // warps


def _blocks_by_smem(device: Device, smem_bytes: int) -> int:
    if smem_bytes > device.max_smem_per_block_bytes:
        return 0
    unit = 128 if device.arch >= 80 else 256
    per_block = -(-(smem_bytes + device.reserved_smem_per_block_bytes) // unit) * unit
    return device.smem_per_sm_bytes // per_block if per_block else device.max_blocks_per_sm
