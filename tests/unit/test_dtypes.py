"""Element types: rounding, storing, and which family has kernels for which."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from cuda.bindings import driver, runtime

from autogemm.catalogue.gpus import CATALOGUE_PATH
from autogemm.catalogue.ladder import libraries
from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, not_a_number, rounded, stored, stored_type
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Problem
from autogemm.model.results.benchmark import baseline_of
from autogemm.support.errors import EmptySpaceError, UsageError

FLOATS = [one for one in Element if not one.is_integer]
INTEGERS = [one for one in Element if one.is_integer]


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_rounding_is_to_nearest_even(element: Element) -> None:
    step = 2.0 ** (1 - element.significant_bits)
    values = np.array([1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -1 - 0.49 * step])
    assert rounded(values, element).tolist() == [1, 1 + 2 * step, 1 + step, -1]


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_what_is_stored_is_loaded(element: Element) -> None:
    values = rounded(np.random.default_rng(0).standard_normal(1000), element)
    bits = stored(values, element)
    assert bits.itemsize == element.size_bytes
    assert np.array_equal(loaded(bits, element), values)


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_nan_and_infinity_stay(element: Element) -> None:
    values = np.array([np.nan, np.inf, -np.inf], np.float32)
    largest = np.float32(element.largest if element.saturates else np.inf)
    kept = np.array([np.nan, largest, -largest], np.float32)
    assert np.array_equal(rounded(values, element), kept, equal_nan=True)
    assert np.isnan(loaded(not_a_number(3, element), element)).all()


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_all_bits_are_loaded_and_stored_again(element: Element) -> None:
    kept = element.exponent_bits + element.fraction_bits + 1
    patterns = np.arange(2 ** min(kept, 16), dtype=np.uint32)
    # Longer ones differ in their upper bits: signs, exponents and the largest bits of the fraction.
    patterns <<= np.uint32(8 * element.size_bytes - min(kept, 16))
    bits = patterns.astype(f"u{element.size_bytes}").view(stored_type(element))
    values = loaded(bits, element)
    is_number = np.isfinite(values) if element.saturates else ~np.isnan(values)
    assert np.array_equal(stored(values, element)[is_number], bits[is_number])
    assert np.isnan(loaded(stored(values, element), element))[np.isnan(values)].all()


def test_16_bit_floats_are_those_of_numpy() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    assert np.array_equal(loaded(bits, Element.F16), bits.view(np.float16), equal_nan=True)
    sizes = 2.0 ** np.random.default_rng(0).uniform(-27, 17, 10_000)
    with np.errstate(over="ignore"):
        assert np.array_equal(rounded(sizes, Element.F16), sizes.astype(np.float16))


def test_subnormal_numbers_are_rounded_to_their_distance() -> None:
    step = 2.0**-24
    values = np.array([0.5 * step, 0.51 * step, 1.5 * step, -2.5 * step])
    assert rounded(values, Element.F16).tolist() == [0, step, 2 * step, -2 * step]


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_a_row_is_right_by_the_headers_of_cuda(element: Element) -> None:
    in_memory = runtime.cudaDataType(element.cuda_data_type).name
    kind = "I" if element.is_integer else "B?F"
    assert re.match(rf"CUDA_R_{8 * element.size_bytes}{kind}", in_memory)
    tensor_map = driver.CUtensorMapDataType(element.tensor_map_number).name
    assert tensor_map == f"CU_TENSOR_MAP_DATA_TYPE_{element.tensor_map_type}"


@pytest.mark.parametrize("element", FLOATS, ids=str)
def test_a_row_is_right_by_its_bits(element: Element) -> None:
    size_bits = 8 * element.size_bytes
    assert element.exponent_bits + element.fraction_bits < size_bits
    canary = np.array([element.canary_bits], f"u{element.size_bytes}").view(stored_type(element))
    assert np.isnan(loaded(canary, element)).all()
    assert (
        np.float64(element.half_step)
        == loaded(
            np.array([1 << (size_bits - element.exponent_bits - element.fraction_bits - 1)])
            .astype(f"u{element.size_bytes}")
            .view(stored_type(element)),
            element,
        ).astype(np.float64)
        / 2
    )
    assert pickle.loads(pickle.dumps(element)) is element


@pytest.mark.parametrize("element", list(Element), ids=str)
def test_every_row_has_a_dtype_and_all_but_fp32_a_peak_of_tensor_cores(element: Element) -> None:
    # 32-bit integers are sums, and no operands.
    is_operand = element is not Element.I32
    assert (element in [dtype.ab for dtype in DType.one_each()]) == is_operand
    assert element in {one for dtype in DType for one in (dtype.ab, dtype.c)}
    peaks = yaml.safe_load(CATALOGUE_PATH.read_text())["tensor_flops_per_sm_clock"].values()
    has_peak = is_operand and element is not Element.F32
    assert any(element.label in of_arch for of_arch in peaks) == has_peak


@pytest.mark.parametrize("element", INTEGERS, ids=str)
def test_integers_are_stored_as_by_numpy(element: Element) -> None:
    kind = np.iinfo(f"i{element.size_bytes}")
    values = np.array([kind.min, kind.max, -1, 0, 1, 77], kind.dtype)
    bits = stored(values.astype(np.float64), element)
    assert bits.dtype == kind.dtype and np.array_equal(bits, values)
    assert loaded(bits, element).tolist() == values.tolist()
    beyond = np.array([2.5, 3.5, -0.4, 2.0 * kind.max, 2.0 * kind.min, np.inf, -np.inf])
    nearest = [2, 4, 0, kind.max, kind.min, kind.max, kind.min]
    assert stored(beyond, element).tolist() == nearest
    # Nothing is NaN: a canary stands for it.
    (canary,) = stored(np.array([np.nan]), element).view(f"u{element.size_bytes}")
    assert canary == element.canary_bits
    assert not_a_number(2, element).tolist() == [-1, -1]


def test_integers_are_sums_as_they_are() -> None:
    problem = Problem(8, 8, 8, dtype=DType.I8, beta=1.0)
    for factors in ((2.0, 0.0), (0.0, 1.0), (1.0, 0.5), (1.0, -1.0)):
        with pytest.raises(UsageError, match=r"alpha must be 1 and beta 0 or 1, got .* i8-f32"):
            problem.with_factors(*factors)
        assert replace(problem, dtype=DType.I8_F32).with_factors(*factors).alpha == factors[0]
    with pytest.raises(UsageError, match=r"for the epilogue acc \* 2 use i8-bf16, i8-f16, i8-f32"):
        Problem(8, 8, 8, dtype=DType.I8).with_epilogue(Epilogue("acc * 2"))


def test_rows_do_not_share_names() -> None:
    for attribute in ("label", "format_code", "export_function"):
        assert len({getattr(element, attribute) for element in Element}) == len(Element)
    names = [element.array_name for element in Element if element.array_name is not None]
    assert len({element.dlpack for element in Element if element.dlpack}) == len(names)


def test_cublas_is_described_for_every_dtype() -> None:
    described = {library.name for library in libraries()}
    assert {baseline_of(dtype) for dtype in DType} <= described


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
