"""Shapes and strides as a GEMM: what its addresses mean must be what NumPy means."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.runtime.operands import Call, Strided, call_for, product_shape
from autogemm.support.errors import UsageError


def strided(name: str, array: Any) -> Strided:
    return Strided(name, array.shape, tuple(step // array.itemsize for step in array.strides))


def computed(call: Call, a: Any, b: Any, c: Any) -> None:
    """The call by its definition, on the memory of these arrays."""
    problem = call.problem
    first, second = (b, a) if call.swapped else (a, b)
    for start_a, start_b, start_c in call.offsets:
        for product in range(problem.batch.count):
            at_a, at_b, at_c = (
                start + product * rows * ld
                for start, rows, ld in zip(
                    (start_a, start_b, start_c),
                    problem.batch_rows,
                    (problem.lda, problem.ldb, problem.ldc),
                    strict=True,
                )
            )
            left = matrix(first, at_a, problem.a_shape, problem.lda)
            right = matrix(second, at_b, problem.b_shape, problem.ldb)
            left = left.T if problem.layout.trans_a else left
            right = right.T if problem.layout.trans_b else right
            matrix(c, at_c, (problem.m, problem.n), problem.ldc)[...] = left @ right


def matrix(array: Any, start: int, shape: tuple[int, int], stride: int) -> Any:
    flat = np.lib.stride_tricks.as_strided(array, (start + shape[0] * stride,), (8,))
    return np.lib.stride_tricks.as_strided(flat[start:], shape, (8 * stride, 8))


@st.composite
def stored(draw: Any, batches: tuple[int, ...], rows: int, columns: int) -> Any:
    """An array of that shape within a larger one, row by row or column by column."""
    shape = (*batches, rows, columns)
    if draw(st.booleans()):
        return np.swapaxes(draw(within((*batches, columns, rows))), -1, -2)
    return draw(within(shape))


@st.composite
def within(draw: Any, shape: tuple[int, ...]) -> Any:
    padding = [draw(st.integers(0, 3)) for _ in shape]
    whole = np.zeros([extent + more for extent, more in zip(shape, padding, strict=True)] + [1])
    whole = np.concatenate([whole.ravel(), np.zeros(99)])[: whole.size].reshape(whole.shape)
    return whole[tuple(slice(0, extent) for extent in shape)][..., 0]


@given(data=st.data())
@settings(max_examples=100)
def test_a_call_computes_what_numpy_does(data: Any) -> None:
    m, n, k = (data.draw(st.integers(1, 4)) for _ in range(3))
    batches = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    shared = data.draw(st.sampled_from(["both", "a", "b"]))
    a = data.draw(stored(() if shared == "b" else batches, m, k))
    b = data.draw(stored(() if shared == "a" else batches, k, n))
    random = np.random.default_rng(0)
    a[...], b[...] = random.normal(size=a.shape), random.normal(size=b.shape)
    shape = product_shape(a.shape, b.shape)
    c = data.draw(stored(shape[:-2], m, n))
    call = call_for(strided("a", a), strided("b", b), strided("out", c), DType.F32)
    computed(call, a, b, c)
    np.testing.assert_allclose(c, a @ b)


def one(shape: tuple[int, ...], strides: tuple[int, ...], name: str = "a") -> Strided:
    return Strided(name, shape, strides)


def test_layouts_and_leading_dimensions() -> None:
    c = one((8, 6), (6, 1), "out")
    call = call_for(one((8, 4), (1, 10)), one((4, 6), (7, 1), "b"), c, DType.F32)
    assert (call.problem.layout, call.problem.lda, call.problem.ldb) == (Layout.TN, 10, 7)
    turned = call_for(one((8, 4), (4, 1)), one((4, 6), (6, 1), "b"), one((8, 6), (1, 9)), DType.F32)
    # C^T = B^T A^T: of memory that holds B and A row by row, both are read transposed.
    assert (turned.swapped, turned.problem.m, turned.problem.n) == (True, 6, 8)
    assert (turned.problem.layout, turned.problem.ldc) == (Layout.TT, 9)


def test_batches_of_rows_that_follow_each_other_are_one_gemm() -> None:
    b = one((4, 6), (6, 1), "b")
    folded = call_for(one((5, 8, 4), (32, 4, 1)), b, one((5, 8, 6), (48, 6, 1), "out"), DType.F32)
    assert (folded.problem.m, len(folded.offsets)) == (40, 1)
    apart = call_for(one((5, 8, 4), (33, 4, 1)), b, one((5, 8, 6), (48, 6, 1), "out"), DType.F32)
    assert (apart.problem.m, len(apart.offsets)) == (8, 5)
    assert apart.offsets[2] == (66, 0, 96)


@pytest.mark.parametrize(
    ("strides", "why"),
    [
        ((8, 2), "every second column"),
        ((0, 1), "one row again and again"),
        ((2, 1), "rows overlap"),
    ],
)
def test_strides_that_no_layout_covers_are_refused(strides: tuple[int, int], why: str) -> None:
    good = one((4, 4), (4, 1), "b")
    with pytest.raises(UsageError, match=r"a with the shape \[4, 4\].*contiguous copy"):
        call_for(one((4, 4), strides), good, good, DType.F32)
    with pytest.raises(UsageError, match="out with"):
        call_for(good, good, one((4, 4), strides, "out"), DType.F32)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ((4,), (4, 2), "2 dimensions or more"),
        ((3, 4), (5, 2), "4 columns and b 5 rows"),
        ((2, 3, 4), (3, 4, 5), "do not match"),
    ],
)
def test_shapes_without_a_product_are_refused(
    a: tuple[int, ...], b: tuple[int, ...], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        product_shape(a, b)
    assert product_shape((7, 1, 3, 4), (5, 4, 2)) == (7, 5, 3, 2)
