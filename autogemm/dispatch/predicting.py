"""Predicted times at sizes that were not tuned: what a family expects, corrected by all results.

A family's ``expected_time`` knows waves, depth and edges, and misses what one kernel does better or
worse than its like. For some families and GPUs that was learned from many trials and ships
(`autogemm.catalogue.learned`). For others, what it missed at the nearest tuned sizes is carried
over by a Gaussian process (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006,
section 2.2) over the logarithms of sizes, parameters and derived quantities.
"""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from autogemm.catalogue.learned import LearnedTimes
from autogemm.dispatch.legal import NearestLegal
from autogemm.dispatch.table import TunedSize
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.similarity import distance
from autogemm.space import EXPECTED_TIME, Family, build_space, derived_columns
from autogemm.support.errors import EmptySpaceError

# The nearest tuned sizes, of which so many teach and so many offer their winners: what a prediction
# takes does not grow with the database.
MOST_SIZES = 64
MOST_WINNERS = 16
# The process's length in standard deviations of a feature, and the variance of noise as a share of
# its own. Chosen on the sizes of benchmarks/results/left_out_recorded.txt.
LENGTH = 0.7
NOISE = 0.2
# Where times were learned: configs of the space that are drawn at random, those of them that the
# family expects to be fastest, and those that are fastest by what was learned.
MOST_DRAWN = 30_000
MOST_JUDGED = 1024
MOST_PROMISING = 16

NOTHING: Mapping[str, LearnedTimes] = MappingProxyType({})

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel at a problem: ``log_expected`` and ``log_us`` are logarithms to the base of 2."""

    features: tuple[float, ...]
    log_expected: float
    log_us: float = math.nan


_Place = tuple[Config, Problem]


class Predictor:
    """Ranks kernels at sizes that were not tuned, of families that expect times.

    Calling it returns kernels that are legal at a problem, the one with the least predicted time
    first: winners of tuned sizes, and promising configs of families whose times were learned.
    None where no family of either kind has an ``expected_time``. ``learned`` is by family.
    """

    def __init__(
        self,
        sizes: Sequence[TunedSize],
        nearest_legal: NearestLegal,
        learned: Mapping[str, LearnedTimes] = NOTHING,
    ) -> None:
        self._sizes = sizes
        self._nearest_legal = nearest_legal
        # A family of that name that derives or expects something else was not learned.
        self._learned = {
            family.name: learned[family.name]
            for family in nearest_legal.families
            if family.name in learned
            and learned[family.name].expressions_sha256 == family.expressions_sha256
        }
        self._timed: dict[_Place, Timed | None] = {}

    def has_learned(self, problem: Problem) -> bool:
        """Whether a family's times were learned for such problems."""
        families = self._nearest_legal.families
        return any(self._learned_of(family, problem) is not None for family in families)

    def __call__(self, problem: Problem) -> list[Config]:
        """Return the kernels, the fastest first."""
        winners = list(dict.fromkeys(size.winner for size in self._near(problem)))[:MOST_WINNERS]
        found: list[Config | None] = []
        for family in self._nearest_legal.families:
            own = [winner for winner in winners if winner.family == family.name]
            learned = self._learned_of(family, problem)
            if learned is None:
                found += (self._nearest_legal(winner, problem) for winner in own)
            else:
                found += self._promising(family, learned, problem, own)
        return self.ranked(problem, dict.fromkeys(one for one in found if one is not None))

    def _promising(
        self, family: Family, learned: LearnedTimes, problem: Problem, winners: Sequence[Config]
    ) -> list[Config]:
        """Configs that are expected to be fast, and those of the winners that are legal."""
        try:
            space = build_space(family, problem, self._nearest_legal.device, {})
        except EmptySpaceError:
            return []
        rows = np.arange(len(space))
        if len(rows) > MOST_DRAWN:
            # Always the same ones, so that a choice can be repeated.
            rows = np.random.default_rng(0).choice(len(rows), MOST_DRAWN, replace=False)
        expected = np.broadcast_to(space.columns(rows)[EXPECTED_TIME], len(rows))
        rows = rows[np.argsort(expected, kind="stable")[:MOST_JUDGED]]
        columns = space.columns(rows)
        expected = np.broadcast_to(columns[EXPECTED_TIME], len(rows))
        times = np.log2(np.maximum(expected, 1.0)) + learned.corrections(columns, len(rows))
        best = rows[np.argsort(times, kind="stable")[:MOST_PROMISING]]
        legal = [winner for winner in winners if space.index(winner) is not None]
        return [*(space.config(int(row)) for row in best), *legal]

    def _learned_of(self, family: Family, problem: Problem) -> LearnedTimes | None:
        """What was learned of the family at such problems."""
        found = self._learned.get(family.name)
        is_used = found is not None and found.covers(problem) and family.fits(problem.dtype)
        return found if is_used else None

    def ranked(self, problem: Problem, configs: Iterable[Config]) -> list[Config]:
        """Return those of these configs, legal there, that a time is expected of, fastest first."""
        near = self._near(problem)
        by_family: dict[str, list[tuple[Config, Timed]]] = {}
        # Not kept: the same problem is not asked for twice.
        for (config, _), timed in self._new([(config, problem) for config in configs]).items():
            by_family.setdefault(config.family, []).append((config, timed))
        known = self._known(near, by_family)
        found: list[tuple[float, Config]] = []
        for name, asked in by_family.items():
            own = [timed for family, timed in known if family == name]
            learned = self._learned_of(self._nearest_legal.family_named(name), problem)
            if learned is None:
                predicted = _predicted([timed for _, timed in asked], own)
            else:
                # A correction of each kernel would spoil what was learned (docs/decisions/0133).
                predicted = [timed.log_expected + _usual(own) for _, timed in asked]
            found += zip(predicted, (config for config, _ in asked), strict=True)
        return [config for _, config in sorted(found, key=lambda pair: pair[0])]

    def _known(
        self, near: Sequence[TunedSize], families: Container[str]
    ) -> list[tuple[str, Timed]]:
        """The kernels of these families that were timed at these sizes, each with its family."""
        times = {
            (config, size.problem): time_us
            for size in near
            for config, time_us in size.times_us.items()
            if config.family in families
        }
        return [
            (place[0].family, replace(timed, log_us=math.log2(times[place])))
            for place, timed in self._looked_up(list(times))
        ]

    def _near(self, problem: Problem) -> list[TunedSize]:
        device = self._nearest_legal.device

        def steps(size: TunedSize) -> float:
            return distance(problem, device, size.problem, device)

        of_dtype = (size for size in self._sizes if size.problem.dtype is problem.dtype)
        return sorted(of_dtype, key=steps)[:MOST_SIZES]

    def _looked_up(self, places: Sequence[_Place]) -> list[tuple[_Place, Timed]]:
        """The places whose family expects times, in their order, with what it expects."""
        new = dict.fromkeys(place for place in places if place not in self._timed)
        self._timed.update(dict.fromkeys(new))
        self._timed.update(self._new(new))
        found = ((place, self._timed[place]) for place in places)
        return [(place, timed) for place, timed in found if timed is not None]

    def _new(self, places: Iterable[_Place]) -> dict[_Place, Timed]:
        """What is expected of those places whose family expects times, with what was learned."""
        by_family: dict[tuple[str, bool], list[_Place]] = {}
        for place in places:
            config, problem = place
            if self._nearest_legal.knows(config):
                family = self._nearest_legal.family(config)
                if family.expected:
                    is_learned = self._learned_of(family, problem) is not None
                    by_family.setdefault((family.name, is_learned), []).append(place)
        found: dict[_Place, Timed] = {}
        for of_family in by_family.values():
            family = self._nearest_legal.family(of_family[0][0])
            learned = self._learned_of(family, of_family[0][1])
            timed = _timed(family, of_family, self._nearest_legal.device, learned)
            found.update(zip(of_family, timed, strict=True))
        return found


def _timed(
    family: Family, places: Sequence[_Place], device: Device, learned: LearnedTimes | None
) -> list[Timed]:
    """The family's expectation, corrected by what was learned. Features are logarithms of sizes,
    parameters and derived numbers, and 0 or 1 for a parameter that is a word: the same for all
    configs of a family.
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
    expected = np.array(_logs(column(EXPECTED_TIME), 1.0))
    if learned is not None:
        expected += learned.corrections(given, len(places))
    rows = zip(*columns, strict=True)
    return [
        Timed(tuple(map(float, row)), float(time)) for row, time in zip(rows, expected, strict=True)
    ]


def _logs(numbers: npt.NDArray[Any], least: float) -> list[float]:
    return [math.log2(max(one, least)) for one in numbers.tolist()]


def _usual(known: Sequence[Timed]) -> float:
    """By how much times usually are above what is expected: a logarithm."""
    return float(np.median([one.log_us - one.log_expected for one in known])) if known else 0.0


def _predicted(asked: Sequence[Timed], known: Sequence[Timed]) -> list[float]:
    """Logarithms of times of one family's kernels; as expected where nothing is known."""
    expected = np.array([one.log_expected for one in asked])
    if not known:
        return [float(value) for value in expected]
    missed = np.array([one.log_us - one.log_expected for one in known])
    usual = _usual(known)
    places: Floats = np.array([one.features for one in known])
    wanted: Floats = np.array([one.features for one in asked])
    middle, spread = places.mean(axis=0), places.std(axis=0)
    varies = spread > 1e-9
    places = (places[:, varies] - middle[varies]) / spread[varies]
    wanted = (wanted[:, varies] - middle[varies]) / spread[varies]
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
