"""Choose the config for a problem: its own result, the rule's choice, or the best guess."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from autogemm.catalogue.learned import learned_times
from autogemm.dispatch.learning import Learned, learn
from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.predicting import Predictor
from autogemm.dispatch.table import (
    FEWEST_COMMON,
    TunedSize,
    common_kernels,
    ruling,
    table_of,
    tuned_sizes,
)
from autogemm.model.batch import ONE
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.rule import Nearest
from autogemm.model.similarity import distance
from autogemm.space import Family, launch_plan
from autogemm.store import DecidedRow
from autogemm.support.errors import EmptySpaceError

VECTOR_BYTES = 16
# With fewer results of a layout those of the others tell more.
FEW_SIZES = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A legal config of a family, and the reason for it in a few words."""

    family: Family
    config: Config
    why: str


class Chooser:
    """Chooses for one GPU, from what the database had when this was made."""

    def __init__(
        self, runs: Sequence[DecidedRow], families: Sequence[Family], device: Device
    ) -> None:
        self._runs = runs
        self._families = families
        self._device = device
        self._nearest_legal = NearestLegal(families, device)
        self._sizes = tuned_sizes(runs, device)
        self._rule = functools.cache(self._learned)
        self._predictor = Predictor(self._sizes, self._nearest_legal, learned_times(device.arch))
        self._choices: dict[Problem, Choice] = {}

    def is_tuned(self, problem: Problem) -> bool:
        """Whether the database has a result of this very problem on this GPU, whatever its alpha
        and beta.
        """
        own = self._own(problem)
        return own is not None and not own.origin

    def choose(self, problem: Problem) -> Choice:
        """Return the first legal candidate, the same one for a problem each time.

        Raises EmptySpaceError where there is none.
        """
        known = self._choices.get(problem)
        if known is None:
            known = self._choices[problem] = self._chosen(problem)
        return known

    def _chosen(self, problem: Problem) -> Choice:
        own = self._own(problem)
        if own is not None and self._nearest_legal.is_legal(own.winner, problem):
            why = own.origin or f"tuned in run {own.run_id}"
            return Choice(self._nearest_legal.family(own.winner), own.winner, why)
        for config, why in self._candidates(problem):
            legal = self._nearest_legal(config, problem)
            if legal is not None:
                return Choice(self._nearest_legal.family(legal), legal, why)
        raise EmptySpaceError(
            f"no kernel for {problem.label} on {self._device.name}: no result and no seed is legal"
        )

    def _candidates(self, problem: Problem) -> Iterator[tuple[Config, str]]:
        # Rules are learned from sizes of one product.
        is_one = problem.batch.is_one and problem.groups.is_none
        # What was learned from trials loses less than rules do (docs/dispatch.md).
        is_first = is_one and self._predictor.has_learned(problem)
        if is_first:
            yield from self._predicted(problem)
        found = self._rule(problem.dtype, problem.layout) if is_one else None
        if found is not None:
            learned, kernels = found
            # A rule that left-out sizes have judged goes first; another is a guess, and a worse one
            # than predicted times.
            if learned.regret is None and not is_first:
                yield from self._predicted(problem)
            for chosen in learned.rule.ranked((problem.m, problem.n, problem.k)):
                yield kernels[chosen], str(learned.rule)
        for size, device in self._by_distance(problem):
            where = "" if device.name == self._device.name else f" on {device.name}"
            where += f" of {size.origin}" if size.origin else ""
            yield size.winner, f"nearest tuned size {size.problem.label}{where}"
        for config in guessed(self._families, problem, self._device, self._nearest_legal):
            yield config, "nothing tuned: a seed of the family"

    def _predicted(self, problem: Problem) -> Iterator[tuple[Config, str]]:
        predicted = self._predictor(problem)
        for config in predicted:
            yield config, f"least of {len(predicted)} expected times"

    def _own(self, problem: Problem) -> TunedSize | None:
        sizes = self._sizes
        epilogue, batch, grouped = problem.epilogue, problem.batch, not problem.groups.is_none
        if grouped or not (epilogue.is_plain and batch.is_one):
            sizes = tuned_sizes(
                self._runs, self._device, epilogue=epilogue, batch=batch, grouped=grouped
            )
        found = (size for size in sizes if same_kernel(size.problem, problem))
        return max(found, key=lambda size: size.standing, default=None)

    def _learned(self, dtype: DType, layout: Layout) -> tuple[Learned, tuple[Config, ...]] | None:
        """Return the rule for a layout and its kernels by number, from all layouts if it has few
        results.
        """
        sizes = tuned_sizes(self._runs, self._device, dtype, layout)
        if len(sizes) < FEW_SIZES:
            sizes = tuned_sizes(self._runs, self._device, dtype)
        sizes = ruling(sizes, self._nearest_legal)
        if not sizes:
            return None
        winners = tuple(dict.fromkeys(size.winner for size in sizes))
        kernels = common_kernels(sizes, self._nearest_legal)
        if len(kernels) < min(FEWEST_COMMON, len(winners)):
            # A table with gaps would teach nothing but this, and takes seconds to make.
            of_size = tuple(winners.index(size.winner) for size in sizes)
            return Learned(Nearest(tuple(size.size for size in sizes), of_size), {}), winners
        table = table_of(sizes, kernels, self._nearest_legal)
        return learn(table, self._device.num_sms), kernels

    def _by_distance(self, problem: Problem) -> list[tuple[TunedSize, Device]]:
        devices = {run.spec.device.name: run.spec.device for run in self._runs}
        known = [
            (size, device)
            for device in devices.values()
            for batch in dict.fromkeys((problem.batch, ONE))
            for grouped in dict.fromkeys((not problem.groups.is_none, False))
            for size in tuned_sizes(self._runs, device, problem.dtype, batch=batch, grouped=grouped)
        ]

        def order(pair: tuple[TunedSize, Device]) -> tuple[float, int]:
            size, device = pair
            return distance(problem, self._device, size.problem, device), -size.standing

        return sorted(known, key=order)


def same_kernel(one: Problem, other: Problem) -> bool:
    """Whether a kernel for one is a kernel for the other, and no slower."""
    vector = VECTOR_BYTES // one.dtype.size_bytes
    sizes = (
        (each.m, each.n, each.k, each.layout, each.dtype, each.groups) for each in (one, other)
    )
    return len(set(sizes)) == 1 and all(
        getattr(one, name) % vector == getattr(other, name) % vector
        for name in ("lda", "ldb", "ldc")
    )


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
    nearest_legal: NearestLegal,
) -> list[Config]:
    """Return all seeds that have a legal form here, the most promising first."""
    by_family = {family.name: family for family in families}
    legal = (
        nearest_legal(seed, problem) for seed in chain.from_iterable(f.seeds for f in families)
    )
    distinct = dict.fromkeys(config for config in legal if config is not None)
    return sorted(
        distinct, key=lambda config: waves_cost(by_family[config.family], config, problem, device)
    )


def waves_cost(family: Family, config: Config, problem: Problem, device: Device) -> float:
    """Return the multiply-adds that the busiest SM makes one after the other, in any unit.

    Blocks come in waves, one on each SM at a time; a block multiplies its tile over its part of K,
    and the fewer the warps that share a k_tile's depth, the longer it waits at each step.
    """
    values = config.as_dict()
    rows, columns, k_tile = (_number(values.get(name), 1) for name in ("BM", "BN", "BK"))
    plan = launch_plan(family, config, problem)
    # The launch that multiplies; what prepares for it comes before.
    blocks = math.prod(plan.launches[-1].grid)
    waves = math.ceil(blocks / device.num_sms)
    tiles = math.ceil(problem.m / rows) * math.ceil(problem.n / columns)
    # A part of K is one k_tile deep at least.
    depth = max(k_tile, problem.k * tiles / blocks)
    step = waves * rows * columns * (1.0 + FETCHED_TILE * (1 / rows + 1 / columns) / 2)
    latency = STEP_LATENCY / _number(values.get("SLICE_K"), 1)
    return depth * (latency + step) + (PARTS_COST if plan.workspace_bytes else 0.0)


def _number(value: int | str | None, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise
