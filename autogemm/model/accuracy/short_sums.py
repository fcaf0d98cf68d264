"""Sums of 8-bit floats in tensor cores, and how far off they are that a kernel adds up in FP32.

Hopper's tensor cores align 32 products and the sum before them to the largest of them, cut each off
toward zero behind 13 bits of fraction, and the new sum likewise (decision 0090 has the sources;
errors on an H200 agree). What is lost depends on how deep such a sum is: a kernel that promotes
adds sums of a certain depth to others in FP32, and begins anew.

A bound that each element must keep allows for a sum that is never promoted. Errors of all elements
together tell them apart: sums of a depth have errors whose mean square is some multiple of the sum
of their squared products, and sums of several of them have the same multiple, because their signs
are random. That multiple is found here from random inputs (decision 0105).
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from autogemm.model.accuracy.rounding import RMS_ROUNDING, RMS_SHARE, chain_variance, most
from autogemm.model.dtypes import Element
from autogemm.model.elements import rounded
from autogemm.model.problem import Problem

Doubles = npt.NDArray[np.float64]

# Times the expected errors, that errors may be: of sums promoted as often as said, of sums in FP32.
MOST_OF_PROMOTED, MOST_OF_FP32 = 1.5, 8.0
# Sums promoted a quarter as often have 2.5 times the error; fewer sums average badly.
LEAST_SUMS = 4096
# What is known of sums comes from so many products.
NUM_PRODUCTS = 2**20
# Not a depth: all sums are in FP32.
ALWAYS = 1


@dataclass(frozen=True, slots=True)
class Promise:
    """How exact a kernel must be whose tensor cores add up ``fp32_every`` products.

    The expected square of a sum's error is ``of_sums`` times the sum of its squared products, for
    what tensor cores lose, and ``of_chain`` times for sums in FP32; that of the roundings of a
    result ``of_result`` times the result's square. Errors of ``num_results`` may be ``limit`` times
    as large; ``limit_of_many`` is that of any number.
    """

    fp32_every: int
    of_sums: float
    of_chain: float
    of_result: float
    limit_of_many: float
    num_results: int

    @property
    def variance(self) -> float:
        """The expected square of a sum's error, of the sum of its squared products."""
        return self.of_sums + self.of_chain

    @property
    def limit(self) -> float:
        """Few errors average less well."""
        return most(self.limit_of_many, self.num_results)

    def complaint(self, inputs: str, times: float) -> str:
        """What is wrong where errors are so many times the expected ones; empty if nothing is."""
        if times <= self.limit:
            return ""
        said = f"added in FP32 every {self.fp32_every} of K" if self.fp32_every > 1 else "in FP32"
        return (
            f"less exact than sums that are {said} on {inputs} inputs: errors are {times:.3g} "
            f"times those of such sums, {self.limit:.3g} times at most are rounding"
        )


def promise_of(
    problem: Problem, num_results: int, fp32_every: int, *, normal: bool = False
) -> Promise | None:
    """What a kernel promises whose tensor cores add up ``fp32_every`` products; 0 for any number.

    None where nothing is promised, where there are too few results to tell, where rounding them to
    8 bits hides all errors, and of sums in FP32 where an epilogue's own rounding may be as large.
    Inputs are uniform within [-1, 1), or normal.
    """
    dtype, k = problem.dtype, problem.k
    element = dtype.ab
    if not (fp32_every and dtype.adds_in_few_bits) or dtype.c.saturates or problem.divides_k:
        return None
    if fp32_every == ALWAYS and not problem.epilogue.is_plain:
        return None
    if num_results * -(-k // fp32_every) < LEAST_SUMS:
        return None
    of_sums, limit = 0.0, MOST_OF_FP32
    if fp32_every > ALWAYS:
        of_sums = variance_of_sums(element, fp32_every, normal=normal)
        limit = MOST_OF_PROMOTED
    # Alpha, beta and their sum are in FP32.
    of_result = (RMS_SHARE * dtype.c.unit_roundoff) ** 2 + 3 * RMS_ROUNDING**2
    return Promise(fp32_every, of_sums, chain_variance(k), of_result, limit, num_results)


@lru_cache(maxsize=32)
def variance_of_sums(element: Element, depth: int, *, normal: bool = False) -> float:
    """The mean squared error of so many products' sum in tensor cores, of their squares' sum."""
    rng = np.random.default_rng(depth)
    shape = (2, max(1, NUM_PRODUCTS // depth), depth)
    drawn = rng.standard_normal(shape) if normal else rng.uniform(-1.0, 1.0, shape)
    a, b = rounded(drawn.astype(np.float32), element).astype(np.float64)
    products = a * b
    errors = short_sums(products, element) - products.sum(-1)
    return float((errors**2).sum() / (products**2).sum())


def short_sums(products: Doubles, element: Element) -> Doubles:
    """Sums along the last axis as tensor cores make them, never promoted; products are finite."""
    sums = np.zeros(products.shape[:-1])
    for first in range(0, products.shape[-1], element.products_per_step):
        terms = products[..., first : first + element.products_per_step]
        terms = np.concatenate([sums[..., np.newaxis], terms], -1)
        step = _last_bit(np.abs(terms).max(-1), element)
        sums = np.trunc(terms / step[..., np.newaxis]).sum(-1) * step
        step = _last_bit(np.abs(sums), element)
        sums = np.trunc(sums / step) * step
    return sums


def _last_bit(sizes: Doubles, element: Element) -> Doubles:
    """What the last bit of the fraction is worth in numbers of these sizes."""
    # frexp() gives fractions from 1/2 to 1: their exponent is one more than IEEE's.
    last_bit: Doubles = np.ldexp(1.0, np.frexp(sizes)[1] - 1 - element.accum_fraction_bits)
    return last_bit
