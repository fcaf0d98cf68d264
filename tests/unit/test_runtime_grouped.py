"""autogemm.grouped_gemm on host memory: kernels are real text, the GPU is NumPy (runtime_fakes)."""

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest
import runtime_fakes
from runtime_fakes import FakeDriver, HostArray, driver

import autogemm
from autogemm.model.signature import gemm_signature
from autogemm.runtime import plans
from autogemm.support.errors import UsageError

__all__ = ["driver"]

GROUPED = gemm_signature(grouped=True)


@pytest.fixture(autouse=True)
def of_groups(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take groups and offsets, and elements are FP16."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    monkeypatch.setattr(runtime_fakes, "ARGUMENTS", [*runtime_fakes.ARGUMENTS, number, pointer])
    monkeypatch.setattr(runtime_fakes, "_compute", compute)
    monkeypatch.setattr(plans, "encode", lambda *_: None)


def matrix(address: int, rows: int, columns: int, stride: int) -> Any:
    shorts = (ctypes.c_uint16 * ((rows - 1) * stride + columns)).from_address(address)
    flat = np.ctypeslib.as_array(shorts).view(np.float16)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (2 * stride, 2))


def compute(text: str, values: list[Any]) -> None:
    by_name = dict(zip(GROUPED.names, values, strict=True))
    m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = values[:11]
    is_masked = ", int groups, const int* __restrict__ counts" in " ".join(text.split())
    assert is_masked or ", int groups, const int* __restrict__ offsets" in " ".join(text.split())
    groups, divides_k = by_name["groups"], "Layout tn" in text
    given = list((ctypes.c_int * (groups + (not is_masked))).from_address(by_name["offsets"]))
    ranges = list(itertools.pairwise(given))
    if is_masked:
        capacity = (k if divides_k else m) // groups
        ranges = [(group * capacity, group * capacity + rows) for group, rows in enumerate(given)]
    trans_b = "Layout nt" in text
    own_rows = n if trans_b else k
    for group, (first, end) in enumerate(ranges):
        if divides_k:
            left, right = matrix(a, k, m, lda)[first:end].T, matrix(b, k, n, ldb)[first:end]
            rows = matrix(c + 2 * group * m * ldc, m, n, ldc)
            product = alpha * (left.astype(np.float64) @ right)
            rows[...] = product + (beta * rows if beta else 0.0)
            continue
        if first == end:
            continue
        begin = b + 2 * group * own_rows * ldb
        right = matrix(begin, n, k, ldb).T if trans_b else matrix(begin, k, n, ldb)
        left = matrix(a, m, k, lda)[first:end]
        rows = matrix(c, m, n, ldc)[first:end]
        rows[...] = alpha * (left.astype(np.float64) @ right) + (beta * rows if beta else 0.0)


def integers(*shape: int) -> HostArray:
    """At an address as a GPU's memory has."""
    values = np.random.default_rng(sum(shape)).integers(-3, 4, shape)
    whole = np.zeros(values.size + 64, np.float16)
    start = -(whole.ctypes.data // 2) % 64
    array = whole[start : start + values.size].reshape(shape)
    array[...] = values
    return HostArray(array)


def offsets_of(*rows: int) -> HostArray:
    return HostArray(np.cumsum([0, *rows], dtype=np.int32))


def expected(x: HostArray, w: HostArray, offsets: HostArray, before: Any) -> Any:
    found = before.copy()
    for group, (first, end) in enumerate(itertools.pairwise(offsets.data)):
        found[first:end] = x.data[first:end].astype(np.float64) @ w.data[group]
    return found


@pytest.mark.parametrize("rows", [(5, 0, 11, 0), (0, 0, 16, 0), (1, 2, 3, 4)])
def test_each_group_has_a_matrix_of_its_own(driver: FakeDriver, rows: tuple[int, ...]) -> None:
    x, out, offsets = integers(16, 24), integers(16, 32), offsets_of(*rows)
    before = out.data.copy()
    for w in (integers(4, 24, 32), HostArray(integers(4, 32, 24).data.swapaxes(1, 2))):
        out.data[...] = before
        assert autogemm.grouped_gemm(x, w, offsets, out) is out
        np.testing.assert_array_equal(out.data, expected(x, w, offsets, before))
    assert len(driver.launches) == 2


def test_offsets_are_read_by_the_kernel_and_need_no_new_plan(driver: FakeDriver) -> None:
    x, w, out, offsets = (
        integers(16, 24),
        integers(3, 24, 32),
        integers(16, 32),
        offsets_of(9, 7, 0),
    )
    autogemm.grouped_gemm(x, w, offsets, out)
    compiled = list(runtime_fakes.FakeCompiler.compiled)
    before = out.data.copy()
    offsets.data[...] = [0, 0, 3, 16]
    autogemm.grouped_gemm(x, w, offsets, out)
    np.testing.assert_array_equal(out.data, expected(x, w, offsets, before))
    assert runtime_fakes.FakeCompiler.compiled == compiled and len(compiled) == 1


@pytest.mark.parametrize("counts", [(5, 0, 7, 1), (7, 7, 7, 7), (0, 0, 0, 0)])
def test_masked_groups_have_counts(driver: FakeDriver, counts: tuple[int, ...]) -> None:
    x, w, out = integers(4, 7, 24), integers(4, 24, 32), integers(4, 7, 32)
    expected = out.data.copy()
    for group, rows in enumerate(counts):
        expected[group, :rows] = x.data[group, :rows].astype(np.float64) @ w.data[group]
    given = HostArray(np.array(counts, np.int32))
    assert autogemm.grouped_gemm(x, w, out=out, counts=given) is out
    np.testing.assert_array_equal(out.data, expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_products_of_the_rows_of_each_group(driver: FakeDriver, masked: bool, beta: float) -> None:
    counts = (5, 0, 7, 1)
    x, y = (integers(4, 7, n) if masked else integers(28, n) for n in (24, 40))
    out = integers(4, 24, 40)
    before = out.data.copy()
    offsets = np.cumsum([2, *counts], dtype=np.int32)
    given = {"counts": HostArray(np.array(counts, np.int32))}
    given = given if masked else {"offsets": HostArray(offsets)}
    assert autogemm.grouped_gemm_tn(x, y, out=out, beta=beta, **given) is out
    for group, rows in enumerate(counts):
        at = (group, slice(rows)) if masked else slice(offsets[group], offsets[group + 1])
        product = x.data[at].T.astype(np.float64) @ y.data[at]
        np.testing.assert_array_equal(out.data[group], product + beta * before[group])


class WithAstype(HostArray):
    """An array of a library that converts on the GPU."""

    def astype(self, dtype: str) -> HostArray:
        return HostArray(self.data.astype(dtype))


def test_offsets_of_int64_are_converted_at_each_call(driver: FakeDriver) -> None:
    x, w, out = integers(16, 24), integers(3, 24, 32), integers(16, 32)
    offsets = WithAstype(np.array([0, 9, 9, 16], np.int64))
    for starts in ([0, 9, 9, 16], [2, 2, 3, 16]):
        before, offsets.data[...] = out.data.copy(), starts
        autogemm.grouped_gemm(x, w, offsets, out)
        np.testing.assert_array_equal(out.data, expected(x, w, offsets, before))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give offsets, or counts"),
        ({"offsets": np.zeros(5, np.int32), "counts": np.zeros(4, np.int32)}, "but not both"),
        ({"counts": np.zeros(5, np.int32)}, "the number of rows of each group: 4 contiguous"),
        ({"counts": np.zeros(4, np.int16)}, "counts is an int32 array, got <i2"),
        ({"offsets": np.zeros(5, np.int32)}, "x is [rows, K] and w [groups, K, N]"),
    ],
)
def test_counts_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    x, w, out = integers(4, 7, 24), integers(4, 24, 32), integers(4, 7, 32)
    arrays = {name: HostArray(one) for name, one in given.items()}
    with pytest.raises(UsageError) as caught:
        autogemm.grouped_gemm(x, w, out=out, **arrays)
    assert message in str(caught.value)
    with pytest.raises(UsageError, match="gap between groups or is column-major"):
        gap = HostArray(integers(4, 9, 24).data[:, :7])
        counts = HostArray(np.zeros(4, np.int32))
        autogemm.grouped_gemm(gap, w, out=out, counts=counts)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": (16, 20)}, "x is [rows, K] and w [groups, K, N]"),
        ({"w": (24, 32)}, "x is [rows, K] and w [groups, K, N]"),
        ({"w": (0, 24, 32)}, "1 to 65535 groups"),
        ({"out": (16, 24)}, "has the shape [16, 32], out has [16, 24]"),
        ({"offsets": np.zeros(5, np.int64)}, "convert it once"),
        ({"offsets": np.zeros(4, np.int32)}, "5 contiguous numbers"),
        ({"offsets": [0, 1, 2, 3, 4]}, "offsets is an int32 array on the GPU"),
        ({"epilogue": "relu(acc + bias[n])"}, "reads bias: give it"),
        ({"bias": 1.0}, "unexpected argument 'bias'"),
        ({"out": None, "beta": 1.0}, "pass it as out"),
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused_in_a_line(
    changed: dict[str, Any], message: str
) -> None:
    shapes: dict[str, Any] = {"x": (16, 24), "w": (4, 24, 32), "out": (16, 32)} | changed
    given = {
        name: integers(*value) if isinstance(value, tuple) else value
        for name, value in shapes.items()
    }
    offsets = given.pop("offsets", offsets_of(4, 4, 4, 4))
    given["offsets"] = HostArray(offsets) if isinstance(offsets, np.ndarray) else offsets
    with pytest.raises(UsageError) as caught:
        autogemm.grouped_gemm(**given)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_matrices_with_gaps_between_them_are_refused() -> None:
    w = HostArray(integers(8, 24, 32).data[::2])
    with pytest.raises(UsageError, match="begin 1536 elements apart, not 768"):
        autogemm.grouped_gemm(integers(16, 24), w, offsets_of(4, 4, 4, 4), integers(16, 32))
    transposed = HostArray(integers(24, 16).data.T)
    with pytest.raises(UsageError, match="x is column-major"):
        autogemm.grouped_gemm(
            transposed, integers(4, 24, 32), offsets_of(4, 4, 4, 4), integers(16, 32)
        )
