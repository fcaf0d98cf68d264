"""Blocks that an SM holds, the needs of one more, and the waves of the grid."""

import math
from bisect import bisect_right
from dataclasses import dataclass

from autogemm.model.hardware.device import Device
from autogemm.model.hardware.occupancy import WARP_SIZE, Limiter, blocks_by_limiter, occupancy
from autogemm.model.kernel import Launch, Resources


@dataclass(frozen=True, slots=True)
class LimiterStep:
    """Blocks that one limiter allows by itself, and the needs of the next step.

    ``uses`` is threads or shared-memory bytes per block, or registers per thread; None for the
    limit on blocks. ``needs_at_most`` is the most with which `Residency.next_blocks_per_sm` blocks
    fit; None where no value would do.
    """

    limiter: Limiter
    uses: int | None
    blocks_per_sm: int
    needs_at_most: int | None


@dataclass(frozen=True, slots=True)
class Residency:
    """Static occupancy of one launch. ``fraction`` is relative to the SM's most warps."""

    kernel: str
    threads: int
    smem_bytes: int
    registers: int
    blocks_per_sm: int
    warps_per_sm: int
    fraction: float
    limiter: Limiter
    next_blocks_per_sm: int
    steps: tuple[LimiterStep, ...]


@dataclass(frozen=True, slots=True)
class Waves:
    """The number of times that the grid fills the GPU. ``lost_share`` is the idle share, in the
    last wave.

    With ``waves`` = blocks / (blocks per SM x SMs) and every block equally long, it is
    1 - waves / ceil(waves).
    """

    kernel: str
    blocks: int
    blocks_per_wave: int
    waves: float
    lost_share: float


def residency(device: Device, launch: Launch, resources: Resources) -> Residency:
    """Occupancy of a launch whose kernel uses these registers and static shared memory."""
    threads, registers = launch.num_threads, resources.registers
    smem_bytes = launch.smem_bytes + resources.static_smem_bytes
    uses = {"registers": registers, "threads": threads, "smem_bytes": smem_bytes}
    found = occupancy(device, **uses)
    target = found.blocks_per_sm + 1
    allowed = blocks_by_limiter(device, **uses)

    def needed(limiter: Limiter, most: int, name: str) -> int | None:
        def too_few(amount: int) -> int:
            return -blocks_by_limiter(device, **uses | {name: amount})[limiter]

        # Fewer blocks fit the more is used: the first amount with too few ends the search.
        return bisect_right(range(1, most + 1), -target, key=too_few) or None

    most_warps = device.max_threads_per_sm // WARP_SIZE // target
    most_threads = min(most_warps * WARP_SIZE, device.max_threads_per_block)
    needs = {
        Limiter.WARPS: (threads, most_threads or None),
        Limiter.BLOCKS: (None, None),
        Limiter.REGISTERS: (
            registers,
            needed(Limiter.REGISTERS, device.max_registers_per_thread, "registers"),
        ),
        Limiter.SMEM: (
            smem_bytes,
            needed(Limiter.SMEM, device.max_smem_per_block_bytes, "smem_bytes"),
        ),
    }
    return Residency(
        kernel=launch.kernel,
        threads=threads,
        smem_bytes=smem_bytes,
        registers=registers,
        blocks_per_sm=found.blocks_per_sm,
        warps_per_sm=found.warps_per_sm,
        fraction=found.fraction,
        limiter=found.limiter,
        next_blocks_per_sm=target,
        steps=tuple(
            LimiterStep(limiter, used, allowed[limiter], at_most)
            for limiter, (used, at_most) in needs.items()
        ),
    )


def waves(device: Device, launch: Launch, blocks_per_sm: int) -> Waves:
    """Waves of a launch's grid, with one block per SM or more."""
    blocks = math.prod(launch.grid)
    per_wave = blocks_per_sm * device.num_sms
    return Waves(
        kernel=launch.kernel,
        blocks=blocks,
        blocks_per_wave=per_wave,
        waves=blocks / per_wave,
        lost_share=1 - blocks / (per_wave * math.ceil(blocks / per_wave)),
    )
