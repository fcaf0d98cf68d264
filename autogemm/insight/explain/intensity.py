"""Arithmetic intensity per level of the memory hierarchy, against the GPU's ridge.

Intensity is FLOP per byte moved at a level; the ridge is the FLOP per byte at which the GPU
computes as fast as that level delivers (the roofline model: Williams, Waterman and Patterson,
CACM 2009).
"""

from dataclasses import dataclass

from autogemm.catalogue.gpus import roof_of
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem

# Every SM since Volta: 32 banks of 4 bytes.
SMEM_BYTES_PER_CLOCK = 128


@dataclass(frozen=True, slots=True)
class IntensityLevel:
    """One level: how many FLOP a byte serves. Below a ``times_ridge`` of 1 the level limits.

    ``rows`` and ``columns`` are those of the tile that a byte is used for.
    """

    level: str
    rows: int
    columns: int
    flop_per_byte: float
    ridge_flop_per_byte: float
    times_ridge: float


@dataclass(frozen=True, slots=True)
class Intensity:
    """The levels that the family has tiles for, and the registers of a thread's tile.

    ``accumulators`` and ``fragments`` are registers per thread, ``fma_per_fragment_float`` how many
    multiply-adds each float serves that is loaded from shared memory into a register. None
    where the family has no TM and TN.
    """

    levels: tuple[IntensityLevel, ...]
    accumulators: int | None
    fragments: int | None
    fma_per_fragment_float: float | None


def intensity(config: Config, problem: Problem, device: Device) -> Intensity:
    """Return the levels of a config, from those of BM BN, WM WN, TM TN, REG_STAGES it has."""
    # Where nothing is known of the GPU's tensor cores: against its FP32 cores.
    roof = roof_of(device, problem.dtype, config)
    times_fp32 = roof.peak_tflops / device.peak_f32_tflops if roof is not None else 1.0
    dram_ridge = times_fp32 * device.peak_f32_tflops * 1e3 / device.peak_bandwidth_gb_s
    # Per SM and clock, so that neither counts.
    smem_ridge = times_fp32 * 2 * device.fp32_cores_per_sm / SMEM_BYTES_PER_CLOCK
    old_c = problem.dtype.c.size_bytes * problem.m * problem.n if problem.reads_c else 0
    once = problem.flops / (problem.moved_bytes + old_c)
    levels = [_level("DRAM, each matrix once", (problem.m, problem.n), once, dram_ridge)]
    named = (
        ("global loads, block tile", "BM", "BN", dram_ridge),
        ("shared loads, warp tile", "WM", "WN", smem_ridge),
        ("shared loads, thread tile", "TM", "TN", smem_ridge),
    )
    for level, rows_name, columns_name, ridge in named:
        tile = pair_of(config, rows_name, columns_name)
        if tile is not None:
            levels.append(_level(level, tile, flop_per_byte(tile, problem.dtype.size_bytes), ridge))
    thread = pair_of(config, "TM", "TN")
    stages = config.as_dict().get("REG_STAGES", 1)
    copies = stages if isinstance(stages, int) else 1
    return Intensity(
        levels=tuple(levels),
        accumulators=thread[0] * thread[1] if thread else None,
        fragments=copies * sum(thread) if thread else None,
        fma_per_fragment_float=thread[0] * thread[1] / sum(thread) if thread else None,
    )


def flop_per_byte(tile: tuple[int, int], size_bytes: int) -> float:
    """A tile of R x C reads R + C elements for each step of K, and does 2 R C operations."""
    rows, columns = tile
    return 2 * rows * columns / (size_bytes * (rows + columns))


def pair_of(config: Config, rows_name: str, columns_name: str) -> tuple[int, int] | None:
    """Two parameters as a tile; None if the family lacks one of them."""
    values = config.as_dict()
    rows, columns = values.get(rows_name), values.get(columns_name)
    if isinstance(rows, int) and isinstance(columns, int):
        return rows, columns
    return None


def _level(name: str, tile: tuple[int, int], flop_per_byte: float, ridge: float) -> IntensityLevel:
    return IntensityLevel(name, *tile, flop_per_byte, ridge, flop_per_byte / ridge)
