"""Predicted times at sizes that were not tuned: what a family expects, corrected by all results.

A family's ``expected_time`` knows waves, depth and edges, and misses what one kernel does better or
worse than its like. What it missed at the nearest tuned sizes is carried over by a Gaussian process
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.2) over the
logarithms of sizes, parameters and derived quantities.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.table import TunedSize
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.similarity import distance
from autogemm.space import EXPECTED_TIME, Family, derived_columns

# The nearest tuned sizes, of which so many teach and so many offer their winners: what a prediction
# takes does not grow with the database.
MOST_SIZES = 64
MOST_WINNERS = 16
# The process's length in standard deviations of a feature, and the variance of noise as a share of
# its own. Chosen on the sizes of benchmarks/results/left_out_recorded.txt.
LENGTH = 0.7
NOISE = 0.2

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel at a problem: ``log_expected`` and ``log_us`` are logarithms to the base of 2."""

    features: tuple[float, ...]
    log_expected: float
    log_us: float = math.nan


_Place = tuple[Config, Problem]


class Predictor:
    """Ranks the winners of tuned sizes at sizes that were not tuned, of families that expect times.

    Calling it returns the kernels that are legal at a problem, the one with the least predicted
    time first; none where no family of the nearest winners has an ``expected_time``.
    """

    def __init__(self, sizes: Sequence[TunedSize], nearest_legal: NearestLegal) -> None:
        self._sizes = sizes
        self._nearest_legal = nearest_legal
        self._timed: dict[_Place, Timed | None] = {}

    def __call__(self, problem: Problem) -> list[Config]:
        """Return the kernels, the fastest first."""
        winners = dict.fromkeys(size.winner for size in self._near(problem))
        legal = (self._nearest_legal(one, problem) for one in list(winners)[:MOST_WINNERS])
        return self.ranked(problem, dict.fromkeys(one for one in legal if one is not None))

    def ranked(self, problem: Problem, configs: Iterable[Config]) -> list[Config]:
        """Return those of these configs, legal there, that a time is expected of, fastest first."""
        near = self._near(problem)
        by_family: dict[str, list[tuple[Config, Timed]]] = {}
        for (config, _), timed in self._looked_up([(config, problem) for config in configs]):
            by_family.setdefault(config.family, []).append((config, timed))
        tuned = [
            ((config, size.problem), time_us)
            for size in near
            for config, time_us in size.times_us.items()
            if config.family in by_family
        ]
        times = dict(tuned)
        places = self._looked_up([place for place, _ in tuned])
        found: list[tuple[float, Config]] = []
        for family, asked in by_family.items():
            known = [
                replace(timed, log_us=math.log2(times[place]))
                for place, timed in places
                if place[0].family == family
            ]
            predicted = _predicted([timed for _, timed in asked], known)
            found += zip(predicted, (config for config, _ in asked), strict=True)
        return [config for _, config in sorted(found, key=lambda pair: pair[0])]

    def _near(self, problem: Problem) -> list[TunedSize]:
        device = self._nearest_legal.device

        def steps(size: TunedSize) -> float:
            return distance(problem, device, size.problem, device)

        of_dtype = (size for size in self._sizes if size.problem.dtype is problem.dtype)
        return sorted(of_dtype, key=steps)[:MOST_SIZES]

    def _looked_up(self, places: Sequence[_Place]) -> list[tuple[_Place, Timed]]:
        """The places whose family expects times, in their order, with what it expects."""
        new: dict[str, list[_Place]] = {}
        for place in dict.fromkeys(places):
            if place not in self._timed:
                self._timed[place] = None
                config, _ = place
                known = self._nearest_legal.knows(config)
                if known and self._nearest_legal.family(config).expected:
                    new.setdefault(config.family, []).append(place)
        for of_family in new.values():
            family = self._nearest_legal.family(of_family[0][0])
            timed = _timed(family, of_family, self._nearest_legal.device)
            self._timed.update(zip(of_family, timed, strict=True))
        found = ((place, self._timed[place]) for place in places)
        return [(place, timed) for place, timed in found if timed is not None]


def _timed(family: Family, places: Sequence[_Place], device: Device) -> list[Timed]:
    """The family's expectation. Features are logarithms of sizes, parameters and derived numbers,
    and 0 or 1 for a parameter that is a word: the same for all configs of a family.
    """
    given = derived_columns(family, places, device)

    def column(name: str) -> npt.NDArray[Any]:
        return np.broadcast_to(given[name], len(places))

    words: list[list[float]] = []
    numbers = [column(name) for name in ("M", "N", "K")]
    for parameter in family.parameters:
        if parameter.is_numeric:
            numbers.append(column(parameter.name) + 1)
        else:
            words += [(column(parameter.name) == one).tolist() for one in parameter.values]
    numbers += [column(name) for name in family.derive if column(name).dtype.kind == "i"]
    columns = [*words, *(_logs(number, 0.5) for number in numbers)]
    expected = _logs(column(EXPECTED_TIME), 1.0)
    rows = zip(*columns, strict=True)
    return [Timed(tuple(map(float, row)), time) for row, time in zip(rows, expected, strict=True)]


def _logs(numbers: npt.NDArray[Any], least: float) -> list[float]:
    return [math.log2(max(one, least)) for one in numbers.tolist()]


def _predicted(asked: Sequence[Timed], known: Sequence[Timed]) -> list[float]:
    """Logarithms of times of one family's kernels; as expected where nothing is known."""
    expected = np.array([one.log_expected for one in asked])
    if not known:
        return [float(value) for value in expected]
    places: Floats = np.array([one.features for one in known])
    wanted: Floats = np.array([one.features for one in asked])
    missed = np.array([one.log_us - one.log_expected for one in known])
    middle, spread = places.mean(axis=0), places.std(axis=0)
    varies = spread > 1e-9
    places = (places[:, varies] - middle[varies]) / spread[varies]
    wanted = (wanted[:, varies] - middle[varies]) / spread[varies]
    usual = float(np.median(missed))
    weights = np.linalg.solve(
        _likeness(places, places) + NOISE * np.eye(len(known)), missed - usual
    )
    predicted = expected + usual + _likeness(wanted, places) @ weights
    return [float(value) for value in predicted]


def _likeness(one: Floats, other: Floats) -> Floats:
    """A squared exponential of the mean squared distance of features."""
    squares = np.square(one).sum(axis=1)[:, np.newaxis] + np.square(other).sum(axis=1)
    distances = np.maximum(squares - 2.0 * one @ other.T, 0.0) / max(1, one.shape[1])
    likeness: Floats = np.exp(-distances / (2.0 * LENGTH**2))
    return likeness
