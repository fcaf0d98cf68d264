"""Results of the database for the problems of a program, on one GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

from autogemm.dispatch import same_kernel
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import AgainstBaseline, Objective, Provenance
from autogemm.space import default_families
from autogemm.store import BestQuery, DecidedRow, open_store, shipped_rows
from autogemm.support.errors import NotFoundError

# M, N and K, by which results are found fast.
_Size = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Results:
    """The newest measured result of each problem on a GPU, behind these perhaps the catalogue's.

    With ``emulation`` a kernel may compute FP32 by products of lower precision.
    """

    gpu: str
    emulation: bool
    by_size: Mapping[_Size, tuple[DecidedRow, ...]]

    def of(self, problem: Problem) -> DecidedRow | None:
        """Return the result of a problem, its epilogue and types included; None without one."""
        rows = self.by_size.get((problem.m, problem.n, problem.k), ())
        return next((row for row in rows if _is_same(row.spec.problem, problem)), None)

    def is_faster(self, problem: Problem) -> bool:
        """Whether a result shows a kernel that is faster than the baseline."""
        row = self.of(problem)
        return row is not None and row.finals.against_baseline is AgainstBaseline.FASTER


def results_on(
    gpu: str, db: str | None, *, catalogue: bool = False, emulation: bool = False
) -> Results:
    """Read the database; ``gpu`` is any part of a GPU's name. No results where there is no file.

    Results count whose winner `autogemm.gemm` would run: one of a family that ships, and one that
    computes FP32 by products of lower precision only with ``emulation``.
    With ``catalogue`` the winners that ship count where the database has no result, if they are of
    a GPU of that name and of the texts that are emitted today.
    """
    try:
        with open_store(db, create=False) as store:
            rows = store.decided()
    except NotFoundError:
        rows = []
    names = {family.name for family in default_families(emulation=emulation)}
    rows = [
        row
        for row in rows
        if _winning_family(row) in names
        and gpu.lower() in row.spec.device.name.lower()
        and row.spec.objective is Objective.TIME
        and row.spec.provenance is Provenance.MEASURED
    ]
    rows.sort(key=lambda row: row.measured_at)
    shipped = []
    if catalogue:
        shipped = shipped_rows(names, query=BestQuery(gpu=gpu), same_text=True)
    by_size: dict[_Size, tuple[DecidedRow, ...]] = {}
    for row in (*reversed(rows), *shipped):
        problem = row.spec.problem
        size = (problem.m, problem.n, problem.k)
        by_size[size] = (*by_size.get(size, ()), row)
    return Results(gpu, emulation, by_size)


def _winning_family(row: DecidedRow) -> str:
    config = row.finals.winner.config
    return "" if config is None else config.family


def _is_same(one: Problem, other: Problem) -> bool:
    # Factors are arguments of a kernel; whether the old C is read changes its time.
    same_old_c = (one.beta != 0.0) == (other.beta != 0.0)
    same_what = one.epilogue == other.epilogue and one.batch == other.batch
    return same_what and same_old_c and same_kernel(one, other)
