"""The statistics of finals: paired rounds, ratios with intervals, ties named as ties.

All contestants run once in every round, in random order, so that whatever drifts (clocks,
temperature) drifts for all of them alike; only ratios of times taken in the same round are used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autogemm.config import Config
from autogemm.outcome import FinalsEntry, Verification

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
# Below this many rounds a bootstrap of the median says less than the extremes do.
MIN_BOOTSTRAP_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Contestant:
    """One contestant's times: ``samples_us[i]`` was taken in round i, beside all the others."""

    name: str
    config: Config | None
    kernel_sha256: str
    samples_us: tuple[float, ...]
    verification: Verification | None = None


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


def decide(
    baseline: Contestant, contestants: Sequence[Contestant], seed: int
) -> tuple[tuple[FinalsEntry, ...], FinalsEntry]:
    """The entries, best first by paired ratio, and the baseline's own entry.

    ``tied`` of an entry says that the interval of the winner's ratio over it contains 1; the
    winner itself is not tied with itself. Raises ValueError without contestants, or when they
    have not all run the same number of rounds.
    """
    rounds = len(baseline.samples_us)
    if not contestants or rounds == 0:
        raise ValueError("finals need at least one contestant and one round")
    if any(len(contestant.samples_us) != rounds for contestant in contestants):
        raise ValueError("every contestant of the finals runs in every round")
    resamples = _resamples(rounds, seed)
    ranked = sorted(
        ((paired_ratio(baseline, one, resamples), one) for one in contestants),
        key=lambda pair: pair[0].ratio,
        reverse=True,
    )
    winner = ranked[0][1]
    entries = tuple(
        _entry(one, ratio, one is not winner and paired_ratio(one, winner, resamples).undecided)
        for ratio, one in ranked
    )
    tied_with_winner = paired_ratio(baseline, winner, resamples).undecided
    return entries, _entry(baseline, PairedRatio(1.0, 1.0, 1.0), tied_with_winner)


def paired_ratio(over: Contestant, under: Contestant, resamples: NDArray[np.intp]) -> PairedRatio:
    """``over`` time / ``under`` time: above 1 means that ``under`` is the faster one.

    The interval is a percentile bootstrap over rounds (Efron and Tibshirani, An Introduction to
    the Bootstrap, 1993, chapter 13); with few rounds it is the smallest and largest ratio.
    """
    ratios = np.asarray(over.samples_us) / np.asarray(under.samples_us)
    if len(ratios) < MIN_BOOTSTRAP_ROUNDS:
        low, high = float(ratios.min()), float(ratios.max())
    else:
        medians = np.median(ratios[resamples], axis=1)
        tail = (1 - CONFIDENCE) / 2
        low, high = (float(bound) for bound in np.quantile(medians, (tail, 1 - tail)))
    return PairedRatio(float(np.median(ratios)), low, high)


def _resamples(rounds: int, seed: int) -> NDArray[np.intp]:
    """Indices of rounds drawn with replacement, one row per resample."""
    return np.random.default_rng(seed).integers(0, rounds, size=(NUM_RESAMPLES, rounds))


def _entry(contestant: Contestant, ratio: PairedRatio, tied: bool) -> FinalsEntry:
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
    )
