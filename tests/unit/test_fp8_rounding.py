"""8-bit floats are stored and loaded as by ml_dtypes, which knows nothing of this project; what is
too large for them, of which ml_dtypes makes infinity or NaN, becomes the largest number.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from autogemm.model.dtypes import Element
from autogemm.model.elements import Stored, loaded, rounded, stored

OTHERS: dict[Element, Any] = {
    Element.E4M3: ml_dtypes.float8_e4m3fn,
    Element.E5M2: ml_dtypes.float8_e5m2,
}
ALL_BITS = np.arange(256, dtype=np.uint8)


def in_other(bits: Stored, element: Element) -> npt.NDArray[np.float32]:
    values: npt.NDArray[np.float32] = bits.view(OTHERS[element]).astype(np.float32)
    return values


@pytest.mark.parametrize("element", OTHERS, ids=str)
def test_all_bits_have_the_same_value(element: Element) -> None:
    assert np.array_equal(loaded(ALL_BITS, element), in_other(ALL_BITS, element), equal_nan=True)


def values_to_round(element: Element) -> npt.NDArray[np.float32]:
    """Every number of the type, all ties, their neighbours, and numbers below and beyond all."""
    every = in_other(ALL_BITS, element)
    numbers = np.sort(every[np.isfinite(every)])
    ties = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    largest = numbers[-1]
    # Half a step more than the largest number, where rounding to even decides, and around it.
    beyond = largest + (largest - numbers[-2]) * np.array([0.49, 0.5, 0.51, 1, 2], np.float32)
    exact = np.concatenate([numbers, ties, beyond, -beyond])
    near = [np.nextafter(exact, np.float32(end)) for end in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    exponents = rng.uniform(element.half_step_exponent - 2, element.largest_exponent + 3, 5000)
    signs = rng.choice([-1.0, 1.0], 5000)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38])
    parts = [exact, *near, signs * 2.0**exponents, special]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("element", OTHERS, ids=str)
def test_values_are_rounded_and_stored_alike(element: Element) -> None:
    values = values_to_round(element)
    largest = float(ml_dtypes.finfo(OTHERS[element]).max)
    expected = np.clip(values, -largest, largest).astype(OTHERS[element]).view(np.uint8)
    assert element.largest == largest
    got = stored(values, element)
    as_numbers = in_other(expected, element)
    assert np.array_equal(rounded(values, element), as_numbers, equal_nan=True)
    # NaN has several forms.
    is_number = ~np.isnan(as_numbers)
    assert is_number.any() and not is_number.all()
    assert np.array_equal(got[is_number], expected[is_number])
    assert np.isnan(loaded(got, element)[~is_number]).all()
