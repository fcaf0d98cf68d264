"""Element types: rounding, storing, and which family has kernels for which."""

import numpy as np
import pytest

from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, not_a_number, rounded, stored
from autogemm.model.problem import Problem
from autogemm.support.errors import EmptySpaceError


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_rounding_is_to_nearest_even(element: Element) -> None:
    step = 2.0 ** (1 - element.significant_bits)
    values = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -1 - 0.49 * step])
    assert rounded(values, element).tolist() == [1, 1 + 2 * step, 1 + step, -1]


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_what_is_stored_is_loaded(element: Element) -> None:
    values = rounded(np.random.default_rng(0).standard_normal(1000), element)
    bits = stored(values, element)
    assert bits.itemsize == element.size_bytes
    assert np.array_equal(loaded(bits, element), values)


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_nan_and_infinity_stay(element: Element) -> None:
    values = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert np.array_equal(rounded(values, element), values, equal_nan=True)
    assert np.isnan(loaded(not_a_number(3, element), element)).all()


def test_bf16_overflows_to_infinity() -> None:
    assert rounded(np.array([3.4e38]), Element.BF16)[0] == np.inf


def test_a_problem_counts_the_bytes_of_each_matrix() -> None:
    sizes = {dtype: Problem(2, 3, 4, dtype=dtype).operand_bytes for dtype in DType}
    assert sizes[DType.F32] == sizes[DType.TF32] == 4 * (8 + 12 + 6)
    assert sizes[DType.BF16] == 2 * (8 + 12 + 6)
    assert sizes[DType.F16_F32] == 2 * (8 + 12) + 4 * 6


def test_a_family_is_searched_for_its_dtypes_only() -> None:
    from autogemm.catalogue.gpus import find_device
    from autogemm.space import build_space, load_family

    family = load_family("sgemm_simt")
    assert [dtype for dtype in DType if family.fits(dtype)] == [DType.F32]
    with pytest.raises(EmptySpaceError, match="sgemm_simt is for f32, not for 64 nn bf16"):
        build_space(family, Problem(64, 64, 64, dtype=DType.BF16), find_device("h100"))
