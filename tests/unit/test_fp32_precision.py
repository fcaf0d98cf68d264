"""The statistics that tell FP32 from coarser arithmetic, on arithmetic planted in NumPy."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from autogemm.targets.cuda.worker.problem.precision import (
    FEW_PRODUCTS,
    MOST_OF_ALL,
    MOST_OF_FEW,
    RMS_ROUNDING,
    chain_variance,
    few_step,
    most,
    num_few,
)

Doubles = npt.NDArray[np.float64]
# From products [..., K] of the pairs a, b [..., K] to their sum.
Sum = Callable[[Doubles, Doubles], Doubles]

DEPTHS = [1, 2, 5, 16, 17, 100, 3000, 65536, 1_000_000]


def to_bits(values: Doubles, num_bits: int) -> Doubles:
    fraction, exponent = np.frexp(values)
    whole = np.rint(np.ldexp(fraction, num_bits))
    return np.asarray(np.ldexp(whole, exponent - num_bits), np.float64)


def chain(products: Doubles, num_bits: int = 24) -> Doubles:
    """One after the other, in FP32 or, rounding after each, in fewer bits."""
    if num_bits == 24:
        return np.add.accumulate(products.astype(np.float32), axis=-1)[..., -1].astype(float)
    total = np.zeros(products.shape[:-1])
    for k in range(products.shape[-1]):
        total = to_bits(total + products[..., k], num_bits)
    return total


def pairs(products: Doubles, num_bits: int = 24) -> Doubles:
    """By halves."""
    sums = to_bits(products, num_bits)
    while sums.shape[-1] > 1:
        odd = sums[..., -1:] if sums.shape[-1] % 2 else sums[..., :0]
        even = sums.shape[-1] // 2 * 2
        halved = to_bits(sums[..., :even:2] + sums[..., 1:even:2], num_bits)
        sums = np.concatenate([halved, odd], axis=-1)
    return sums[..., 0]


def split(a: Doubles, b: Doubles, num_bits: int) -> Doubles:
    """The sums of three products of numbers of two parts each."""
    (a1, b1) = (to_bits(x, num_bits) for x in (a, b))
    a2, b2 = to_bits(a - a1, num_bits), to_bits(b - b1, num_bits)
    return a1 * b1 + (a1 * b2 + a2 * b1)


FP32: dict[str, Sum] = {
    "in a chain": lambda a, b: chain(a * b),
    "by pairs": lambda a, b: pairs(a * b),
    "in chains of 8": lambda a, b: pairs(
        np.stack([chain((a * b)[..., i::8]) for i in range(min(8, a.shape[-1]))], axis=-1)
    ),
    "of two TF32 each": lambda a, b: pairs(split(a, b, 11)),
}
COARSE: dict[str, Sum] = {
    "TF32": lambda a, b: chain(to_bits(a, 11) * to_bits(b, 11)),
    "TF32 by pairs": lambda a, b: pairs(to_bits(a, 11) * to_bits(b, 11)),
    "one TF32": lambda a, b: pairs(to_bits(a, 11) * b),
    "BF16x3": lambda a, b: chain(split(a, b, 8)),
    "BF16x3 by pairs": lambda a, b: pairs(split(a, b, 8)),
    "20 bits by pairs": lambda a, b: pairs(a * b, 20),
    "20 bits at the end": lambda a, b: to_bits((a * b).sum(axis=-1), 20),
}
# A step of Python for each product.
SLOW: dict[str, Sum] = {"20 bits in a chain": lambda a, b: chain(a * b, 20)}


def statistic(num_products: int, arithmetic: Sum, num_elements: int) -> float:
    """The root mean square of the errors over what FP32 is predicted to have."""
    rng = np.random.default_rng(num_products)
    shape = (num_elements, num_products)
    a, b = (rng.integers(0, 2**24, shape).astype(np.float64) * 2.0**-23 - 1 for _ in range(2))
    error = arithmetic(a, b) - (a * b).sum(axis=-1)
    predicted = chain_variance(num_products) * ((a * b) ** 2).sum()
    # The part of finish_tile() and check_few() at alpha 1, beta 0: no element has less.
    predicted += RMS_ROUNDING**2 * 2 * ((a * b).sum(axis=-1) ** 2).sum()
    return float(np.sqrt((error**2).sum() / predicted))


def is_told(depth: int, arithmetic: Sum, num_elements: int = 256) -> bool:
    """Whether the run with few products ends it, which costs the same at every depth."""
    limit = most(MOST_OF_FEW, num_elements)
    return statistic(num_few(depth), arithmetic, num_elements) > limit


@pytest.mark.parametrize("depth", DEPTHS)
def test_fp32_in_any_order_is_exact_enough_at_every_depth(depth: int) -> None:
    for name, arithmetic in FP32.items():
        assert not is_told(depth, arithmetic), name
        if depth <= 3000 or name == "in a chain":
            num_elements = 256 if depth <= 3000 else 4
            of_all = statistic(depth, arithmetic, num_elements)
            assert of_all < 0.5 * most(MOST_OF_ALL, num_elements), name


@pytest.mark.parametrize("depth", DEPTHS)
def test_coarser_arithmetic_is_told_at_every_depth(depth: int) -> None:
    for name, arithmetic in (COARSE | SLOW).items():
        assert is_told(depth, arithmetic), name


def test_tf32_in_a_chain_is_told_by_all_products_at_a_million() -> None:
    assert statistic(1_000_000, COARSE["TF32"], 4) > most(MOST_OF_ALL, 1024)


def test_a_chain_has_the_errors_that_are_predicted() -> None:
    """The margins are in the limits: what is predicted is neither too much nor too little."""
    for num_products in (16, 256, 4096):
        assert statistic(num_products, FP32["in a chain"], 1000) == pytest.approx(1, rel=0.15)


def test_few_products_are_at_most_sixteen_and_all_where_k_is_small() -> None:
    for k in (*range(1, 200), 4095, 4096, 4097, 1_000_000):
        assert num_few(k) <= FEW_PRODUCTS
        assert num_few(k) * few_step(k) >= k
        assert num_few(k) > min(k, FEW_PRODUCTS) // 2
    assert num_few(FEW_PRODUCTS) == FEW_PRODUCTS


def test_a_single_element_may_be_less_lucky_than_many() -> None:
    assert most(3.0, 1) > 15
    assert most(3.0, 1000) < 3.5
    assert most(3.0, 10**8) == pytest.approx(3.0, rel=1e-3)
