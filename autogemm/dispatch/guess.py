"""Where nothing was tuned: the families' seeds, by a model of waves of blocks."""

import math
from collections.abc import Callable, Sequence
from itertools import chain

from autogemm.config import Config
from autogemm.device import Device
from autogemm.problem import Problem
from autogemm.space import Family, launch_plan

# Blocks of a tile this square reach full speed: below, operands are fetched faster than used up.
FULL_SPEED_TILE = 128


def guessed(
    families: Sequence[Family],
    problem: Problem,
    device: Device,
    snap: Callable[[Config, Problem], Config | None],
) -> list[Config]:
    """All seeds that have a legal form here, the most promising first."""
    by_family = {family.name: family for family in families}
    legal = (snap(seed, problem) for seed in chain.from_iterable(f.seeds for f in families))
    distinct = dict.fromkeys(config for config in legal if config is not None)
    return sorted(
        distinct, key=lambda config: waves_cost(by_family[config.family], config, problem, device)
    )


def waves_cost(family: Family, config: Config, problem: Problem, device: Device) -> float:
    """Multiply-adds that the busiest SM makes one after the other, in any unit.

    Blocks come in waves, as many at a time as threads and shared memory of an SM allow; a block
    multiplies its tile over its part of K, slowed down by what a small tile must fetch for it.
    """
    values = config.as_dict()
    rows, columns = (_number(values.get(name), FULL_SPEED_TILE) for name in ("BM", "BN"))
    plan = launch_plan(family, config, problem)
    launch = plan.main
    blocks = math.prod(launch.grid)
    smem_bytes = launch.smem_bytes + device.reserved_smem_per_block_bytes
    resident = max(
        1,
        min(
            device.max_threads_per_sm // launch.num_threads,
            device.smem_per_sm_bytes // max(1, smem_bytes),
        ),
    )
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns)
    # A part of K is one slab deep at least.
    depth = max(_number(values.get("BK"), 1), problem.k * tiles / blocks)
    block_work = rows * columns * depth
    intensity = 2 / (1 / rows + 1 / columns)
    speed = min(1.0, math.sqrt(intensity / FULL_SPEED_TILE))
    # A few blocks on an SM share it; alone, one leaves it half idle.
    per_wave = device.num_sms * resident
    full_waves, rest = divmod(blocks, per_wave)
    last = math.ceil(rest / device.num_sms)
    return (full_waves * resident + (max(last, 0.5 * resident) if rest else 0)) * block_work / speed


def _number(value: int | str | None, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
