"""Sizes and kernels of the database as one table of times."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autogemm.dispatch.legal import NearestLegal
from autogemm.model.batch import ONE, Batch
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Objective, Provenance
from autogemm.space import same_tiles
from autogemm.store import DecidedRow

# A rule needs two kernels to choose from.
FEWEST_COMMON = 2
# Fewer sizes tell nothing of those between them.
FEWEST_SIZES = 3

Losses = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TunedSize:
    """One problem with the kernels that met in its finals, in microseconds.

    Among several finals those with most kernels count, then the newest: times within one are
    of the same minute, and compare.
    """

    problem: Problem
    winner: Config
    winner_ratio: float
    """Time of cuBLAS / time of the winner."""
    times_us: Mapping[Config, float]
    run_id: int
    provenance: Provenance = Provenance.MEASURED
    origin: str = ""
    """As of `DecidedRow`: empty for a result of the database."""

    @property
    def is_measured(self) -> bool:
        """Whether it was measured for the database that is read."""
        return self.provenance is Provenance.MEASURED

    @property
    def standing(self) -> int:
        """Greater for what goes before another: measured, then recorded, then the catalogue's."""
        return 2 * self.is_measured + (not self.origin)

    @property
    def size(self) -> tuple[int, int, int]:
        """M, N, K."""
        return (self.problem.m, self.problem.n, self.problem.k)


def tuned_sizes(  # noqa: PLR0913, PLR0917  # what makes a problem, each optional
    runs: Iterable[DecidedRow],
    device: Device,
    dtype: DType | None = None,
    layout: Layout | None = None,
    epilogue: Epilogue = PLAIN,
    batch: Batch | None = ONE,
    *,
    grouped: bool = False,
) -> tuple[TunedSize, ...]:
    """The problems tuned on that GPU, smallest first, of that dtype and layout if these are given,
    with that epilogue and batch (None: any); only those whose rows belong to groups, or only
    others.

    The measured results of each problem; where it has none, recorded ones of the database, at last
    the catalogue's.
    """
    fitting = (
        run
        for run in runs
        if run.spec.device.name == device.name
        and run.spec.objective is Objective.TIME
        and dtype in (None, run.spec.problem.dtype)
        and layout in (None, run.spec.problem.layout)
        and run.spec.problem.epilogue == epilogue
        and batch in (None, run.spec.problem.batch)
        and run.spec.problem.groups.is_none is not grouped
    )
    chosen: dict[Problem, TunedSize] = {}
    for run in sorted(fitting, key=lambda run: (run.measured_at, run.run_id)):
        size = _tuned_size(run)
        known = chosen.get(size.problem)
        if known is None or _rank(size) >= _rank(known):
            chosen[size.problem] = size
    return tuple(sorted(chosen.values(), key=lambda size: (size.problem.flops, size.size)))


def _rank(size: TunedSize) -> tuple[int, int]:
    return (size.standing, len(size.times_us))


def _tuned_size(run: DecidedRow) -> TunedSize:
    finals = run.finals
    winner = finals.winner
    assert winner.config is not None, "a winner has a config"
    # Ratios are paired with cuBLAS round by round: what they say holds however clocks drift.
    baseline_us = finals.baseline.time_us
    times = {
        entry.config: baseline_us / entry.ratio if entry.ratio else entry.time_us
        for entry in finals.entries
        if entry.config is not None
    }
    return TunedSize(
        run.spec.problem,
        winner.config,
        winner.ratio,
        times,
        run.run_id,
        run.spec.provenance,
        run.origin,
    )


@dataclass(frozen=True, slots=True)
class Table:
    """Times of kernels at sizes: ``losses[size, kernel]`` is its time over the least one known
    there, less 1; nan where it was not measured.

    ``winners`` has the position of each size's own winner among ``kernels``.
    """

    sizes: tuple[TunedSize, ...]
    kernels: tuple[Config, ...]
    losses: Losses
    winners: tuple[int, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every kernel was measured at every size."""
        return not bool(np.isnan(self.losses).any())

    def time_us(self, size: int, kernel: int) -> float:
        """In microseconds; nan where it was not measured, infinite where it is not legal."""
        best_us = min(self.sizes[size].times_us.values(), default=math.nan)
        return float(best_us * (1.0 + self.losses[size, kernel]))


def table_of(
    sizes: tuple[TunedSize, ...], kernels: tuple[Config, ...], nearest_legal: NearestLegal
) -> Table:
    """The table of those kernels. ``nearest_legal`` gives what of a config is run at a problem.

    A kernel that is not legal at a size is never chosen there: its loss is infinite.
    """
    losses = np.full((len(sizes), len(kernels)), np.nan)
    for row, size in enumerate(sizes):
        best_us = min(size.times_us.values())
        for column, kernel in enumerate(kernels):
            here = nearest_legal(kernel, size.problem)
            if here is None:
                losses[row, column] = np.inf
                continue
            # As it would be run, or as it was tuned elsewhere and timed unchanged.
            time_us = size.times_us.get(here, size.times_us.get(kernel, math.nan))
            losses[row, column] = time_us / best_us - 1.0
    winners = tuple(_position(size, kernels, losses[row]) for row, size in enumerate(sizes))
    return Table(sizes, kernels, losses, winners)


def common_table(sizes: Iterable[TunedSize], nearest_legal: NearestLegal) -> Table:
    """The table of the winners that were measured at every size; of all where these are too few.

    Left out are sizes whose winner the families do not have (any more).
    """
    sizes = ruling(sizes, nearest_legal)
    winners = tuple(dict.fromkeys(size.winner for size in sizes))
    common = common_kernels(sizes, nearest_legal)
    return table_of(sizes, common if len(common) >= FEWEST_COMMON else winners, nearest_legal)


def ruling(sizes: Iterable[TunedSize], nearest_legal: NearestLegal) -> tuple[TunedSize, ...]:
    """The usable sizes from which rules are learned: those that were measured, where kernels were
    timed at all of them, so that a rule can be judged; else all.
    """
    every = usable(sizes, nearest_legal)
    measured = tuple(size for size in every if size.is_measured)
    if len(measured) == len(every):
        return every
    is_judged = len(common_kernels(measured, nearest_legal)) >= FEWEST_COMMON
    return measured if is_judged and len(measured) >= FEWEST_SIZES else every


def usable(sizes: Iterable[TunedSize], nearest_legal: NearestLegal) -> tuple[TunedSize, ...]:
    """Return the sizes whose winner the families have."""
    return tuple(size for size in sizes if nearest_legal(size.winner, size.problem) is not None)


def common_kernels(sizes: Sequence[TunedSize], nearest_legal: NearestLegal) -> tuple[Config, ...]:
    """Return the winners that were measured, or are not legal, at every size.

    A kernel is given up at the first size that lacks it, and before others at one where it is legal
    and nothing with its tiles was timed: moving kernels to where they are legal takes tens of
    milliseconds each.
    """

    def lacks(kernel: Config, size: TunedSize) -> bool:
        return not any(same_tiles(kernel, one) for one in size.times_us) and nearest_legal.is_legal(
            kernel, size.problem
        )

    def is_known(kernel: Config, size: TunedSize) -> bool:
        if kernel in size.times_us:
            return True
        here = nearest_legal(kernel, size.problem)
        return here is None or here in size.times_us

    winners = dict.fromkeys(size.winner for size in sizes)
    kept = [one for one in winners if not any(lacks(one, size) for size in sizes)]
    return tuple(one for one in kept if all(is_known(one, size) for size in sizes))


def _position(size: TunedSize, kernels: tuple[Config, ...], losses: Losses) -> int:
    """Return the position of the size's winner; where it is missing, of the fastest kernel."""
    if size.winner in kernels:
        return kernels.index(size.winner)
    known = np.where(np.isnan(losses), np.inf, losses)
    return int(known.argmin())
