"""The statistics of finals: paired rounds, ratios with intervals, ties named as ties.

All contestants run once in every round, in random order, so that whatever drifts (clocks,
temperature) drifts for all of them alike; only ratios of times taken in the same round are used.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autogemm.model.config import Config
from autogemm.model.results.outcome import (
    CONFIDENCE,
    MIN_BOOTSTRAP_ROUNDS,
    Disqualified,
    Finals,
    FinalsEntry,
    Objective,
    Status,
    Verification,
    relative_spread,
)

Floats = NDArray[np.float64]

NUM_RESAMPLES = 2000
# Spreads closer than this count as the same: 0.1 % of the time.
SPREAD_STEP = 0.001


@dataclass(frozen=True, slots=True)
class FinalsSamples:
    """One contestant's times: ``samples_us[i]`` was taken in round i, beside all the others.

    ``samples_mj`` are energies from rounds of their own, empty where none were taken. ``registers``
    are per thread, None where they are not known.
    """

    name: str
    config: Config | None
    kernel_sha256: str
    samples_us: tuple[float, ...]
    verification: Verification | None = None
    registers: int | None = None
    samples_mj: tuple[float, ...] = ()


Contestant = FinalsSamples | FinalsEntry
"""Samples to decide about, or an entry whose finals are decided again."""


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Median of paired ratios with its interval."""

    ratio: float
    low: float
    high: float

    @property
    def undecided(self) -> bool:
        """The interval contains 1: no difference was shown."""
        return self.low <= 1.0 <= self.high


def fastest_call(calls: Sequence[FinalsSamples]) -> FinalsSamples:
    """The call of a library that is the baseline: that with the least median over the rounds.

    Choosing it in the same rounds that it is compared in favours it: of calls that are as fast as
    each other the luckiest is the baseline, and no kernel looks faster for that.
    """
    return min(calls, key=lambda call: float(np.median(call.samples_us)))


def decide(
    baseline: Contestant,
    contestants: Sequence[Contestant],
    seed: int,
    objective: Objective = Objective.TIME,
) -> tuple[tuple[FinalsEntry, ...], FinalsEntry]:
    """The entries, the winner first, and the baseline's own entry.

    The winner is one of those that no other contestant is shown to beat: of these one that the
    baseline is not shown to beat either, then the one with the smallest spread of paired ratios (in
    steps of SPREAD_STEP), then the fewest registers, then the best paired ratio to the baseline.
    The others follow by that ratio. ``tied`` of an entry says
    that the interval of the winner's ratio over it contains 1; the winner itself is not tied with
    itself. All this is about the objective's figure; the ratios of the entries are of times.

    Raises ValueError without contestants, or when they have not all run the same number of rounds.
    """
    timed = (baseline, *contestants)
    rounds = {len(one.samples_us) for one in timed}
    rounds_of_costs = {len(_costs(one, objective)) for one in timed}
    if len(rounds) > 1 or len(rounds_of_costs) > 1:
        raise ValueError("every contestant of the finals runs in every round")
    if not contestants or 0 in rounds | rounds_of_costs:
        raise ValueError("finals need at least one contestant and one round")
    compare = _Comparison(objective, seed)
    ranked = sorted(contestants, key=lambda one: -compare(baseline, one).ratio)
    winner = _winner(baseline, ranked, compare)
    followers = [one for one in ranked if one is not winner]
    entries = tuple(
        _entry(
            one,
            paired_ratio(baseline.samples_us, one.samples_us, seed),
            tied=one is not winner and compare(one, winner).undecided,
        )
        for one in (winner, *followers)
    )
    is_tied = compare(baseline, winner).undecided
    if objective is Objective.TIME:
        # Where the two estimators are on different sides of 1, nothing was shown.
        medians = float(np.median(baseline.samples_us) / np.median(winner.samples_us))
        is_tied = is_tied or (medians - 1.0) * (entries[0].ratio - 1.0) <= 0.0
    return entries, _entry(baseline, PairedRatio(1.0, 1.0, 1.0), tied=is_tied)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Cost of one / cost of another, over the same resampled rounds for all pairs."""

    objective: Objective
    seed: int

    def __call__(self, over: Contestant, under: Contestant) -> PairedRatio:
        costs = (_costs(over, self.objective), _costs(under, self.objective))
        return paired_ratio(*costs, self.seed)


def _costs(contestant: Contestant, objective: Objective) -> Floats:
    """The figures that the objective minimises, round by round."""
    times = np.asarray(contestant.samples_us)
    if objective is Objective.TIME:
        return times
    energies = np.asarray(contestant.samples_mj)
    return energies if objective is Objective.ENERGY else energies * np.median(times)


def _winner(baseline: Contestant, ranked: Sequence[Contestant], compare: _Comparison) -> Contestant:
    leader = ranked[0]
    near = [one for one in ranked if one is leader or compare(one, leader).low <= 1.0]
    unbeaten = [
        one
        for one in near
        if all(compare(one, other).low <= 1.0 for other in near if other is not one)
    ]

    def preference(one: Contestant) -> tuple[bool, float, float]:
        is_slower = compare(baseline, one).high < 1.0
        ratios = _costs(baseline, compare.objective) / _costs(one, compare.objective)
        steps = round(relative_spread(ratios.tolist()) / SPREAD_STEP) if len(ratios) > 1 else 0
        return (is_slower, steps, math.inf if one.registers is None else one.registers)

    # Among equals min() takes the first, which has the best ratio.
    return min(unbeaten or [leader], key=preference)


def paired_ratio(
    over: Floats | Sequence[float], under: Floats | Sequence[float], seed: int
) -> PairedRatio:
    """``over`` / ``under``, round by round: above 1 means that ``under`` is the better one.

    Both have one figure of each round.

    The interval is a percentile bootstrap over rounds (Efron and Tibshirani, An Introduction to
    the Bootstrap, 1993, chapter 13). With few rounds it is the smallest and the largest ratio, and
    holds the true one less often: `autogemm.model.results.outcome.confidence_of`.
    """
    ratios = np.asarray(over) / np.asarray(under)
    if len(ratios) < MIN_BOOTSTRAP_ROUNDS:
        low, high = float(ratios.min()), float(ratios.max())
    else:
        medians = np.median(ratios[_resamples(len(ratios), seed)], axis=1)
        tail = (1 - CONFIDENCE) / 2
        low, high = (float(bound) for bound in np.quantile(medians, (tail, 1 - tail)))
    return PairedRatio(float(np.median(ratios)), low, high)


@functools.lru_cache(maxsize=4)
def _resamples(rounds: int, seed: int) -> NDArray[np.intp]:
    """Indices of rounds drawn with replacement, one row per resample."""
    return np.random.default_rng(seed).integers(0, rounds, size=(NUM_RESAMPLES, rounds))


def _entry(contestant: Contestant, ratio: PairedRatio, *, tied: bool) -> FinalsEntry:
    return FinalsEntry(
        name=contestant.name,
        config=contestant.config,
        kernel_sha256=contestant.kernel_sha256,
        samples_us=contestant.samples_us,
        ratio=ratio.ratio,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        tied=tied,
        verification=contestant.verification,
        registers=contestant.registers,
        samples_mj=contestant.samples_mj,
    )


def without_winner(
    finals: Finals,
    reason: str,
    seed: int,
    objective: Objective = Objective.TIME,
    status: Status = Status.WRONG_RESULT,
) -> Finals:
    """The same finals decided without their winner, which is disqualified."""
    lost, *others = finals.entries
    assert lost.config is not None, "only the baseline has no config"
    entries, baseline = decide(finals.baseline, others, seed, objective)
    ended = Disqualified(lost.config, lost.kernel_sha256, reason, status)
    disqualified = (*finals.disqualified, ended)
    return replace(
        finals, entries=entries, baseline=baseline, disqualified=disqualified, sustained=None
    )
