"""A config's kernels for the problems that need different code: layouts, edges, alignment."""

import math
from collections.abc import Iterator, Sequence

from autogemm.codegen import render
from autogemm.codegen.export import Variant
from autogemm.dispatch.snapper import Snapper
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

# Blocks each way of the problem that stands for a kind: enough for every constraint of a size.
MANY, FEW = 64, 1


def variants_of(
    config: Config, number: int, layouts: Sequence[Layout], snap: Snapper
) -> tuple[Variant, ...]:
    """Without edges, with the most frequent ones, with any; with rows that no vector fits; for what
    is smaller than a tile. For each layout, once each text. Edges are written as they are fastest.

    ``number`` is the config's in the rule. A kind that has no legal config is left out.
    """
    found: dict[str, Variant] = {}
    for layout in layouts:
        for edges, problems in _kinds(config, layout):
            variant = _first_legal(config, number, edges, problems, snap)
            if variant is not None:
                source = render(variant.family, variant.config, variant.problem)
                found.setdefault(source.sha256, variant)
    return tuple(found.values())


def _first_legal(
    config: Config, number: int, edges: str, problems: Sequence[Problem], snap: Snapper
) -> Variant | None:
    for problem in problems:
        legal = snap(config, problem)
        if legal is not None:
            return Variant(number, snap.family(legal), legal, problem, edges)
    return None


def _kinds(config: Config, layout: Layout) -> Iterator[tuple[str, list[Problem]]]:
    """What sets a kind apart, and problems of it: many rows, and where that is illegal, few."""
    bm, bn, bk = (_extent(config, name) for name in ("BM", "BN", "BK"))
    tall = [(rows * bm, MANY * bn, MANY * bk) for rows in (MANY, FEW)]
    fours = [(m - 4, n - 4, k) for m, n, k in tall]
    all_fours = [(m - 4, n - 4, k - 4) for m, n, k in tall]
    ragged = [(m - 1, n - 1, k - 1) for m, n, k in tall]
    yield "no edges", [_padded(size, layout, 4) for size in tall]
    yield "edges of C at multiples of 4", [_padded(size, layout, 4) for size in fours]
    yield "edges at multiples of 4", [_padded(size, layout, 4) for size in all_fours]
    yield "any edges", [_padded(size, layout, 4) for size in ragged]
    yield "any rows", [_padded(size, layout, 1) for size in ragged]
    # Less than one tile each way.
    yield "any size", [_padded((bm // 2 + 1, bn // 2 + 1, bk // 2 + 1), layout, 1)]


def _padded(size: tuple[int, int, int], layout: Layout, multiple: int) -> Problem:
    """Leading dimensions that are multiples of 4, or for ``multiple`` 1 odd."""
    m, n, k = size

    def stride(columns: int) -> int:
        aligned = math.ceil(columns / 4) * 4
        return aligned if multiple == 4 else aligned + 1

    lda, ldb = stride(m if layout.trans_a else k), stride(k if layout.trans_b else n)
    return Problem(m, n, k, layout, DType.F32, lda, ldb, stride(n))


def _extent(config: Config, name: str) -> int:
    try:
        value = config[name]
    except KeyError as error:
        raise UsageError(
            f"{config.family} has no {name}: its kernels cannot be put together"
        ) from error
    assert isinstance(value, int), "tiles are numbers"
    return value
