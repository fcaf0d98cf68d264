"""Errors of roundings to nearest, expected of many of them together.

`autogemm.targets.cuda.worker.problem.precision` says what they are derived from.
"""

import math

from autogemm.model.dtypes import Element

# The standard deviation of a rounding to nearest, as a share of the unit roundoff; and in FP32,
# relative to the number.
RMS_SHARE = 0.4247
RMS_ROUNDING = RMS_SHARE * Element.F32.unit_roundoff
# Chance that rounding alone breaks a limit anywhere, per problem.
FAILURE_PROBABILITY = 1e-6


def chain_variance(num_products: int) -> float:
    """The expected squared error of that many products' sum, of the sum of their squares."""
    return RMS_ROUNDING**2 * (num_products + 3) / 2


def most(limit: float, num_elements: int) -> float:
    """The limit for a C of that many elements: few errors average less well.

    A sum of N squares of normal numbers exceeds N + 2 sqrt(N x) + 2 x with probability exp(-x) at
    most (Laurent and Massart, Annals of Statistics 28(5), 2000).
    """
    x = -math.log(FAILURE_PROBABILITY) / num_elements
    return limit * math.sqrt(1 + 2 * math.sqrt(x) + 2 * x)
