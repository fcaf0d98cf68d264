"""Matrices in memory: values rounded to an element type, as they are stored, and back."""

from typing import Any

import numpy as np
import numpy.typing as npt

from autogemm.model.dtypes import DType, Element
from autogemm.model.kernel import Extra
from autogemm.model.problem import Problem
from autogemm.model.signature import COUNTS, OFFSETS

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[Any]
"""float32, integers, or the bits of smaller floats as unsigned integers."""


def rounded(values: npt.NDArray[np.floating], element: Element) -> Floats:
    """Each value rounded to the nearest of the element type, ties to even, as float32.

    Integers become the nearest that a float32 holds; NaN stays NaN, which `stored` can tell. What
    is too large becomes infinite, or the largest number of a type that saturates.
    """
    if element.is_integer:
        return _whole(values, element).astype(np.float32)
    # What is no number stays none.
    with np.errstate(over="ignore", invalid="ignore"):
        if element is Element.F32:
            singles: Floats = values.astype(np.float32)
            return singles
        doubles = values.astype(np.float64)
    # frexp() gives fractions from 1/2 to 1: their exponent is one more than IEEE's.
    exponent = np.maximum(np.frexp(doubles)[1] - 1, element.least_exponent)
    step = exponent - element.fraction_bits
    nearest = np.ldexp(np.rint(np.ldexp(doubles, -step)), step)
    beyond = np.copysign(element.largest if element.saturates else np.inf, nearest)
    held: Floats = np.where(np.abs(nearest) > element.largest, beyond, nearest).astype(np.float32)
    return held


def _whole(values: npt.NDArray[np.floating], element: Element) -> npt.NDArray[np.float64]:
    """The nearest integers of the type, the least or the largest for what is beyond."""
    half = 2.0 ** (8 * element.size_bytes - 1)
    nearest: npt.NDArray[np.float64] = np.clip(np.rint(values.astype(np.float64)), -half, half - 1)
    return nearest


def stored(values: npt.NDArray[np.floating], element: Element) -> Stored:
    """Rounded as by `rounded`, in the form in which kernels get it. NaN stays NaN; of integers it
    becomes the canary.
    """
    if element.is_integer:
        kept = np.nan_to_num(_whole(values, element)).astype(stored_type(element))
        return np.where(np.isnan(values), canaries(1, element), kept)
    nearest = rounded(values, element)
    if element.size_bytes == nearest.itemsize:
        return nearest
    fraction_bits, least = element.fraction_bits, element.least_exponent
    size = np.abs(nearest.astype(np.float64))
    # From the smallest normal number on a float has the same fraction, and another exponent.
    bits = size.astype(np.float32).view(np.uint32).astype(np.int64)
    normal = (bits >> (23 - fraction_bits)) - ((127 - element.exponent_bias) << fraction_bits)
    with np.errstate(invalid="ignore"):
        subnormal = np.ldexp(size, fraction_bits - least).astype(np.int64)
    infinity = ((1 << element.exponent_bits) - 1) << fraction_bits
    magnitude = np.where(size < 2.0**least, subnormal, normal)
    magnitude = np.where(np.isinf(size), infinity, magnitude)
    no_number = infinity | 1 << (fraction_bits - 1)
    if not element.has_infinity:
        no_number = infinity | (1 << fraction_bits) - 1
    magnitude = np.where(np.isnan(size), no_number, magnitude)
    sign = np.signbit(nearest).astype(np.int64) << (8 * element.size_bytes - 1)
    return (sign | magnitude).astype(stored_type(element))


def loaded(data: Stored, element: Element) -> npt.NDArray[np.floating]:
    """Stored elements as float32, of 32-bit integers as float64; exact."""
    if element.is_integer:
        return data.astype(np.float32 if element.size_bytes < 4 else np.float64)
    if element.size_bytes == 4:
        return data
    bits = data.astype(np.int64)
    fraction_bits = element.fraction_bits
    biased = bits >> fraction_bits & ((1 << element.exponent_bits) - 1)
    fraction = bits & ((1 << fraction_bits) - 1)
    significand = np.where(biased > 0, fraction + (1 << fraction_bits), fraction)
    exponent = np.maximum(biased, 1) - element.exponent_bias - fraction_bits
    size = np.ldexp(significand.astype(np.float64), exponent)
    is_last = biased == (1 << element.exponent_bits) - 1
    if element.has_infinity:
        size = np.where(is_last, np.where(fraction > 0, np.nan, np.inf), size)
    else:
        size = np.where(is_last & (fraction == (1 << fraction_bits) - 1), np.nan, size)
    is_negative = bits >> (8 * element.size_bytes - 1) > 0
    values: Floats = np.where(is_negative, -size, size).astype(np.float32)
    return values


def stored_type(element: Element) -> np.dtype[Any]:
    """The NumPy type of `stored`."""
    if element.is_integer:
        return np.dtype(f"i{element.size_bytes}")
    return np.dtype(np.float32 if element.size_bytes == 4 else f"u{element.size_bytes}")


def not_a_number(count: int, element: Element) -> Stored:
    """An array of elements whose bits are all set: NaN in each type, -1 of integers."""
    size = element.size_bytes
    return np.full(count * size, 0xFF, np.uint8).view(stored_type(element))


def canaries(count: int, element: Element) -> Stored:
    """An array of elements by which it is seen that nothing was written (`Element.canary_bits`)."""
    return np.full(count, element.canary_bits, f"u{element.size_bytes}").view(stored_type(element))


def neutral_array(extra: Extra, dtype: DType) -> Stored:
    """The elements of a family's own array in a problem of those types, as kernels get them."""
    element = extra.argument.element(dtype)
    assert element is not None and extra.count is not None, "an array"
    return stored(np.full(extra.count, extra.neutral), element)


def arrays_of_groups(problem: Problem) -> dict[str, Stored]:
    """Where the rows of groups are, as kernels read it, by the name of the argument; nothing where
    there are no groups.
    """
    if problem.groups.is_none:
        return {}
    name = COUNTS if problem.groups.masked else OFFSETS
    return {name: np.array(problem.groups.given(problem.grouped_rows), np.int32)}


def used_rows(problem: Problem) -> npt.NDArray[np.intp]:
    """The numbers of the rows of a C that are computed: all, or those that belong to a group."""
    if problem.groups.is_none or problem.divides_k:
        return np.arange(problem.m)
    ranges = problem.groups.ranges(problem.m)
    return np.concatenate([np.arange(first, end) for first, end in ranges])
