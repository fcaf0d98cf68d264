"""The legal configs of one family, problem and device, as NumPy columns."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import combinations
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.similarity import distance
from autogemm.space.expressions.evaluation import Column, Operand
from autogemm.space.family import (
    EXPECTED_TIME,
    Constraint,
    Family,
    Parameter,
    device_values,
    problem_values,
)

Keys = npt.NDArray[np.int64]

# Configs looked at to see which features vary at all.
FEATURE_SAMPLE = 20_000
FEATURE_BLOCK = 2**13
# Up to so many doublings between two sizes, what was good at one is tried first at the other.
NEAR = 1.0
# A seed that is expected to take so many times the least that is expected of one is not tried.
HOPELESS = 1.5


class Radix:
    """Configs as integers: one mixed-radix digit per parameter, the first counting most.

    So the order of the integers is the order of the configs, parameter by parameter.
    """

    def __init__(self, parameters: tuple[Parameter, ...]) -> None:
        self.parameters = parameters
        self.sizes = tuple(len(parameter.values) for parameter in parameters)
        self.strides = tuple(
            math.prod(self.sizes[position + 1 :]) for position in range(len(self.sizes))
        )
        kinds = (np.int64 if isinstance(one.values[0], int) else None for one in parameters)
        self.columns = tuple(
            np.array(one.values, dtype=kind) for one, kind in zip(parameters, kinds, strict=True)
        )
        # The digits of all parameters behind each other, and what parameter each belongs to.
        self._every = np.concatenate([np.arange(size, dtype=np.int64) for size in self.sizes])
        self._of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self._ends = np.cumsum(self.sizes)[:-1]

    @property
    def count(self) -> int:
        """The number of integers: of raw configs."""
        return math.prod(self.sizes)

    def digits(self, keys: Keys, position: int) -> Keys:
        """Index into the values of the parameter at ``position``, for every key."""
        quotients = keys // self.strides[position]
        # The same as %; NumPy divides by a constant far faster than it takes remainders.
        return quotients - quotients // self.sizes[position] * self.sizes[position]

    def moves(self, key: int) -> tuple[Keys, npt.NDArray[np.int64]]:
        """What is added to an integer to give one parameter each of its values, 0 for its own.

        All of one parameter lie together; second are the positions at which the next one begins.
        """
        strides = np.array(self.strides, dtype=np.int64)
        own = key // strides % np.array(self.sizes, dtype=np.int64)
        return (self._every - own[self._of]) * strides[self._of], self._ends

    def steps(self, full: Parameter, position: int, config: Config) -> npt.NDArray[np.int32]:
        """Distance of each value of the parameter at ``position`` from the config's, both within
        ``full``, which has the values of the family: steps between two numbers, 1 for two texts.
        """
        values, wanted = self.parameters[position].values, config[full.name]
        if not full.is_numeric:
            return np.array([value != wanted for value in values], dtype=np.int32)
        # A value that is not listed, from a config of another GPU, counts as the closest one.
        assert isinstance(wanted, int)
        rank = full.values.index(min(full.values, key=lambda value: abs(int(value) - wanted)))
        return np.array([abs(full.values.index(value) - rank) for value in values], dtype=np.int32)

    def values(self, keys: Keys, position: int) -> Column:
        """Values of the parameter at ``position``, for every key."""
        return self.columns[position][self.digits(keys, position)]


@dataclass(frozen=True, eq=False)
class Space:
    """The legal configs, in the order of their parameters' values: first parameter slowest.

    ``warm`` are configs that were good at something similar; they come before the family's seeds.
    ``removed`` has, for every constraint, how many raw configs it was the first to exclude; its sum
    and the legal configs make ``raw_count``. ``keys`` are the legal configs as `radix` numbers,
    ascending. Made by :func:`autogemm.space.build_space`.
    """

    family: Family
    problem: Problem
    device: Device
    fix: Mapping[str, tuple[Value, ...]]
    removed: tuple[tuple[Constraint, int], ...]
    radix: Radix = field(repr=False)
    keys: Keys = field(repr=False)
    warm: tuple[Config, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The family's parameters with the values that ``fix`` leaves."""
        return self.radix.parameters

    @property
    def raw_count(self) -> int:
        """All combinations of the parameters' values, legal or not."""
        return self.radix.count

    @cached_property
    def codes(self) -> npt.NDArray[np.uint8 | np.uint16]:
        """Indices into the parameters' values, of shape [legal configs, parameters]."""
        dtype = np.uint8 if max(self.radix.sizes) <= 256 else np.uint16
        # Columns lie together: they are written and read one by one.
        codes = np.empty((len(self), len(self.parameters)), dtype=dtype, order="F")
        for position in range(len(self.parameters)):
            codes[:, position] = self.radix.digits(self.keys, position)
        return codes

    def config(self, index: int) -> Config:
        """The legal config at that index. Raises IndexError beyond the last."""
        key = int(self.keys[index])
        radix = self.radix
        values = {
            parameter.name: parameter.values[key // stride % size]
            for parameter, stride, size in zip(
                radix.parameters, radix.strides, radix.sizes, strict=True
            )
        }
        return Config.of(self.family.name, values)

    def index(self, config: Config) -> int | None:
        """The index of a config, None if it is not legal here or none of this family."""
        values = config.as_dict()
        if config.family != self.family.name or len(values) != len(self.parameters):
            return None
        key = 0
        for parameter, stride in zip(self.parameters, self.radix.strides, strict=True):
            if values.get(parameter.name) not in parameter.values:
                return None
            key += parameter.values.index(values[parameter.name]) * stride
        found = int(np.searchsorted(self.keys, key))
        return found if found < len(self) and self.keys[found] == key else None

    def neighbours(self, index: int, moves: int = 1) -> list[int]:
        """Indices of the legal configs that differ from this one in exactly ``moves`` parameters.

        In the order of `itertools.combinations` of parameters and of their values.
        """
        key = int(self.keys[index])
        steps, ends = self.radix.moves(key)
        if moves > 1:
            of_each = [part[part != 0] for part in np.split(steps, ends)]
            steps = np.concatenate(
                [reduce(np.add.outer, moved).ravel() for moved in combinations(of_each, moves)]
            )
        wanted = key + steps[steps != 0]
        found = np.minimum(np.searchsorted(self.keys, wanted), len(self) - 1)
        legal: list[int] = found[self.keys[found] == wanted].tolist()
        return legal

    def nearest(self, config: Config) -> int:
        """The index of the legal config closest to this one; the lowest if several are.

        The distance is the sum over the parameters of the steps between the two values in the
        family's list, or 1 for two different texts. A number that is not listed, because it follows
        from another GPU, counts as the closest one that is.
        """
        found = self.index(config)
        if found is not None:
            return found
        steps = [
            self.radix.steps(full, position, config)
            for position, full in enumerate(self.family.parameters)
        ]
        # Keys of equal first digits lie together: a tree, descended nearest digits first.
        best = (sum(int(step.max()) for step in steps) + 1, 0)

        def descend(position: int, low: int, high: int, distance: int) -> None:
            nonlocal best
            if position == len(steps):
                best = (distance, low)
                return
            stride, step = self.radix.strides[position], steps[position]
            digits = self.radix.digits(self.keys[low : low + 1], position)
            first = self.keys[low] // stride * stride - digits[0] * stride
            bounds = first + stride * np.arange(len(step) + 1)
            edges = low + np.searchsorted(self.keys[low:high], bounds)
            for digit in np.argsort(step, kind="stable"):
                reached = distance + int(step[digit])
                if edges[digit] < edges[digit + 1] and (reached, edges[digit]) < best:
                    descend(position + 1, edges[digit], edges[digit + 1], reached)

        descend(0, 0, len(self), 0)
        return int(best[1])

    @cached_property
    def seeds(self) -> list[int]:
        """Indices of ``warm``, then the family's seeds, each moved to the nearest legal config.

        A search of seconds tries few of them: those come first that were good at sizes like the
        problem's, nearest first. The others follow in this order too, or in that of the times that
        the family expects here, as far as these are not hopeless beside the least.
        """
        family = self.family
        sizes = (*family.seed_sizes, *((),) * (len(family.seeds) - len(family.seed_sizes)))
        by_distance = sorted(
            zip(map(self._doublings, sizes), family.seeds, strict=True), key=itemgetter(0)
        )
        near = [seed for steps, seed in by_distance if steps <= NEAR]
        far = [seed for steps, seed in by_distance if steps > NEAR]
        first = [self.nearest(seed) for seed in (*self.warm, *near)]
        others = [self.nearest(seed) for seed in far]
        return list(dict.fromkeys([*first, *self._not_hopeless(first, others)]))

    def _not_hopeless(self, first: Sequence[int], others: Sequence[int]) -> list[int]:
        """The others by the times that the family expects of them; all of them if it does not."""
        names, columns = self.features([*first, *others])
        if EXPECTED_TIME not in names or not others:
            return list(others)
        expected = columns[:, names.index(EXPECTED_TIME)]
        worst = expected.min() + math.log2(HOPELESS)
        of_others = expected[len(first) :]
        order = np.argsort(of_others, kind="stable")
        return [others[i] for i in order if of_others[i] <= worst]

    def _doublings(self, sizes: Sequence[tuple[int, int, int, int]]) -> float:
        """The distance of the problem from the nearest of these sizes; infinite without any."""
        mine = self.problem
        others = (
            Problem(m, n, k, layout=mine.layout, dtype=mine.dtype, batch=Batch(products))
            for m, n, k, products in sizes
        )
        return min(
            (distance(mine, self.device, one, self.device) for one in others), default=math.inf
        )

    def features(
        self, rows: npt.NDArray[np.intp] | Sequence[int] | None = None
    ) -> tuple[list[str], npt.NDArray[np.float64]]:
        """Names and columns, of shape [rows, features], for models of run time.

        ``rows`` are indices of legal configs, None for all. Numeric parameters and derived
        quantities as log2 (anything below 1/2 counts as 1/2), texts as one column for each value.
        The columns do not depend on ``rows``: left out are those that are constant over 20,000
        configs spread evenly over the space.
        """
        varied = self._varied_features
        keys = self.keys if rows is None else self.keys[np.asarray(rows, dtype=np.intp)]
        matrix = np.empty((len(keys), len(varied)))
        # In blocks: writing a column of a long matrix misses the cache at every row.
        for start in range(0, len(keys), FEATURE_BLOCK):
            block = matrix[start : start + FEATURE_BLOCK]
            for name, column in self._feature_columns(keys[start : start + FEATURE_BLOCK]):
                if name in varied:
                    block[:, varied.index(name)] = column
        return list(varied), matrix

    def columns(self, rows: npt.NDArray[np.intp]) -> dict[str, Operand]:
        """What the family's expressions read and derive of the configs at these indices, as
        `autogemm.space.derived_columns` gives it.
        """
        keys = self.keys[rows]
        given: dict[str, Operand] = {**problem_values(self.problem), **device_values(self.device)}
        for position, parameter in enumerate(self.parameters):
            given[parameter.name] = self.radix.values(keys, position)
        for name, expression in (*self.family.derive.items(), *self.family.expected.items()):
            given[name] = expression.evaluate(given)
        return given

    @cached_property
    def _varied_features(self) -> tuple[str, ...]:
        spread = np.unique(np.linspace(0, len(self) - 1, FEATURE_SAMPLE, dtype=np.intp))
        return tuple(
            name
            for name, column in self._feature_columns(self.keys[spread])
            if (column != column[0]).any()
        )

    def _feature_columns(self, keys: Keys) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
        given: dict[str, Operand] = dict(problem_values(self.problem))
        for position, parameter in enumerate(self.parameters):
            column = self.radix.values(keys, position)
            given[parameter.name] = column
            if parameter.is_numeric:
                yield parameter.name, _log2(column)
            else:
                for value in parameter.values:
                    yield f"{parameter.name}={value}", (column == value).astype(np.float64)
        for name, expression in self.family.derive.items():
            given[name] = derived = expression.evaluate(given)
            values = np.asarray(derived)
            if values.dtype.kind in "bi":
                # One number where a choice falls the same way for all of these rows.
                yield name, np.broadcast_to(_log2(values), keys.shape)
        if self.family.expected:
            given |= device_values(self.device)
            for name, expression in self.family.expected.items():
                given[name] = expression.evaluate(given)
            expected = np.asarray(given[EXPECTED_TIME])
            yield EXPECTED_TIME, np.broadcast_to(_log2(expected), keys.shape)


def _log2(column: Column) -> npt.NDArray[np.float64]:
    return np.asarray(np.log2(np.maximum(column, 0.5)))
