"""Shared-memory wavefronts and global sectors per source line, from a small run on the CPU."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from autogemm.emulator import AccessLine, Emulator
from autogemm.insight.explain.intensity import pair_of
from autogemm.insight.explain.times import Missing, or_missing
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Problem

# Calls of one line that agree in all of these are told as one.
_SAME_COST = attrgetter("line", "memory", "operation", "bytes_per_lane", "cost", "ideal")


@dataclass(frozen=True, slots=True)
class AccessCost:
    """The requests of one source line in one block.

    ``per_request`` counts wavefronts (``memory`` shared) or 32-byte sectors (global) for each
    request of a warp, ``ideal_per_request`` what as many different bytes need at least.
    ``called_from`` are the lines that call the function which the line is in.
    """

    line: int
    text: str
    called_from: tuple[int, ...]
    memory: str
    operation: str
    bytes_per_lane: int
    requests: int
    per_request: float
    ideal_per_request: float
    times_ideal: float


@dataclass(frozen=True, slots=True)
class Accesses:
    """Memory accesses of the first block of ``problem_label``.

    ``shared_wavefronts`` are cycles of the SM's shared memory, ``fma_clocks`` those that the
    block's multiply-adds need if nothing else limits; ``shared_share`` is their ratio, and near 1
    shared memory limits as much as arithmetic. The last two are None where the family has no BM
    and BN, where tensor cores read shared memory themselves, where blocks share tiles unevenly, and
    where nothing is known of the arithmetic's rate.
    """

    problem_label: str
    lines: tuple[AccessCost, ...]
    shared_wavefronts: int
    ideal_shared_wavefronts: int
    global_sectors: int
    ideal_global_sectors: int
    fma_clocks: float | None
    shared_share: float | None

    @property
    def shared_times_ideal(self) -> float:
        """The wavefronts relative to the least number for the same bytes."""
        return _times_ideal(self.shared_wavefronts, self.ideal_shared_wavefronts)

    @property
    def global_times_ideal(self) -> float:
        """The sectors relative to the least number for the same bytes."""
        return _times_ideal(self.global_sectors, self.ideal_global_sectors)


def _times_ideal(count: int, ideal: int) -> float:
    return count / ideal if ideal else 1.0


def accesses(
    emulator: Emulator | Missing,
    source: KernelSource,
    plan: LaunchPlan,
    problem: Problem,
    fma_per_clock: float | None,
) -> Accesses | Missing:
    """Analyse the first block of a small problem. ``plan`` is that problem's.

    ``fma_per_clock`` is how many multiply-adds an SM can do in the units that the kernel uses.
    """
    if isinstance(emulator, Missing):
        return emulator
    found = or_missing(lambda: emulator.analyse(source, plan, problem))
    if isinstance(found, Missing):
        return found
    lines = by_line(found, source.text)
    shared = [line for line in found if line.memory == "shared"]
    others = [line for line in found if line.memory != "shared"]
    wavefronts = round(sum(line.requests * line.cost for line in shared))
    # By wgmma tensor cores read shared memory themselves: no access of a thread shows it.
    rate = None if "wgmma.mma_async" in source.text else fma_per_clock
    clocks = _fma_clocks(source.config, plan, problem, rate)
    return Accesses(
        problem_label=problem.label,
        lines=lines,
        shared_wavefronts=wavefronts,
        ideal_shared_wavefronts=round(sum(line.requests * line.ideal for line in shared)),
        global_sectors=round(sum(line.requests * line.cost for line in others)),
        ideal_global_sectors=round(sum(line.requests * line.ideal for line in others)),
        fma_clocks=clocks,
        shared_share=wavefronts / clocks if clocks else None,
    )


def by_line(found: Iterable[AccessLine], text: str) -> tuple[AccessCost, ...]:
    """One row for each line and cost: calls from different places that cost the same are one.

    The text of a line that only one line calls names that caller too: a function that stores a
    vector says little, its argument all.
    """
    groups: dict[tuple[object, ...], list[AccessLine]] = {}
    for line in found:
        groups.setdefault(_SAME_COST(line), []).append(line)
    rows = text.splitlines()
    costs = []
    for lines in groups.values():
        first = lines[0]
        callers = tuple(sorted({line.called_from[0] for line in lines if line.called_from}))
        caller = f"  <- {rows[callers[0] - 1].strip()}" if len(callers) == 1 else ""
        costs.append(
            AccessCost(
                line=first.line,
                text=first.text + caller,
                called_from=callers,
                memory=first.memory,
                operation=first.operation,
                bytes_per_lane=first.bytes_per_lane,
                requests=sum(line.requests for line in lines),
                per_request=first.cost,
                ideal_per_request=first.ideal,
                times_ideal=first.cost / first.ideal,
            )
        )
    return tuple(costs)


def _fma_clocks(
    config: Config, plan: LaunchPlan, problem: Problem, fma_per_clock: float | None
) -> float | None:
    """Clocks of one SM for one block's multiply-adds. Ragged blocks compute a whole tile.

    None where blocks are no even parts of tiles: which part the first one has is not known then.
    """
    block = pair_of(config, "BM", "BN")
    if block is None or not fma_per_clock:
        return None
    num_tiles = math.prod(
        -(-extent // side) for extent, side in zip((problem.m, problem.n), block, strict=True)
    )
    num_blocks = math.prod(plan.main.grid)
    parts, rest = divmod(num_blocks, num_tiles)
    depth = config.as_dict().get("BK", 1)
    if rest or (isinstance(depth, int) and parts * depth > problem.k):
        return None
    return math.prod(block) * problem.k / parts / fma_per_clock
