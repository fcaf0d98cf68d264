"""Changes of the best kernels: over drivers and versions, or between two sides."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise

from autogemm.model.problem import Problem
from autogemm.model.results.change import Compared, Figure, compare_rounds, fairest
from autogemm.model.results.outcome import Environment
from autogemm.store import BestQuery, ResultRow, Store
from autogemm.support.errors import NotFoundError, UsageError

# Short names of fields of Environment, with the field and the beginning of its values.
_VERSIONS = {"cuda": ("cuda_runtime", ""), "nvrtc": ("compiler", "nvrtc ")}
_ENVIRONMENT = tuple(field.name for field in fields(Environment))
SIDES = f"run:N, gpu:NAME, {', '.join(f'{name}:TEXT' for name in (*_VERSIONS, *_ENVIRONMENT))}"


@dataclass(frozen=True, slots=True)
class Step:
    """One result, and how it compares with the one before; None for the first."""

    row: ResultRow
    compared: Compared | None
    by: Figure | None


@dataclass(frozen=True, slots=True)
class Pair:
    """The best kernels of both sides for one problem; ``compared`` says how the second is."""

    problem: Problem
    first: ResultRow
    second: ResultRow
    compared: Compared
    by: Figure


def history(store: Store, query: BestQuery, limit: int | None = None) -> list[Step]:
    """The best of each environment, of one place the oldest first, each beside the one before.

    At most the first ``limit`` of them.
    """
    steps = []
    for _, rows in groupby(store.history(query, limit), key=_place):
        found = list(rows)
        steps.append(Step(found[0], None, None))
        for before, row in pairwise(found):
            by = figure_of(before, row)
            steps.append(Step(row, compare_rounds(before.rounds, row.rounds, by), by))
    return steps


def compare_sides(store: Store, first: str, second: str, by: Figure | None = None) -> list[Pair]:
    """The best kernels of two runs, GPUs or versions, for each problem that both have.

    A side is ``run:N``, ``gpu:NAME`` or the beginning of a version, as ``driver:580``. Without
    ``by`` each pair is compared by what is fairest, see `figure_of`. Raises UsageError for a side
    that is none, NotFoundError if a side has no result or both have no problem in common.
    """
    rows, others = _rows(store, first), _rows(store, second)
    of_versions = any(query_of(side).versions for side in (first, second))
    there: dict[tuple[object, ...], list[ResultRow]] = {}
    for other in others:
        there.setdefault(_circumstances(other), []).append(other)
    pairs = []
    for row in rows:
        fitting = there.get(_circumstances(row), [])
        for other in _on_same_gpu(row, fitting, must_be=of_versions):
            figure = by or figure_of(row, other)
            compared = compare_rounds(row.rounds, other.rounds, figure)
            pairs.append(Pair(row.problem, row, other, compared, figure))
    if not pairs:
        raise NotFoundError(
            f"{first} and {second} have no problem in common (same size, layout, source of times, "
            "cache state and fill): autogemm db best shows what there is"
        )
    return pairs


def figure_of(first: ResultRow, second: ResultRow) -> Figure:
    """Return the fairest figure to compare two results by, see `...results.change.fairest`."""
    same_baseline = first.device.name == second.device.name and (
        first.environment.cublas == second.environment.cublas
    )
    return fairest(first.rounds, second.rounds, same_baseline)


def query_of(side: str) -> BestQuery:
    """The filter that a side stands for. Raises UsageError."""
    kind, separator, text = side.partition(":")
    text = text.strip()
    if kind == "run" and text.isascii() and text.isdigit() and len(text) < 10:
        return BestQuery(run_id=int(text))
    if kind == "gpu" and text:
        return BestQuery(gpu=text)
    name, beginning = _VERSIONS.get(kind, (kind, ""))
    if separator and name in _ENVIRONMENT and text:
        return BestQuery(versions=((name, beginning + text),))
    raise UsageError(f"a side is one of {SIDES}; got {side!r}")


def _rows(store: Store, side: str) -> list[ResultRow]:
    rows = store.best(query_of(side))
    if not rows:
        raise NotFoundError(f"no result of {side}: autogemm db best shows what there is")
    return rows


def _on_same_gpu(
    row: ResultRow, fitting: Sequence[ResultRow], *, must_be: bool
) -> Sequence[ResultRow]:
    """The results on the same GPU; all if there are none and they need not be."""
    there = [other for other in fitting if other.device.name == row.device.name]
    return there if there or must_be else fitting


def _place(row: ResultRow) -> tuple[object, ...]:
    return (row.device.name, *_circumstances(row))


def _circumstances(row: ResultRow) -> tuple[object, ...]:
    """Return the facts that two results must share to be compared, whatever their GPUs."""
    return (row.problem, row.provenance, row.l2, row.fill)
