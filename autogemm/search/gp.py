"""A Gaussian process in plain NumPy: Matern 5/2, one length scale a direction, fitted by MAP.

Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006: algorithm 2.1 for the
posterior, equation 5.9 for the gradient. The priors keep hundreds of length scales from overfitting
ten points; the one on lengths grows with their number as in Hvarfner et al., Vanilla Bayesian
Optimization Performs Great in High Dimensions, 2024.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from autogemm.search.enumerated import Floats

Singles = NDArray[np.float32]

SQRT5 = math.sqrt(5.0)
# Means and spreads of the log hyperparameters, for targets and features of unit spread;
# half the log of the number of lengths is added to the mean of each length.
LENGTH_PRIOR = (0.7, 0.7)
VARIANCE_PRIOR = (1.0, 0.5)
NOISE_PRIOR = (math.log(1e-3), 1.5)
# Candidates of which the posterior is made in one step.
POOL_BLOCK = 2048
NOISE_BOUNDS = (math.log(1e-5), math.log(0.1))


@dataclass(frozen=True, slots=True)
class Kernel:
    """Covariance of the function (``variance``, Matern 5/2) and of the noise on top of it.

    The distance of two configs is the length of (a - b) ``metric``; ``metric`` has one row for
    each feature.
    """

    metric: Floats
    variance: float
    noise: float

    def __call__(self, a: Floats, b: Floats) -> Floats:
        """Covariance between rows of ``a`` and rows of ``b``, without noise."""
        scaled = _distances(a @ self.metric, b @ self.metric)
        result: Floats = np.exp(-scaled)
        result *= self.variance * (1.0 + scaled + scaled * scaled / 3.0)
        return result


def fit(x: Floats, y: Floats, directions: Floats, max_iterations: int = 40) -> Kernel:
    """The kernel of the largest posterior density for targets of mean 0 and spread 1.

    ``directions``, of shape [features, directions], are the combinations of features of which each
    has a length scale. With no data the result is the kernel of the largest prior density.
    """
    num_lengths = directions.shape[1]
    length_mean = LENGTH_PRIOR[0] + 0.5 * math.log(num_lengths)
    means = np.array([length_mean] * num_lengths + [VARIANCE_PRIOR[0], NOISE_PRIOR[0]])
    spreads = np.array([LENGTH_PRIOR[1]] * num_lengths + [VARIANCE_PRIOR[1], NOISE_PRIOR[1]])
    bounds = [(-4.0, 8.0)] * num_lengths + [(-3.0, 3.0), NOISE_BOUNDS]
    along = x @ directions

    def objective(log_parameters: Floats) -> tuple[float, Floats]:
        value, gradient = _negative_log_likelihood(log_parameters, along, y)
        offset = (log_parameters - means) / spreads
        return value + 0.5 * float(offset @ offset), gradient + offset / spreads

    found = minimize(
        objective,
        means,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": max_iterations},
    )
    best = np.exp(found.x)
    # The same distances with no more columns than features: A A' = R' R for A' = Q R.
    _, triangle = np.linalg.qr((directions / best[:-2]).T)
    return Kernel(triangle.T, float(best[-2]), float(best[-1]))


def _negative_log_likelihood(log_parameters: Floats, x: Floats, y: Floats) -> tuple[float, Floats]:
    values = np.exp(log_parameters)
    lengths, variance, noise = values[:-2], values[-2], values[-1]
    scaled = x / lengths
    r = _distances(scaled, scaled)
    decay = variance * np.exp(-r)
    covariance = decay * (1.0 + r + r * r / 3.0)
    smooth_trace = covariance.copy()
    covariance[np.diag_indices_from(covariance)] += noise
    factor = cho_factor(covariance, lower=True, check_finite=False)
    alpha = cho_solve(factor, y, check_finite=False)
    inverse = cho_solve(factor, np.eye(len(y)), check_finite=False)
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor[0])).sum())
    # d value / d covariance = residual / 2.
    residual = inverse - np.outer(alpha, alpha)
    weight = residual * decay * (1.0 + r) * (5.0 / 3.0)
    # sum_ij weight_ij (x_i - x_j)^2 of each feature, without an n x n array for each of them.
    by_length = (scaled**2).T @ weight.sum(axis=1) - np.einsum("if,if->f", scaled, weight @ scaled)
    by_variance = 0.5 * float((residual * smooth_trace).sum())
    by_noise = 0.5 * noise * float(np.trace(residual))
    return value, np.concatenate([by_length, [by_variance, by_noise]])


def _distances(a: Floats, b: Floats) -> Floats:
    """Between rows, times sqrt(5); cut off far beyond where exp() vanishes: 0 * infinity is NaN."""
    return np.asarray(np.minimum(SQRT5 * cdist(a, b), 1e3))


class Posterior:
    """The posterior of a pool of candidates, extended row by row.

    With the kernel fixed, an observation more adds one row to the Cholesky factor L and one to
    V = L^-1 K(observations, pool): O(observations x pool) instead of a new factorisation.

    Arrays as long as the pool are in single precision, which halves their traffic; times are less
    precise than that.
    """

    def __init__(self, kernel: Kernel, observed: Floats, pool: Floats) -> None:
        self.kernel = kernel
        self.size = len(observed)
        self._x = observed
        self._pool = self._scaled(pool)
        covariance = kernel(observed, observed)
        covariance[np.diag_indices(self.size)] += kernel.noise
        self._factor = np.linalg.cholesky(covariance)
        self._rows = self._whitened(self._pool)
        self._explained = np.einsum("np,np->p", self._rows, self._rows)

    def append(self, point: Floats) -> None:
        """One observation more."""
        n, num_candidates = self.size, len(self._pool)
        self._reserve(n + 1, num_candidates)
        link = _solve_lower(self._factor[:n, :n], self.kernel(point[None], self._x[:n])[0])
        rest = self.kernel.variance + self.kernel.noise - float(link @ link)
        # At least the noise in exact arithmetic.
        diagonal = math.sqrt(max(rest, self.kernel.noise))
        row = self._across(point[None], self._pool)[0]
        row -= link.astype(np.float32) @ self._rows[:n, :num_candidates]
        row /= np.float32(diagonal)
        self._x[n] = point
        self._factor[n, :n] = link
        self._factor[n, n] = diagonal
        self._rows[n, :num_candidates] = row
        self._explained += row * row
        self.size = n + 1

    def widen(self, points: Floats) -> None:
        """More candidates, at the end of the pool."""
        n, old = self.size, len(self._pool)
        scaled = self._scaled(points)
        self._pool = np.concatenate([self._pool, scaled])
        self._reserve(n, len(self._pool))
        rows = self._whitened(scaled)
        self._rows[:n, old : len(self._pool)] = rows
        self._explained = np.concatenate([self._explained, np.einsum("np,np->p", rows, rows)])

    def believe(self, targets: Floats) -> Floats:
        """Targets with each NaN replaced by the mean that the others predict there."""
        unknown = np.flatnonzero(np.isnan(targets))
        if not len(unknown):
            return targets
        n = self.size
        unit = np.zeros((n, len(unknown)))
        unit[unknown, np.arange(len(unknown))] = 1.0
        precision = cho_solve((self._factor[:n, :n], True), unit, check_finite=False)
        filled = np.where(np.isnan(targets), 0.0, targets)
        filled[unknown] = -np.linalg.solve(precision[unknown], precision.T @ filled)
        return filled

    def mean(self, targets: Floats, start: int = 0) -> Floats:
        """Mean over the pool from ``start`` on, given the targets of all observations."""
        n, num_candidates = self.size, len(self._pool)
        white = _solve_lower(self._factor[:n, :n], targets)
        mean = white.astype(np.float32) @ self._rows[:n, start:num_candidates]
        return mean.astype(np.float64)

    def predict(self, targets: Floats, start: int = 0) -> tuple[Floats, Floats]:
        """Mean and standard deviation over the pool from ``start`` on."""
        variance = np.maximum(self.kernel.variance - self._explained[start:], 1e-6)
        return self.mean(targets, start), np.sqrt(variance.astype(np.float64))

    def _scaled(self, points: Floats) -> Singles:
        scaled: Singles = (points @ self.kernel.metric).astype(np.float32)
        return scaled

    def _across(self, points: Floats, scaled_pool: Singles) -> Singles:
        """Covariance between points and candidates: the kernel in single precision."""
        scaled = self._scaled(points)
        # (a - b)^2 = a^2 + b^2 - 2 a b: a matrix product instead of all differences.
        r = scaled @ scaled_pool.T
        r *= -2.0
        r += np.einsum("pf,pf->p", scaled_pool, scaled_pool)
        r += np.einsum("nf,nf->n", scaled, scaled)[:, None]
        np.maximum(r, 0.0, out=r)
        np.sqrt(r, out=r)
        r *= np.float32(SQRT5)
        # Far beyond where exp() vanishes: infinity would make 0 * infinity below.
        np.minimum(r, 80.0, out=r)
        result: Singles = np.exp(-r)
        r += r * r / 3.0
        r += 1.0
        result *= r
        result *= np.float32(self.kernel.variance)
        return result

    def _whitened(self, scaled_pool: Singles) -> Singles:
        n = self.size
        rows = np.empty((n, len(scaled_pool)), dtype=np.float32)
        # In blocks: LAPACK keeps Python's lock, and others must hand candidates to the GPU.
        for start in range(0, len(scaled_pool), POOL_BLOCK):
            block = slice(start, start + POOL_BLOCK)
            covariance = self._across(self._x[:n], scaled_pool[block])
            rows[:, block] = _solve_lower(self._factor[:n, :n], covariance.astype(np.float64))
        return rows

    def _reserve(self, size: int, num_candidates: int) -> None:
        """Room for so many observations and candidates, with some to spare."""
        n = self.size
        old_size, old_width = self._rows.shape
        if size <= old_size and num_candidates <= old_width:
            return
        room = size + size // 4 + 32
        width = old_width if num_candidates <= old_width else num_candidates + 4096
        # Zeros: a product of a slice may load numbers beside it, and warn where they are garbage.
        x, factor = np.zeros((room, self._x.shape[1])), np.zeros((room, room))
        rows = np.zeros((room, width), dtype=np.float32)
        x[:n], factor[:n, :n] = self._x[:n], self._factor[:n, :n]
        rows[:n, :old_width] = self._rows[:n]
        self._x, self._factor, self._rows = x, factor, rows


def _solve_lower(factor: NDArray[np.floating[Any]], right: Floats) -> Floats:
    solution: Floats = solve_triangular(factor, right, lower=True, check_finite=False)
    return solution
