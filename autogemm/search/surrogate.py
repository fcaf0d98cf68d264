"""Proposes the config of the largest expected improvement."""

import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from autogemm.search.enumerated import EnumeratedSpace, Floats, Indices, UnitFeatures, neighbours
from autogemm.search.gp import fit
from autogemm.search.history import History, Told
from autogemm.search.model import Fit, Model, Targets, fitted_slope, log_targets, standardised

# Length scales are fitted anew when the data have grown by this factor.
REFIT_GROWTH = 1.2
# The model predicts all unseen configs of a space up to this size, a sample of a larger one, and
# what lies near the best config and uphill from the best of the sample.
MAX_POOL = 20_000
MAX_CLIMB = 8
# A model keeps at most so many candidates, those with the largest acquisition: the others are not
# proposed before the next fit, and a proposal's cost is proportional to the pool. The neighbours
# that climbing adds are dropped likewise once the pool has twice as many.
MAX_KEPT = 4096
# Climbing starts from so many of the best candidates at once: features of hundreds of configs take
# little longer than those of ten, and the next proposals climb from the same ones.
CLIMBERS = 32
# Every other proposal stays near the best config: the model is often surer than it should be, and
# step by step from the best it need not be right.
LOCAL_EVERY = 2
# Above this many observations the model keeps the fastest half and a sample of the rest.
MAX_OBSERVED = 400
# Length scales are fitted to that many of them, chosen in the same way: the cost grows cubically.
MAX_FITTED = 160
# A fit to fewer takes no longer than the next proposal; one to hundreds takes some tenths of a
# second, in which a GPU measures many candidates.
FEWEST_MEANWHILE = 32


class _OneBlasThread:
    """While it is entered, by any number of threads, BLAS uses one thread for a call.

    The matrices are small: more BLAS threads cost more than they bring, and they would take the
    cores from the compiler. The limit is one of the process: the first sets it, the last lifts it.
    """

    def __init__(self) -> None:
        self._controller = ThreadpoolController()
        self._lock = threading.Lock()
        self._num_inside = 0
        self._limit = ExitStack()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within it the limit holds."""
        with self._lock:
            self._num_inside += 1
            if self._num_inside == 1:
                self._limit.enter_context(self._controller.limit(limits=1, user_api="blas"))
        try:
            yield
        finally:
            with self._lock:
                self._num_inside -= 1
                if self._num_inside == 0:
                    self._limit.close()


@cache
def _one_blas_thread() -> _OneBlasThread:
    return _OneBlasThread()


class Surrogate:
    """Picks the next config of a space from its history alone.

    Random numbers depend on the seed and the number of reported trials, so that a search that is
    continued from its study proposes the same configs as an uninterrupted one.

    With ``fits_meanwhile`` proposals go on, by the model that there is, while another one is fitted
    to more observations: then they also depend on how long that takes.
    """

    def __init__(self, space: EnumeratedSpace, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._features = UnitFeatures(space, MAX_POOL)
        self._model: Model | None = None
        self.fits_meanwhile = False
        self._fit_thread: ThreadPoolExecutor | None = None
        self._fitting: Future[Model] | None = None
        self._neighbours: dict[tuple[int, int], list[int]] = {}
        # By the best candidate when last asked, as a share of the best time.
        self.expected_improvement: float | None = None

    @property
    def is_blind(self) -> bool:
        """All configs look the same: there is nothing to learn from."""
        return len(self._features) == 0

    @property
    def expects(self) -> bool:
        """Whether the space says which times it expects."""
        return bool(self._features.expectation.any())

    def most_promising(self, indices: Sequence[int]) -> int:
        """The one that the space expects to be fastest; the first where it expects nothing."""
        expected = self._features(indices) @ self._features.expectation
        return indices[int(np.argmin(expected))]

    def propose(self, history: History) -> int:
        """Index of an unseen config. There must be one, and something that worked."""
        with _one_blas_thread().entered():
            return self._propose(history)

    def _propose(self, history: History) -> int:
        model = self._fitted(history)
        model.take_in(history)
        if history.num_unseen > len(model.pool) and history.best is not None:
            best = history.best.index
            model.widen([*self._near(best, 1), *self._near(best, 2)])
        targets = model.targets(history.told)
        score = model.score(targets, history.seen)
        self.expected_improvement = model.improvement(int(np.argmax(score)))
        if (len(history.told) + len(history.pending)) % LOCAL_EVERY == 0:
            choice = self._only_next_to_best(model, history, score)
        else:
            if model.is_sample:
                score = self._climb(model, targets, history.seen, score)
            choice = score
        index = int(model.pool[int(np.argmax(choice))])
        if len(score) > 2 * MAX_KEPT:
            model.narrow(_largest(score, MAX_KEPT))
        return index

    def _only_next_to_best(self, model: Model, history: History, score: Floats) -> Floats:
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
        self, model: Model, targets: Targets, seen: NDArray[np.bool_], score: Floats
    ) -> Floats:
        """Goes uphill from the best of a sampled pool, by one parameter at a time."""
        for _ in range(MAX_CLIMB):
            if int(model.pool[int(np.argmax(score))]) in model.climbed:
                break
            tops = model.pool[_largest(score, min(CLIMBERS, len(score)))].tolist()
            new = [top for top in tops if top not in model.climbed]
            model.climbed.update(new)
            model.widen([index for top in new for index in self._near(top, 1)])
            score = np.concatenate([score, model.score(targets, seen, start=len(score))])
        return score

    def _fitted(self, history: History) -> Model:
        fit_size = last_fit_size(len(history.told))
        if self._fitting is not None and self._fitting.done():
            self._model, self._fitting = self._fitting.result(), None
        model = self._model
        if model is not None and not history.seen[model.pool].all():
            if model.fit.size == fit_size:
                return model
            if self.fits_meanwhile and fit_size >= FEWEST_MEANWHILE:
                if self._fitting is None:
                    # Copies: the history goes on meanwhile.
                    told, seen = history.told[:fit_size], history.seen.copy()
                    self._fitting = self._begun(told, seen)
                return model
        # One that is being fitted would be out of date.
        self._fitting = None
        self._model = self._fit(history.told[:fit_size], history.seen)
        return self._model

    def _begun(self, told: list[Told], seen: NDArray[np.bool_]) -> Future[Model]:
        if self._fit_thread is None:
            self._fit_thread = ThreadPoolExecutor(1, thread_name_prefix="fit")
        return self._fit_thread.submit(self._fit, told, seen)

    def _fit(self, told: list[Told], seen: NDArray[np.bool_]) -> Model:
        with _one_blas_thread().entered():
            return self._fit_of(told, seen)

    def _fit_of(self, told: list[Told], seen: NDArray[np.bool_]) -> Model:
        fit_size = len(told)
        rng = np.random.default_rng([self._seed, fit_size])
        kept = [told[i] for i in _informative(log_targets(told), MAX_OBSERVED, rng)]
        worked = [t for t in kept if t.time_us is not None]
        worked = [worked[i] for i in _informative(log_targets(worked), MAX_FITTED, rng)]
        columns = self._features([t.index for t in worked])
        logs = log_targets(worked)
        expectation = self._features.expectation
        trend = fitted_slope(columns @ expectation, logs) * expectation
        kernel = fit(columns, standardised(logs - columns @ trend), self._features.directions)
        rows = [t.index for t in kept]
        fitted = Fit(fit_size, kernel, trend)
        pool = self._pool(seen, rng)
        is_sample = int(np.count_nonzero(~seen)) > len(pool)
        model = Model(fitted, self._features, rows, pool, is_sample)
        self._begin_with(model, told, seen)
        return model

    def _begin_with(self, model: Model, told: list[Told], seen: NDArray[np.bool_]) -> None:
        """Leave what is not promising out of the pool; where it is a sample, look beyond it."""
        if all(one.time_us is None for one in told):
            return
        targets = model.targets(told)
        score = model.score(targets, seen)
        if len(score) > MAX_KEPT:
            model.narrow(_largest(score, MAX_KEPT))
        if model.is_sample:
            self._climb(model, targets, seen, model.score(targets, seen))

    def _pool(self, seen: NDArray[np.bool_], rng: np.random.Generator) -> Indices:
        if np.count_nonzero(~seen) > MAX_POOL:
            sample = np.sort(rng.choice(len(self._space), MAX_POOL, replace=False))
            if not seen[sample].all():
                return sample[~seen[sample]]
        return np.flatnonzero(~seen)


def _largest(score: Floats, most: int) -> Indices:
    """Positions of so many of the largest, in their order."""
    return np.sort(np.argpartition(score, -most)[-most:])


def last_fit_size(num_told: int) -> int:
    """The largest number of observations, not above ``num_told``, at which the kernel is fitted."""
    size = 1
    while (following := max(size + 1, math.ceil(size * REFIT_GROWTH))) <= num_told:
        size = following
    return size


def _informative(targets: Floats, most: int, rng: np.random.Generator) -> Indices:
    """Positions that are kept if there are more than ``most``: the fastest half, then a sample."""
    if len(targets) <= most:
        return np.arange(len(targets))
    by_time = np.argsort(targets, kind="stable")
    fastest, rest = np.split(by_time, [most // 2])
    sample = rng.choice(rest, most - len(fastest), replace=False)
    return np.sort(np.concatenate([fastest, sample]))
