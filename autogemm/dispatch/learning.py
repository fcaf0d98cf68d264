"""Learns which kernel to take at which size, and measures what a rule loses on sizes it never saw.

A tree for classes would count a wrong kernel as wrong, whether it costs 1 % or 300 %. What counts
here is time: splits are chosen by the logarithm of the time lost, summed over sizes (CART, Breiman
et al. 1984, with that as impurity).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from autogemm.dispatch.table import FEWEST_SIZES, Losses, Table
from autogemm.model.config import Config
from autogemm.model.rule import (
    FEATURES,
    Leaf,
    Modelled,
    Nearest,
    Rule,
    Split,
    TimeModel,
    Tree,
    feature_value,
)

MAX_DEPTH = 4
MIN_LEAF = 2
# A split must save as much, in log time summed over its sizes: less is noise.
LEAST_GAIN = 0.02

Rows = Sequence[int]
Integers = npt.NDArray[np.int64]
# A rule from a table, the sizes to learn from, and the kernels that it may choose.
Learner = Callable[[Table, Rows, Rows], Rule | None]


@dataclass(frozen=True, slots=True)
class Regret:
    """Losses of a rule against the best kernel known at each size, as shares of its time.

    ``losses`` are of each size in the table's order, each by a rule that was learned without that
    size and without a kernel that only it brought.
    """

    losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Geometric mean of the times' ratios, less 1."""
        return math.expm1(float(np.mean(np.log1p(self.losses))))

    @property
    def median(self) -> float:
        """Half of the sizes lose no more."""
        return float(np.median(self.losses))

    @property
    def worst(self) -> float:
        """The largest loss."""
        return max(self.losses)


@dataclass(frozen=True, slots=True)
class Learned:
    """The rule that loses least on sizes it was not learned from, and what the others lose.

    ``regrets`` by kind of rule, ``kind`` that of the rule; empty where too little was measured to
    tell.
    """

    rule: Rule
    regrets: dict[str, Regret]
    kind: str = ""

    @property
    def regret(self) -> Regret | None:
        """The losses of the rule chosen."""
        return self.regrets.get(self.kind)


def learn(table: Table, num_sms: int) -> Learned:
    """The best of a decision tree, the nearest tuned size, and predicted times on so many SMs.

    Where not every kernel was measured at every size, no loss can be told and it is the nearest.
    """
    everything = tuple(range(len(table.sizes)))
    kernels = tuple(sorted(set(table.winners)))
    if not table.is_complete or len(table.sizes) < FEWEST_SIZES:
        return Learned(_nearest(table, everything, kernels), {})

    def modelled(table: Table, rows: Rows, kernels: Rows) -> Rule | None:
        return time_models(table, rows, kernels, num_sms)

    learners = {"predicted times": modelled, "nearest size": _nearest, "tree": _tree}
    rules: dict[str, Rule] = {}
    regrets: dict[str, Regret] = {}
    for name, learner in learners.items():
        rule = learner(table, everything, kernels)
        if rule is not None:
            rules[name], regrets[name] = rule, _left_out(table, learner)
    best = min(regrets, key=lambda name: regrets[name].mean)
    return Learned(rules[best], regrets, best)


def _left_out(table: Table, learner: Learner) -> Regret:
    """Leave one size out, learn from the others, look up the time of what is chosen there."""
    losses = []
    for left_out in range(len(table.sizes)):
        rows = [row for row in range(len(table.sizes)) if row != left_out]
        kernels = sorted({table.winners[row] for row in rows})
        rule = learner(table, rows, kernels)
        ranked = rule.ranked(table.sizes[left_out].size) if rule is not None else ()
        # As the caller does: what is not legal gives way to the next, at last to the best for all.
        order = (*ranked, *by_merit(table, rows, kernels), table.winners[left_out])
        fits = (kernel for kernel in order if table.losses[left_out, kernel] < math.inf)
        losses.append(float(table.losses[left_out, next(fits)]))
    return Regret(tuple(losses))


def by_merit(table: Table, rows: Rows, kernels: Rows) -> list[int]:
    """The kernels, the one that loses least over the sizes first."""
    costs = np.log1p(table.losses[np.ix_(rows, kernels)]).mean(axis=0)
    return [kernels[place] for place in np.argsort(costs, kind="stable")]


def _nearest(table: Table, rows: Rows, kernels: Rows) -> Nearest:
    return Nearest(
        tuple(table.sizes[row].size for row in rows), tuple(table.winners[row] for row in rows)
    )


def _tree(table: Table, rows: Rows, kernels: Rows) -> Tree:
    columns = {
        feature: np.array([feature_value(feature, size.size) for size in table.sizes])
        for feature in FEATURES
    }
    costs = np.log1p(table.losses)
    return Tree(_grown(costs, columns, np.array(rows), list(kernels), MAX_DEPTH))


def _grown(
    costs: Losses, columns: dict[str, Integers], rows: Integers, kernels: list[int], depth: int
) -> Split | Leaf:
    """The subtree for these sizes."""
    leaf, cost = _leaf(costs, rows, kernels)
    best: tuple[float, str, int, tuple[Integers, Integers]] | None = None
    if depth:
        for feature, values in columns.items():
            for threshold in _thresholds(values[rows]):
                is_below = values[rows] <= threshold
                parts = rows[is_below], rows[~is_below]
                if min(map(len, parts)) < MIN_LEAF:
                    continue
                total = sum(_leaf(costs, part, kernels)[1] for part in parts)
                if total < cost - LEAST_GAIN and (best is None or total < best[0] - 1e-9):
                    best = (total, feature, threshold, parts)
    if best is None:
        return leaf
    _, feature, threshold, parts = best
    below, above = (_grown(costs, columns, part, kernels, depth - 1) for part in parts)
    if below == above:
        return below
    return Split(feature, threshold, below, above)


def _leaf(costs: Losses, rows: Integers, kernels: list[int]) -> tuple[Leaf, float]:
    """The kernel that loses least over the sizes, and how much."""
    totals = costs[np.ix_(rows.tolist(), kernels)].sum(axis=0)
    place = int(totals.argmin())
    return Leaf(kernels[place]), float(totals[place])


def _thresholds(values: Integers) -> list[int]:
    """Between each two neighbouring values: the roundest number, so that a person can read it."""
    distinct = np.unique(values)
    return [_round(int(low), int(high)) for low, high in itertools.pairwise(distinct)]


def _round(low: int, high: int) -> int:
    """The number from ``low`` to below ``high`` near their geometric mean, of the fewest digits."""
    middle = math.sqrt(low * high)
    for digits in range(1, 20):
        step = 10 ** max(0, len(str(int(middle))) - digits)
        number = int(round(middle / step) * step)
        if low <= number < high:
            return number
    return low


# Blocks of one SM that run at a time: what a kernel's registers allow is not known here, but fits.
RESIDENT = (1, 2, 3, 4)
# Times that a kernel needs before three coefficients mean anything.
FEWEST_TIMES = 6


def time_models(
    table: Table, rows: Sequence[int], kernels: Sequence[int], num_sms: int
) -> Modelled | None:
    """A model for each kernel, from these rows; None where one has no tile or too few times."""
    models = []
    for kernel in kernels:
        times = {row: table.time_us(row, kernel) for row in rows}
        known = [row for row, time_us in times.items() if math.isfinite(time_us)]
        shapes = _shapes(table.kernels[kernel], num_sms)
        if not shapes or len(known) < FEWEST_TIMES:
            return None
        sizes = [table.sizes[row].size for row in known]
        measured = np.array([times[row] for row in known])
        fits = (_fitted(shape, sizes, measured) for shape in shapes)
        models.append(min(fits, key=lambda model: model.error))
    return Modelled(tuple(models), tuple(kernels))


def _shapes(config: Config, num_sms: int) -> list[TimeModel]:
    """Models without coefficients, for each number of blocks that may run at a time."""
    values = config.as_dict()
    tile = [values.get(name) for name in ("BM", "BN", "BK")]
    if not all(isinstance(extent, int) for extent in tile):
        return []
    bm, bn, bk = (int(extent) for extent in tile if extent is not None)
    parts, shared = int(values.get("SPLIT_K", 1)), int(values.get("STREAM_BLOCKS", 0))
    return [
        TimeModel(bm, bn, bk, parts, num_sms * resident, shared > 0, 0.0, 0.0, 0.0, math.inf)
        for resident in RESIDENT
    ]


def _fitted(shape: TimeModel, sizes: Sequence[tuple[int, int, int]], measured: Losses) -> TimeModel:
    """Least squares of relative errors, no coefficient below 0.

    With three of them all seven subsets are solved, and the best without a negative one taken.
    """
    terms = [shape.terms(size) for size in sizes]
    columns = np.array([[1.0, depth, depth * waves] for depth, waves in terms])
    relative = columns / measured[:, np.newaxis]
    best, least = np.zeros(3), math.inf
    for count in (1, 2, 3):
        for subset in itertools.combinations(range(3), count):
            found, *_ = np.linalg.lstsq(relative[:, subset], np.ones(len(measured)), rcond=None)
            if (found < 0).any():
                continue
            full = np.zeros(3)
            full[list(subset)] = found
            error = float(np.sqrt(np.mean((relative @ full - 1.0) ** 2)))
            if error < least:
                best, least = full, error
    # As they are written out, so that what is written chooses as what was learned.
    launch_us, depth_us, work_us = (float(f"{value:.5g}") for value in best)
    return replace(shape, launch_us=launch_us, depth_us=depth_us, work_us=work_us, error=least)
