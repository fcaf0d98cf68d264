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
    assert ", int groups, const int* __restrict__ offsets" in " ".join(text.split())
    groups = by_name["groups"]
    offsets = list((ctypes.c_int * (groups + 1)).from_address(by_name["offsets"]))
    trans_b = "Layout nt" in text
    own_rows = n if trans_b else k
    for group, (first, end) in enumerate(itertools.pairwise(offsets)):
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": (16, 20)}, "x is [rows, K] and w [groups, K, N]"),
        ({"w": (24, 32)}, "x is [rows, K] and w [groups, K, N]"),
        ({"w": (0, 24, 32)}, "1 to 65535 groups"),
        ({"out": (16, 24)}, "has the shape [16, 32], out has [16, 24]"),
        ({"offsets": np.zeros(5, np.int64)}, "convert it once"),
        ({"offsets": np.zeros(4, np.int32)}, "5 numbers without a gap"),
        ({"offsets": [0, 1, 2, 3, 4]}, "offsets is an int32 array on the GPU"),
        ({"epilogue": "relu(acc + bias[n])"}, "reads bias: give it"),
        ({"bias": 1.0}, "unexpected argument 'bias'"),
        ({"out": None, "beta": 1.0}, "give out, which holds it"),
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
    with pytest.raises(UsageError, match="x lies column by column"):
        autogemm.grouped_gemm(
            transposed, integers(4, 24, 32), offsets_of(4, 4, 4, 4), integers(16, 32)
        )
