"""Matrices in memory: values rounded to an element type, as they are stored, and back."""

from typing import Any

import numpy as np
import numpy.typing as npt

from autogemm.model.dtypes import DType, Element
from autogemm.model.kernel import Extra

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[Any]
"""float32, or the bits of 16-bit elements as uint16."""

_FRACTION_BITS = 23
_STORED_AS: dict[Element, type[np.float32] | type[np.uint16]] = {
    Element.F32: np.float32,
    Element.TF32: np.float32,
    Element.F16: np.uint16,
    Element.BF16: np.uint16,
}


def rounded(values: npt.NDArray[np.floating], element: Element) -> Floats:
    """Each value rounded to the nearest of the element type, ties to even, as float32."""
    return loaded(stored(values, element), element)


def stored(values: npt.NDArray[np.floating], element: Element) -> Stored:
    """Rounded as by `rounded`, in the form in which kernels get it. NaN stays NaN."""
    if element is Element.F16:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).view(np.uint16)
    singles = values.astype(np.float32)
    if element is Element.F32:
        return singles
    bits = singles.view(np.uint32)
    dropped = _FRACTION_BITS + 1 - element.significant_bits
    last_kept = (bits >> dropped) & 1
    # Adding half of what is dropped, or one less, carries where it must; to infinity as well.
    nearest = bits + np.uint32((1 << (dropped - 1)) - 1) + last_kept
    kept = np.where(np.isnan(singles), bits, nearest) >> dropped << dropped
    if element is Element.TF32:
        return kept.astype(np.uint32).view(np.float32)
    return (kept >> 16).astype(np.uint16)


def loaded(data: Stored, element: Element) -> Floats:
    """What is stored, as float32; exact."""
    if element is Element.F16:
        return data.view(np.float16).astype(np.float32)
    if element is Element.BF16:
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data


def stored_type(element: Element) -> type[np.float32] | type[np.uint16]:
    """The NumPy type of `stored`."""
    return _STORED_AS[element]


def not_a_number(count: int, element: Element) -> Stored:
    """So many elements whose bits are all set: NaN in each type."""
    size = element.size_bytes
    return np.full(count * size, 0xFF, np.uint8).view(stored_type(element))


def neutral_array(extra: Extra, dtype: DType) -> Stored:
    """The elements of a family's own array in a problem of those types, as kernels get them."""
    element = extra.argument.element(dtype)
    assert element is not None and extra.count is not None, "an array"
    return stored(np.full(extra.count, extra.neutral), element)
