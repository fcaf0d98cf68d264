"""Where nothing was tuned: the families' seeds, by a model of waves of blocks."""

import math
from collections.abc import Callable, Sequence
from itertools import chain

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import Family, launch_plan

# In multiply-adds of one SM: what a step in k takes at least, what adding up parts takes, and the
# tile whose fetching counts as much as its multiplying. Fitted to twelve kernels at 43 sizes on an
# H100 (docs/dispatch.md), of which the guess then loses 13 % in the mean.
STEP_LATENCY = 1000.0
PARTS_COST = 800_000.0
FETCHED_TILE = 4.0


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

    Blocks come in waves, one on each SM at a time; a block multiplies its tile over its part of K,
    and the fewer the warps that share a slab's depth, the longer it waits at each step.
    """
    values = config.as_dict()
    rows, columns, slab = (_number(values.get(name), 1) for name in ("BM", "BN", "BK"))
    plan = launch_plan(family, config, problem)
    # The launch that multiplies; what prepares for it comes before.
    blocks = math.prod(plan.launches[-1].grid)
    waves = math.ceil(blocks / device.num_sms)
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns)
    # A part of K is one slab deep at least.
    depth = max(slab, problem.k * tiles / blocks)
    step = waves * rows * columns * (1.0 + FETCHED_TILE * (1 / rows + 1 / columns) / 2)
    latency = STEP_LATENCY / _number(values.get("SLICE_K"), 1)
    return depth * (latency + step) + (PARTS_COST if plan.workspace_bytes else 0.0)


def _number(value: int | str | None, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
