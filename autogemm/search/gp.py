"""A Gaussian process in plain NumPy: Matern 5/2, one length scale a direction, fitted by MAP.

Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006: algorithm 2.1 for the
posterior, equation 5.9 for the gradient. The priors keep hundreds of length scales from overfitting
ten points; the one on lengths grows with their number as in Hvarfner et al., Vanilla Bayesian
Optimization Performs Great in High Dimensions, 2024.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from autogemm.search.enumerated import Floats, Indices

Singles = NDArray[np.float32]

SQRT5 = math.sqrt(5.0)
# Means and spreads of the log hyperparameters, for targets and features of unit spread;
# half the log of the number of lengths is added to the mean of each length.
LENGTH_PRIOR = (0.7, 0.7)
VARIANCE_PRIOR = (1.0, 0.5)
NOISE_PRIOR = (math.log(1e-3), 1.5)
# Candidates whose posterior is computed in one step.
POOL_BLOCK = 2048
# Spare columns that are allocated when the pool outgrows its arrays.
WIDTH_TO_SPARE = 2048
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

    def objective(log_parameters: Floats) -> tuple[float, Floats]:
        value, gradient = _negative_log_likelihood(log_parameters, x, y, directions)
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


def _negative_log_likelihood(
    log_parameters: Floats, x: Floats, y: Floats, directions: Floats
) -> tuple[float, Floats]:
    """The value and its gradient.

    Directions outnumber features by far: all that depends on a pair of observations is made of
    features, by the matrix D diag(1 / length^2) D' for directions D.
    """
    values = np.exp(log_parameters)
    weights, variance, noise = values[:-2] ** -2.0, values[-2], values[-1]
    r = _scaled_distances(x, (directions * weights) @ directions.T)
    decay = variance * np.exp(-r)
    covariance = decay * (1.0 + r + r * r / 3.0)
    smooth_trace = covariance.copy()
    covariance[np.diag_indices_from(covariance)] += noise
    factor = _cholesky(covariance)
    # LAPACK complains of a matrix without rows.
    half = dpotri(factor, lower=1)[0] if len(y) else factor
    inverse = half + np.tril(half, -1).T
    alpha = inverse @ y
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor)).sum())
    # d value / d covariance = residual / 2.
    residual = inverse - np.outer(alpha, alpha)
    weight = residual * decay * (1.0 + r) * (5.0 / 3.0)
    # sum_ij weight_ij (x_i - x_j) (x_i - x_j)' / 2, of which each direction takes its part.
    scatter = x.T @ (weight.sum(axis=1)[:, None] * x - weight @ x)
    by_length = np.einsum("fd,fd->d", directions, scatter @ directions) * weights
    by_variance = 0.5 * float((residual * smooth_trace).sum())
    by_noise = 0.5 * noise * float(np.trace(residual))
    return value, np.concatenate([by_length, [by_variance, by_noise]])


def _scaled_distances(x: Floats, weights: Floats) -> Floats:
    """sqrt(5 (a - b)' weights (a - b)) between rows, cut off as in `_distances`."""
    across = x @ weights @ x.T
    squares = np.diag(across)
    r = squares[:, None] + squares - across - across.T
    r *= 5.0
    np.fill_diagonal(r, 0.0)
    np.sqrt(np.clip(r, 0.0, 1e6, out=r), out=r)
    return r


def _cholesky(covariance: Floats) -> Floats:
    """Its lower factor. Raises LinAlgError where it is not positive definite."""
    factor, failed = dpotrf(covariance, lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError(f"the covariance of {len(covariance)} results is not definite")
    lower: Floats = factor
    return lower


def _distances(a: Floats, b: Floats) -> Floats:
    """Between rows, times sqrt(5); cut off far beyond where exp() vanishes: 0 * infinity is NaN."""
    return np.asarray(np.minimum(SQRT5 * cdist(a, b), 1e3))


class Posterior:
    """The posterior of a pool of candidates, extended by rows.

    With the kernel fixed, an observation more adds one row to the Cholesky factor L, which is kept
    as its inverse, and one to V = L^-1 K(observations, pool): O(observations x pool) instead of a
    new factorisation. Nearly all of it is products of matrices, during which NumPy releases
    Python's lock: other threads hand candidates to the GPU.

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
        self._inverse: Floats = dtrtri(_cholesky(covariance), lower=1)[0]
        self._rows = self._whitened(self._pool)
        self._explained = np.einsum("np,np->p", self._rows, self._rows)

    def append(self, points: Floats) -> None:
        """More observations, with targets from here on."""
        n, end, num_candidates = self.size, self.size + len(points), len(self._pool)
        self._reserve(end, num_candidates)
        inverse = self._inverse[:n, :n]
        link = self.kernel(points, self._x[:n]) @ inverse.T
        rest = self.kernel(points, points) - link @ link.T
        rest[np.diag_indices_from(rest)] += self.kernel.noise
        own: Floats = dtrtri(_cholesky(rest), lower=1)[0]
        rows = self._across(points, self._pool)
        rows -= link.astype(np.float32) @ self._rows[:n, :num_candidates]
        rows = own.astype(np.float32) @ rows
        self._x[n:end] = points
        self._inverse[n:end, :n] = -own @ link @ inverse
        self._inverse[n:end, n:end] = own
        self._rows[n:end, :num_candidates] = rows
        self._explained += np.einsum("np,np->p", rows, rows)
        self.size = end

    def widen(self, points: Floats) -> None:
        """More candidates, at the end of the pool."""
        n, old = self.size, len(self._pool)
        scaled = self._scaled(points)
        self._pool = np.concatenate([self._pool, scaled])
        self._reserve(n, len(self._pool))
        rows = self._whitened(scaled)
        self._rows[:n, old : len(self._pool)] = rows
        self._explained = np.concatenate([self._explained, np.einsum("np,np->p", rows, rows)])

    def keep(self, candidates: Indices) -> None:
        """Leave all other candidates out; these are the pool from here on, in this order."""
        self._pool = self._pool[candidates]
        self._rows = self._rows[:, candidates]
        self._explained = self._explained[candidates]

    def believe(self, targets: Floats) -> Floats:
        """Targets with each NaN replaced by the mean that the others predict there."""
        unknown = np.flatnonzero(np.isnan(targets))
        if not len(unknown):
            return targets
        inverse = self._inverse[: self.size, : self.size]
        precision = inverse[:, unknown].T @ inverse
        filled = np.where(np.isnan(targets), 0.0, targets)
        filled[unknown] = -np.linalg.solve(precision[:, unknown], precision @ filled)
        return filled

    def mean(self, targets: Floats, start: int = 0) -> Floats:
        """Mean over the pool from ``start`` on, given the targets of all observations."""
        n, num_candidates = self.size, len(self._pool)
        white = self._inverse[:n, :n] @ targets
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
        for start in range(0, len(scaled_pool), POOL_BLOCK):
            block = slice(start, start + POOL_BLOCK)
            covariance = self._across(self._x[:n], scaled_pool[block])
            rows[:, block] = self._inverse[:n, :n] @ covariance
        return rows

    def _reserve(self, size: int, num_candidates: int) -> None:
        """Room for so many observations and candidates, with some to spare."""
        n = self.size
        old_size, old_width = self._rows.shape
        if size <= old_size and num_candidates <= old_width:
            return
        room = size + size // 4 + 32
        width = old_width if num_candidates <= old_width else num_candidates + WIDTH_TO_SPARE
        # Zeros: a product of a slice may load numbers beside it, and warn where they are garbage.
        x, inverse = np.zeros((room, self._x.shape[1])), np.zeros((room, room))
        rows = np.zeros((room, width), dtype=np.float32)
        x[:n], inverse[:n, :n] = self._x[:n], self._inverse[:n, :n]
        rows[:n, :old_width] = self._rows[:n]
        self._x, self._inverse, self._rows = x, inverse, rows
