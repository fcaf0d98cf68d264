"""The model of a pool of candidates: a trend and a Gaussian process on log time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from autogemm.search.enumerated import Floats, Indices, UnitFeatures
from autogemm.search.gp import Kernel, Posterior
from autogemm.search.history import History, Told

# Log time above the best at which targets are cut off: how much slower a slow config is says
# little about where the fast ones are.
CLIP = 1.5
# A config is never believed to fail for sure.
MAX_RISK = 0.99
# How many observations the belief is worth that times are proportional to the expected ones.
EXPECTATION_WORTH = 3.0


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit to the first ``size`` observations.

    Log times are features times ``trend``, and what ``kernel`` describes.
    """

    size: int
    kernel: Kernel
    trend: Floats


@dataclass(frozen=True, slots=True)
class Targets:
    """Each row's standardised log time beside the trend, and 1 or 0 for failed or not (None: none).

    ``best`` is the least time with its trend. Log times were divided by ``unit``, which is their
    ``spread`` unless that is 0.
    """

    times: Floats
    failures: Floats | None
    best: float
    unit: float
    spread: float


class Model:
    """A posterior over ``pool``; ``rows`` are the configs it has observed, in its order.

    ``is_sample`` says that the pool is drawn from a larger space, ``climbed`` of which configs all
    neighbours were added to it.
    """

    def __init__(
        self, fit: Fit, features: UnitFeatures, rows: list[int], pool: Indices, is_sample: bool
    ) -> None:
        self.fit = fit
        self.is_sample = is_sample
        self.climbed: set[int] = set()
        self.pool = pool
        observed, candidates = features(rows), features(pool)
        self._posterior = Posterior(fit.kernel, observed, candidates)
        self._row_trend = list(observed @ fit.trend)
        self._pool_trend = candidates @ fit.trend
        self._features = features
        self._rows = rows
        self._num_told = fit.size
        # The features of the pool: what is observed next mostly comes from there.
        self._known = dict(zip(pool.tolist(), candidates, strict=True))
        self._promises: tuple[Floats, Floats, Floats] = (np.empty(0),) * 3

    def take_in(self, history: History) -> None:
        """Observe what has been told since the fit, and what is pending."""
        told = (one.index for one in history.told[self._num_told :])
        self._num_told = len(history.told)
        self._observe(dict.fromkeys([*told, *history.pending.values()]))

    def _observe(self, indices: Iterable[int]) -> None:
        known = set(self._rows)
        new = [index for index in indices if index not in known]
        if new:
            points = self._points(new)
            self._posterior.append(points)
            self._rows += new
            self._row_trend += (points @ self.fit.trend).tolist()

    def _points(self, indices: Sequence[int]) -> Floats:
        """The features of some configs."""
        beyond = [index for index in indices if index not in self._known]
        found = dict(zip(beyond, self._features(beyond), strict=True)) if beyond else {}
        return np.array([found[i] if i in found else self._known[i] for i in indices])

    def narrow(self, candidates: Indices) -> None:
        """Leave all but these positions of the pool out."""
        self.pool = self.pool[candidates]
        self._posterior.keep(candidates)
        self._pool_trend = self._pool_trend[candidates]
        self._known = {index: self._known[index] for index in self.pool.tolist()}

    def widen(self, indices: Sequence[int]) -> None:
        """Add these configs to the pool."""
        beyond = [index for index in dict.fromkeys(indices) if index not in self._known]
        if beyond:
            self.pool = np.concatenate([self.pool, np.array(beyond, dtype=np.int64)])
            points = self._features(beyond)
            self._known.update(zip(beyond, points, strict=True))
            self._posterior.widen(points)
            self._pool_trend = np.concatenate([self._pool_trend, points @ self.fit.trend])

    def targets(self, told: Sequence[Told]) -> Targets:
        """Return what is known of the rows; the rest is believed to be as the model predicts.

        Not known are the results of pending configs and the times of failed ones.
        """
        by_index = {one.index: one for one in told}
        rows = [by_index.get(index) for index in self._rows]
        finished = np.array([t is not None for t in rows])
        worked = np.array([t is not None and t.time_us is not None for t in rows])
        row_trend = np.array(self._row_trend)
        logs = log_targets([t for t in rows if t and t.time_us]) - row_trend[worked]
        times, failures = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        times[worked] = standardised(logs)
        failures[finished] = ~worked[finished]
        believed = self._posterior.believe(failures) if (failures == 1.0).any() else None
        # A single time says nothing of how much times differ; equal ones say that they do not.
        spread = float(logs.std()) if len(logs) > 1 else 1.0
        times = self._posterior.believe(times)
        best = float((times + row_trend / _unit(logs)).min())
        return Targets(times, believed, best, _unit(logs), spread)

    def score(self, targets: Targets, seen: NDArray[np.bool_], start: int = 0) -> Floats:
        """The merit of the candidates from ``start`` on: log of improvement x success."""
        mean, spread = self._posterior.predict(targets.times, start)
        gap = mean + self._pool_trend[start:] / targets.unit - targets.best
        score = log_expected_improvement(gap, spread, 0.0)
        risk = np.zeros(len(gap))
        if targets.failures is not None:
            risk = np.clip(self._posterior.mean(targets.failures, start), 0.0, MAX_RISK)
            score += np.log1p(-risk)
        score[seen[self.pool[start:]]] = -np.inf
        if start == 0:
            self._promises = gap * targets.spread, spread * targets.spread, 1.0 - risk
        return score

    def improvement(self, candidate: int) -> float:
        """Return the share of the best time that a candidate of the last `score` should save."""
        log_ratio, spread, success = (float(column[candidate]) for column in self._promises)
        return relative_improvement(log_ratio, spread) * success


def log_targets(told: Sequence[Told]) -> Floats:
    """Log times, cut off at CLIP above the best; a config that failed is put at the cut-off."""
    logs = np.array([math.inf if t.time_us is None else math.log(t.time_us) for t in told])
    best = float(logs.min(initial=math.inf))
    clipped: Floats = np.minimum(logs, best + CLIP if math.isfinite(best) else 0.0)
    return clipped


def fitted_slope(expected: Floats, logs: Floats) -> float:
    """The slope of log times over the log of expected ones: 1 where little is known, 0 rather than
    the other way round.
    """
    n = len(expected)
    if n < 2 or (variance := float(expected.var())) < 1e-9:
        return 1.0
    together = float((expected - expected.mean()) @ logs) / variance
    return max(0.0, (together + EXPECTATION_WORTH) / (n + EXPECTATION_WORTH))


def log_expected_improvement(mean: Floats, spread: Floats, best: float) -> Floats:
    """Log of the expected improvement below ``best``, exact enough where it underflows.

    Ament et al., Unexpected Improvements to Expected Improvement for Bayesian Optimization, 2023.
    """
    u = np.clip((best - mean) / spread, -1e3, None)
    log_gain = np.empty_like(u)
    above = u > 0.0
    near, far = u[above], u[~above]
    log_gain[above] = np.log(np.exp(_log_density(near)) + near * ndtr(near))
    # The density as a factor in front, because both terms vanish.
    share = 1.0 + far * np.exp(log_ndtr(far) - _log_density(far))
    log_gain[~above] = _log_density(far) + np.log(np.maximum(share, 1e-9))
    log_gain += np.log(spread)
    return log_gain


def relative_improvement(log_ratio: float, spread: float) -> float:
    """Expected share of the best time that a config saves, where it saves any.

    The config's time is that of the best times exp(normal with mean ``log_ratio`` and ``spread``).
    """
    if spread == 0.0:
        # All times so far are the same: nothing is in doubt.
        return max(0.0, -math.expm1(log_ratio))
    u = -log_ratio / spread
    slower = math.exp(log_ratio + 0.5 * spread * spread) * float(ndtr(u - spread))
    return max(0.0, float(ndtr(u)) - slower)


def _log_density(u: Floats) -> Floats:
    density: Floats = -0.5 * u * u - 0.5 * math.log(2.0 * math.pi)
    return density


def standardised(values: Floats) -> Floats:
    """Return the values at mean 0 and spread 1, or all 0."""
    standard: Floats = (values - values.mean()) / _unit(values) if len(values) else values
    return standard


def _unit(values: Floats) -> float:
    """Their spread; 1 where there is none, rounding aside."""
    spread = float(values.std())
    return spread if spread > 1e-9 else 1.0
