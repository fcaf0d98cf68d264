"""What expected times miss, learned from trials: regression trees for a few families and GPUs.

``benchmarks/learn_times.py`` makes the file from committed trials. The trees are those of gradient
boosting (Friedman, Greedy function approximation: a gradient boosting machine, 2001).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, MaxLen, MinLen
from pydantic import ConfigDict, TypeAdapter

from autogemm.catalogue.winners import catalogue_path
from autogemm.model.problem import Problem
from autogemm.support.cells import one_line
from autogemm.support.errors import ExchangeError, UsageError
from autogemm.support.files import unpacked
from autogemm.support.limits import AnySha256, Count, Finite, Line, Word
from autogemm.support.resources import data_folder

FILE_NAME = "learned_times.json.gz"
MAX_UNPACKED_BYTES = 32 * 2**20
MOST = MaxLen(2000)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree's nodes, the root first, children behind their parents. A row goes on at ``below`` if
    its feature is at most ``threshold``, else at ``above``; a leaf's ``feature`` is -1.
    """

    feature: Annotated[tuple[Annotated[int, Ge(-1)], ...], MinLen(1), MOST]
    threshold: Annotated[tuple[Finite, ...], MOST]
    below: Annotated[tuple[Count, ...], MOST]
    above: Annotated[tuple[Count, ...], MOST]
    value: Annotated[tuple[Finite, ...], MOST]

    def __post_init__(self) -> None:
        """Raise ValueError for nodes that are no tree."""
        size = len(self.feature)
        columns = (self.threshold, self.below, self.above, self.value)
        if any(len(column) != size for column in columns):
            raise ValueError("the columns of a tree have one value for each node")
        for node, feature in enumerate(self.feature):
            children = (self.below[node], self.above[node])
            if feature >= 0 and not all(node < child < size for child in children):
                raise ValueError(f"the children of node {node} are {children} of {size} nodes")


class _Packed(NamedTuple):
    """All trees side by side, as arrays [trees, nodes]; behind a shorter one are leaves."""

    feature: npt.NDArray[np.intp]
    threshold: Floats
    below: npt.NDArray[np.intp]
    above: npt.NDArray[np.intp]
    value: Floats


@dataclass(frozen=True)
class LearnedTimes:
    """What one family's expected time misses on GPUs of one compute capability.

    ``features`` are names of the family's columns (`autogemm.space.derived_columns`), or
    ``NAME=WORD`` for whether a column has that word. ``dtypes`` are the element types that were
    among the trials, ``extents`` the powers of two between which M, N and K lay, and
    ``expressions_sha256`` is the hash of what the family derived and expected then.
    """

    family: Word
    arch: Count
    dtypes: tuple[Word, ...]
    extents: tuple[tuple[Count, Count], tuple[Count, Count], tuple[Count, Count]]
    gpu: Line
    trials: Count
    problems: Count
    expressions_sha256: AnySha256
    features: Annotated[tuple[Line, ...], MinLen(1), MOST]
    trees: Annotated[tuple[Tree, ...], MinLen(1), MOST]

    def __post_init__(self) -> None:
        """Raise ValueError for trees that ask for a feature that is not listed."""
        if max(max(tree.feature) for tree in self.trees) >= len(self.features):
            raise ValueError(f"a tree asks for more than {len(self.features)} features")

    def covers(self, problem: Problem) -> bool:
        """Whether there were such problems: one plain product, of a type and a size among them."""
        is_plain = problem.epilogue.is_plain and problem.batch.is_one and problem.groups.is_none
        sizes = zip(self.extents, (problem.m, problem.n, problem.k), strict=True)
        return (
            is_plain
            and problem.dtype.label in self.dtypes
            and all(least <= size <= most for (least, most), size in sizes)
        )

    def corrections(self, columns: Mapping[str, Any], count: int) -> Floats:
        """Binary logarithms of actual over expected time of ``count`` configs, but for a constant
        that is the same for all configs of a problem.

        ``columns`` are arrays of that length, or the one value of all. Raises KeyError for a
        feature that is not among them.
        """
        # What the trees were learned from has single precision.
        rows = np.empty((count, len(self.features)), dtype=np.float32)
        for position, name in enumerate(self.features):
            of, is_word, word = name.partition("=")
            column = np.asarray(columns[of])
            rows[:, position] = column == word if is_word else column
        trees = self._packed
        tree, row = np.arange(len(self.trees)), np.arange(count)[:, np.newaxis]
        node = np.zeros((count, len(self.trees)), dtype=np.intp)
        while (asked := trees.feature[tree, node]).max(initial=-1) >= 0:
            is_below = rows[row, asked] <= trees.threshold[tree, node]
            children = np.where(is_below, trees.below[tree, node], trees.above[tree, node])
            node = np.where(asked >= 0, children, node)
        found: Floats = trees.value[tree, node].sum(axis=1)
        return found

    @cached_property
    def _packed(self) -> _Packed:
        size = max(len(tree.feature) for tree in self.trees)

        def packed(name: str, empty: float) -> npt.NDArray[Any]:
            columns = (getattr(tree, name) for tree in self.trees)
            return np.array([(*one, *(empty,) * (size - len(one))) for one in columns])

        return _Packed(
            packed("feature", -1),
            packed("threshold", 0.0),
            packed("below", 0),
            packed("above", 0),
            packed("value", 0.0),
        )


LEARNED: TypeAdapter[tuple[LearnedTimes, ...]] = TypeAdapter(
    tuple[LearnedTimes, ...], config=ConfigDict(allow_inf_nan=False)
)


def learned_times(arch: int) -> dict[str, LearnedTimes]:
    """What ships for GPUs of a compute capability (90), by family; nothing without a catalogue.

    Raises ExchangeError for a broken file.
    """
    if catalogue_path() is None:
        return {}
    found = read_learned(data_folder("db/catalogue") / FILE_NAME)
    return {one.family: one for one in found if one.arch == arch}


@cache
def read_learned(path: Path) -> tuple[LearnedTimes, ...]:
    """The file's content. Raises ExchangeError."""
    try:
        return LEARNED.validate_json(b"".join(unpacked(path, MAX_UNPACKED_BYTES)))
    except (OSError, ValueError, UsageError) as error:
        raise ExchangeError(f"{path}: {one_line(str(error))}") from error
