"""Proposes the config of the largest expected improvement, by a Gaussian process on log time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr
from threadpoolctl import ThreadpoolController

from autogemm.search.enumerated import (
    EnumeratedSpace,
    Floats,
    Indices,
    UnitFeatures,
    neighbours,
)
from autogemm.search.gp import Kernel, Posterior, fit
from autogemm.search.history import History, Told

# Log time above the best at which targets are cut off: how much slower a slow config is says
# little about where the fast ones are.
CLIP = 1.5
# A config is never believed to fail for sure.
MAX_RISK = 0.99
# Length scales are fitted anew when the data have grown by this factor.
REFIT_GROWTH = 1.2
# The model predicts all unseen configs of a space up to this size, a sample of a larger one, and
# what lies near the best config and uphill from the best of the sample.
MAX_POOL = 20_000
MAX_CLIMB = 8
# Every other proposal stays near the best config: the model is often surer than it should be, and
# step by step from the best it need not be right.
LOCAL_EVERY = 2
# Above this many observations the model keeps the fastest half and a sample of the rest.
MAX_OBSERVED = 400
# Length scales are fitted to that many of them, chosen in the same way: the cost grows cubically.
MAX_FITTED = 160


class Surrogate:
    """Picks the next config of a space from its history alone.

    What is random is drawn from the seed and the number of trials told, so that a search continued
    from its study proposes what an uninterrupted one would have.
    """

    def __init__(self, space: EnumeratedSpace, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._features = UnitFeatures(space, MAX_POOL)
        self._model: _Model | None = None
        self._threads = ThreadpoolController()
        self._neighbours: dict[tuple[int, int], list[int]] = {}
        # By the best candidate when last asked, as a share of the best time.
        self.expected_improvement: float | None = None

    @property
    def is_blind(self) -> bool:
        """All configs look the same: there is nothing to learn from."""
        return len(self._features) == 0

    def propose(self, history: History) -> int:
        """Index of an unseen config. There must be one, and something that worked."""
        # The matrices are small: more BLAS threads cost more than they bring, and they would take
        # the cores from the compiler.
        with self._threads.limit(limits=1, user_api="blas"):
            return self._propose(history)

    def _propose(self, history: History) -> int:
        model = self._fitted(history)
        model.take_in(history)
        is_sample = history.num_unseen > len(model.pool)
        if is_sample and history.best is not None:
            for moves in (1, 2):
                model.widen(self._near(history.best.index, moves))
        targets = model.targets(history)
        score = model.score(targets, history.seen)
        self.expected_improvement = model.improvement(int(np.argmax(score)))
        if (len(history.told) + len(history.pending)) % LOCAL_EVERY == 0:
            score = self._only_next_to_best(model, history, score)
        elif is_sample:
            score = self._climb(model, history, score, targets)
        return int(model.pool[int(np.argmax(score))])

    def _only_next_to_best(self, model: "_Model", history: History, score: Floats) -> Floats:
        """Rules out all but what is one parameter from the best config, or two if none is left."""
        if history.best is None:
            return score
        for moves in (1, 2):
            near = np.isin(model.pool, self._near(history.best.index, moves))
            if (near & ~history.seen[model.pool]).any():
                return np.where(near, score, -np.inf)
        return score

    def _near(self, index: int, moves: int) -> list[int]:
        if (index, moves) not in self._neighbours:
            self._neighbours[index, moves] = neighbours(self._space, index, moves)
        return self._neighbours[index, moves]

    def _climb(
        self, model: "_Model", history: History, score: Floats, targets: "_Targets"
    ) -> Floats:
        """Goes uphill from the best of a sampled pool, by one parameter at a time."""
        for _ in range(MAX_CLIMB):
            top = int(np.argmax(score))
            model.widen(self._near(int(model.pool[top]), 1))
            more = model.score(targets, history.seen, start=len(score))
            score = np.concatenate([score, more])
            if int(np.argmax(score)) == top:
                break
        return score

    def _fitted(self, history: History) -> "_Model":
        fit_size = last_fit_size(len(history.told))
        model = self._model
        if model is None or model.fit_size != fit_size or history.seen[model.pool].all():
            model = self._model = self._fit(history, fit_size)
        return model

    def _fit(self, history: History, fit_size: int) -> "_Model":
        told = history.told[:fit_size]
        rng = np.random.default_rng([self._seed, fit_size])
        kept = [told[i] for i in _informative(log_targets(told), MAX_OBSERVED, rng)]
        worked = [t for t in kept if t.time_us is not None]
        worked = [worked[i] for i in _informative(log_targets(worked), MAX_FITTED, rng)]
        columns = self._features([t.index for t in worked])
        times = _standardised(log_targets(worked))
        kernel = fit(columns, times, self._features.directions)
        rows = [t.index for t in kept]
        return _Model(fit_size, kernel, self._features, rows, self._pool(history, rng))

    def _pool(self, history: History, rng: np.random.Generator) -> Indices:
        if history.num_unseen > MAX_POOL:
            sample = np.sort(rng.choice(len(self._space), MAX_POOL, replace=False))
            if not history.seen[sample].all():
                return sample[~history.seen[sample]]
        return np.flatnonzero(~history.seen)


class _Model:
    """A posterior over ``pool``; ``rows`` are the configs it has observed, in its order."""

    def __init__(
        self, fit_size: int, kernel: Kernel, features: UnitFeatures, rows: list[int], pool: Indices
    ) -> None:
        self.fit_size = fit_size
        self.pool = pool
        self._posterior = Posterior(kernel, features(rows), features(pool))
        self._features = features
        self._rows = rows
        self._num_told = fit_size
        self._in_pool = set(pool.tolist())
        self._promises: tuple[Floats, Floats, Floats] = (np.empty(0),) * 3

    def take_in(self, history: History) -> None:
        """Observe what has been told since the fit, and what is pending."""
        self._observe(told.index for told in history.told[self._num_told :])
        self._num_told = len(history.told)
        self._observe(history.pending.values())

    def _observe(self, indices: Iterable[int]) -> None:
        known = set(self._rows)
        for index in indices:
            if index not in known:
                self._posterior.append(self._features([index])[0])
                self._rows.append(index)

    def widen(self, indices: Sequence[int]) -> None:
        """Add these configs to the pool."""
        beyond = [index for index in indices if index not in self._in_pool]
        if beyond:
            self._in_pool.update(beyond)
            self.pool = np.concatenate([self.pool, np.array(beyond, dtype=np.int64)])
            self._posterior.widen(self._features(beyond))

    def targets(self, history: History) -> "_Targets":
        """What is known of the rows; what is not is believed to be as the rest predicts.

        Not known are the results of pending configs and the times of failed ones.
        """
        told = {t.index: t for t in history.told}
        rows = [told.get(index) for index in self._rows]
        finished = np.array([t is not None for t in rows])
        worked = np.array([t is not None and t.time_us is not None for t in rows])
        logs = log_targets([t for t in rows if t and t.time_us])
        times, failures = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        times[worked] = _standardised(logs)
        failures[finished] = ~worked[finished]
        believed = self._posterior.believe(failures) if (failures == 1.0).any() else None
        # A single time says nothing of how much times differ; equal ones say that they do not.
        unit = float(logs.std()) if len(logs) > 1 else 1.0
        return _Targets(self._posterior.believe(times), believed, unit)

    def score(self, targets: "_Targets", seen: NDArray[np.bool_], start: int = 0) -> Floats:
        """How promising the candidates from ``start`` on are: log of improvement x success."""
        mean, spread = self._posterior.predict(targets.times, start)
        gap = mean - float(targets.times.min())
        score = log_expected_improvement(gap, spread, 0.0)
        risk = np.zeros(len(gap))
        if targets.failures is not None:
            risk = np.clip(self._posterior.mean(targets.failures, start), 0.0, MAX_RISK)
            score += np.log1p(-risk)
        score[seen[self.pool[start:]]] = -np.inf
        if start == 0:
            self._promises = gap * targets.unit, spread * targets.unit, 1.0 - risk
        return score

    def improvement(self, candidate: int) -> float:
        """What a candidate of the last full `score` would save on average, as a share of the best
        time.
        """
        log_ratio, spread, success = (float(column[candidate]) for column in self._promises)
        return relative_improvement(log_ratio, spread) * success


@dataclass(frozen=True, slots=True)
class _Targets:
    """Of each row: the standardised log time, and 1 or 0 for failed or not (None: none failed).

    ``unit`` is the spread of log times that was made 1; 1 while fewer than two are known.
    """

    times: Floats
    failures: Floats | None
    unit: float


def last_fit_size(num_told: int) -> int:
    """The largest number of observations, not above ``num_told``, at which the kernel is fitted."""
    size = 1
    while (following := max(size + 1, math.ceil(size * REFIT_GROWTH))) <= num_told:
        size = following
    return size


def log_targets(told: Sequence[Told]) -> Floats:
    """Log times, cut off at CLIP above the best; a config that failed is put at the cut-off."""
    logs = np.array([math.inf if t.time_us is None else math.log(t.time_us) for t in told])
    best = float(logs.min(initial=math.inf))
    clipped: Floats = np.minimum(logs, best + CLIP if math.isfinite(best) else 0.0)
    return clipped


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


def _informative(targets: Floats, most: int, rng: np.random.Generator) -> Indices:
    """Positions that are kept if there are more than ``most``: the fastest half, then a sample."""
    if len(targets) <= most:
        return np.arange(len(targets))
    by_time = np.argsort(targets, kind="stable")
    fastest, rest = np.split(by_time, [most // 2])
    sample = rng.choice(rest, most - len(fastest), replace=False)
    return np.sort(np.concatenate([fastest, sample]))


def _standardised(values: Floats) -> Floats:
    standard: Floats = (values - values.mean()) / _unit(values) if len(values) else values
    return standard


def _unit(values: Floats) -> float:
    """Their spread; 1 where there is none, rounding aside."""
    spread = float(values.std())
    return spread if spread > 1e-9 else 1.0
