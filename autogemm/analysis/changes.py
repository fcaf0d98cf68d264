"""How the best kernels changed: over drivers and versions, or between two sides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import groupby

from autogemm.change import MIN_SAMPLES, Compared, compare_samples
from autogemm.errors import NotFoundError, UsageError
from autogemm.outcome import Environment
from autogemm.problem import Problem
from autogemm.store import BestQuery, ResultRow, Store

# What people call the fields of Environment, besides their names.
_VERSIONS = {"cuda": "cuda_runtime", "nvrtc": "compiler"}
_ENVIRONMENT = tuple(field.name for field in fields(Environment))
SIDES = f"run:N, gpu:NAME, {', '.join(f'{name}:TEXT' for name in _ENVIRONMENT)}"


class Figure(StrEnum):
    """What is compared: times, or how they stood to cuBLAS in the same rounds."""

    TIME = "time"
    CUBLAS = "cublas"


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


def history(store: Store, query: BestQuery) -> list[Step]:
    """The best of each environment, of one place the oldest first, each beside the one before."""
    steps = []
    for _, rows in groupby(store.history(query), key=_place):
        before: ResultRow | None = None
        for row in rows:
            by = figure_of(before, row) if before is not None else None
            compared = compare(before, row, by) if before is not None and by is not None else None
            steps.append(Step(row, compared, by))
            before = row
    return steps


def compare_sides(store: Store, first: str, second: str, by: Figure | None = None) -> list[Pair]:
    """The best kernels of two runs, GPUs or versions, for each problem that both have.

    A side is ``run:N``, ``gpu:NAME`` or the beginning of a version, as ``driver:580``. Without
    ``by`` each pair is compared by what is fairest, see `figure_of`. Raises UsageError for a side
    that is none, NotFoundError if a side has no result or both have no problem in common.
    """
    rows, others = _rows(store, first), _rows(store, second)
    of_versions = any(query_of(side).versions for side in (first, second))
    pairs = []
    for row in rows:
        for other in _counterparts(row, others, same_gpu=of_versions):
            figure = by or figure_of(row, other)
            pairs.append(Pair(row.problem, row, other, compare(row, other, figure), figure))
    if not pairs:
        raise NotFoundError(
            f"{first} and {second} have no problem in common (same size, layout, source of times, "
            "cache state and fill): autogemm db best shows what there is"
        )
    return pairs


def figure_of(first: ResultRow, second: ResultRow) -> Figure:
    """By how they stood to cuBLAS where that is the same cuBLAS on the same GPU, else by time.

    Clocks of one card drift by several per cent between two sessions, and cuBLAS drifts with them.
    """
    same = first.device.name == second.device.name and (
        first.environment.cublas == second.environment.cublas
    )
    has_rounds = min(len(first.baseline_samples_us), len(second.baseline_samples_us)) >= MIN_SAMPLES
    return Figure.CUBLAS if same and has_rounds else Figure.TIME


def compare(first: ResultRow, second: ResultRow, by: Figure) -> Compared:
    """Whether the second is faster. Raises UsageError where a side lacks the figure."""
    return compare_samples(_costs(first, by), _costs(second, by))


def _costs(row: ResultRow, by: Figure) -> Sequence[float]:
    if by is Figure.TIME:
        return row.samples_us
    if not row.baseline_samples_us:
        raise UsageError(
            f"the best of run {row.run_id} was in no finals beside cuBLAS: compare times (--by "
            f"{Figure.TIME})"
        )
    pairs = zip(row.samples_us, row.baseline_samples_us, strict=True)
    return [own / baseline for own, baseline in pairs]


def query_of(side: str) -> BestQuery:
    """The filter that a side stands for. Raises UsageError."""
    kind, separator, text = side.partition(":")
    text = text.strip()
    if kind == "run" and text.isascii() and text.isdigit() and len(text) < 10:
        return BestQuery(run_id=int(text))
    if kind == "gpu" and text:
        return BestQuery(gpu=text)
    name = _VERSIONS.get(kind, kind)
    if separator and name in _ENVIRONMENT and text:
        return BestQuery(versions=((name, text),))
    raise UsageError(f"a side is one of {SIDES}; got {side!r}")


def _rows(store: Store, side: str) -> list[ResultRow]:
    rows = store.best(query_of(side))
    if not rows:
        raise NotFoundError(f"no result of {side}: autogemm db best shows what there is")
    return rows


def _counterparts(
    row: ResultRow, others: Iterable[ResultRow], *, same_gpu: bool
) -> list[ResultRow]:
    """Of the same problem and circumstances; on the same GPU, if there are such or they must be."""
    fitting = [other for other in others if _place(other)[1:] == _place(row)[1:]]
    there = [other for other in fitting if other.device.name == row.device.name]
    return there if there or same_gpu else fitting


def _place(row: ResultRow) -> tuple[object, ...]:
    return (row.device.name, row.problem, row.provenance, row.l2, row.fill)
