"""The protocol of a space that can be searched, and small questions about it."""

import math
from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autogemm.model.config import Config

if TYPE_CHECKING:
    from autogemm.space import Parameter

Codes = NDArray[Any]
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

# The features by which a space says which times it expects, and how many products an accumulator
# adds up one after the other.
EXPECTED_TIME = "expected_time"
CHAIN = "chain"
# Rows of features that are kept for a large space: some 30 MB.
MOST_REMEMBERED = 40_000


class EnumeratedSpace(Protocol):
    """Legal configs as a list. A family's space is one; recorded spaces fit as well."""

    @property
    def parameters(self) -> "Sequence[Parameter]":
        """The parameters, in the order of the columns of ``codes``."""

    @property
    def codes(self) -> Codes:
        """Shape [legal, parameters]: position of each value among its parameter's values."""

    @property
    def seeds(self) -> Sequence[int]:
        """Indices of configs known to be good; tried first, in this order."""

    def __len__(self) -> int:
        """Number of legal configs."""

    def config(self, index: int, /) -> Config:
        """The config at an index from 0 to ``len - 1``."""

    def index(self, config: Config, /) -> int | None:
        """The index of a config, None if it is not legal here."""

    def features(self, rows: Indices | None = None, /) -> tuple[list[str], Floats]:
        """Names and columns, of shape [rows, features], on which times vary smoothly.

        ``rows`` are indices of legal configs, None for all. A column named `EXPECTED_TIME` is log2
        of what the times are thought to be proportional to before any is measured, `CHAIN` log2 of
        the products that are added up one after the other.
        """


@runtime_checkable
class KnowsNeighbours(Protocol):
    """A space that finds neighbours faster than by asking for each combination of values."""

    def neighbours(self, index: int, moves: int = 1, /) -> list[int]:
        """As the function `neighbours`, in the same order."""


def neighbours(space: EnumeratedSpace, index: int, moves: int = 1) -> list[int]:
    """Indices of the legal configs that differ from this one in exactly ``moves`` parameters."""
    if isinstance(space, KnowsNeighbours):
        return space.neighbours(index, moves)
    here = space.config(index)
    found = []
    for moved in combinations(space.parameters, moves):
        names = [parameter.name for parameter in moved]
        others = [[v for v in parameter.values if v != here[parameter.name]] for parameter in moved]
        for values in product(*others):
            there = here.as_dict() | dict(zip(names, values, strict=True))
            if (legal := space.index(Config.of(here.family, there))) is not None:
                found.append(legal)
    return found


class UnitFeatures:
    """Rows of a space's features, each column at mean 0 and spread 1 and none of them constant.

    A large space takes the columns' means and spreads from a sample, computes rows when they are
    asked for, and remembers them where they are few: a search comes back to what is near its best.

    ``directions``, of shape [columns, directions], are the columns themselves and, of each two
    numeric parameters, the sum and the difference of the columns: a product and a ratio, where
    columns are logarithms. These too have spread 1, and none is constant.

    Columns times ``expectation`` are the natural log of the expected times, up to a constant; 0
    where the space expects nothing. That column is no direction.
    """

    def __init__(self, space: EnumeratedSpace, most_kept: int) -> None:
        self._space = space
        rows = np.unique(np.linspace(0, len(space) - 1, most_kept, dtype=np.int64))
        names, columns = space.features(rows)
        spread = columns.std(axis=0)
        self._varying = spread > 1e-9
        self._mean, self._spread = columns.mean(axis=0)[self._varying], spread[self._varying]
        scaled = self._scaled(columns)
        self._kept = scaled if len(rows) == len(space) else None
        self._remembered: dict[int, Floats] = {}
        numeric = {parameter.name for parameter in space.parameters}
        varying = np.array(names)[self._varying]
        is_expected = varying == EXPECTED_TIME
        self.expectation: Floats = is_expected * self._spread * math.log(2.0)
        paired = [i for i, name in enumerate(varying) if name in numeric]
        single = np.eye(len(varying))[:, ~is_expected]
        self.directions = np.hstack([single, _pairs(scaled, self._spread, paired)])

    def __len__(self) -> int:
        """Number of columns."""
        return len(self._mean)

    def __call__(self, rows: Indices | Sequence[int]) -> Floats:
        """The columns for these configs, of shape [rows, columns]."""
        wanted = np.asarray(rows, dtype=np.int64)
        if self._kept is not None:
            return self._kept[wanted]
        if len(wanted) > MOST_REMEMBERED // 10:
            return self._computed(wanted)
        numbers = wanted.tolist()
        found = {number: self._remembered.get(number) for number in numbers}
        if new := [number for number, row in found.items() if row is None]:
            computed = dict(zip(new, self._computed(np.array(new)), strict=True))
            found |= computed
            if len(self._remembered) > MOST_REMEMBERED:
                # Replaced and not emptied: another thread may be reading.
                self._remembered = {}
            self._remembered.update(computed)
        return np.array([found[number] for number in numbers]).reshape(len(numbers), len(self))

    def _computed(self, rows: Indices) -> Floats:
        return self._scaled(self._space.features(rows)[1])

    def _scaled(self, columns: Floats) -> Floats:
        scaled: Floats = (columns[:, self._varying] - self._mean) / self._spread
        return scaled


def _pairs(columns: Floats, unit: Floats, paired: Sequence[int]) -> Floats:
    """A column for each a + b and a - b of the paired ones in their own units."""
    pairs = list(combinations(paired, 2))
    mixed = np.zeros((columns.shape[1], 2 * len(pairs)))
    for position, (a, b) in enumerate(pairs):
        mixed[[a, b], 2 * position] = unit[a], unit[b]
        mixed[[a, b], 2 * position + 1] = unit[a], -unit[b]
    spread = (columns @ mixed).std(axis=0)
    varying = spread > 1e-9
    result: Floats = mixed[:, varying] / spread[varying]
    return result
