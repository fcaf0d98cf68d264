"""Inputs for a run, the reference for C, and the differences from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autogemm.model.accuracy.short_sums import Promise, promise_of
from autogemm.model.bounded import Bounded
from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import (
    Floats,
    Stored,
    canaries,
    loaded,
    not_a_number,
    rounded,
    stored,
    used_rows,
)
from autogemm.model.epilogue import sum_exponent
from autogemm.model.formula import BLOCK
from autogemm.model.kernel import Extra, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.reference.fused import Expected, expected_results, rounded_results

Place = tuple[int, ...]
Doubles = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", Floats, Floats | Doubles)

# Elements of padding above which rows are far apart, and those that are looked at then.
MANY, FEW = 1 << 16, 64
# The largest FP32 number, and the least that is rounded to infinity.
LARGEST = float(np.finfo(np.float32).max)
OVERFLOW = 2.0**128 - 2.0**103
# 32-bit integers of the old C are up to this: floats hold them, and sums with them fit in 32 bits.
LARGEST_INTEGER = 2**20
# Exponents of wide numbers of A; with those of B all products have about the same size. Element
# types of tensor cores keep only a few bits of the smallest numbers.
WIDE = (-132, -4, 124)
# Exponent of numbers beside an infinity: so near that no spread of exponents gives it away, so far
# that their products have sums.
BESIDE = 110
# Exponent of sparse numbers' large ones: what is 2^-40 of them has lost most of its bits.
ABOVE = 40


class Data(StrEnum):
    """Integers make every partial sum exact, so that any wrong term shows. Reals round.

    Wide numbers have exponents from -132 to 124 along k, large ones in A where B has small ones, so
    that each product counts. Special ones are reals with an infinity, a NaN and the largest number
    among them, each in a row or a column of its own; for some problems what stands beside the
    infinity is large as well. Sparse ones are large in one matrix at every other k, where the other
    matrix is zero, so that no large number counts: in B for an odd K, in A for an even one.

    Where C saturates, reals have a row of A so large that most of its sums are beyond C's largest
    number, and a column of B with a NaN.
    """

    INTEGERS = "integers"
    REALS = "reals"
    WIDE = "wide"
    SPECIAL = "special"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Matrices and arrays as the kernel gets them, and the reference for C.

    Buffers end with the last element: nothing lies behind it, not even the padding of the last row.
    Padding between rows and gaps between matrices of a batch are NaN, and so is C when beta = 0.
    ``expected`` is [products, M, N], with groups without the rows of none; so is ``bound``, the
    largest error that rounding can explain. ``extras`` are the arrays beside the matrices, in the
    order of the plan: a family's own, inputs of the epilogue, and its second output, which is NaN
    and of which ``output`` says how it must be.

    Where the plan says how exact sums of 8-bit floats are, ``promised`` are the squares of errors
    expected of C's elements.
    """

    a: Stored
    b: Stored
    c: Stored
    extras: tuple[Stored, ...]
    expected: Doubles
    bound: Doubles
    output: Expected | None = None
    promise: Promise | None = None
    promised: Doubles | None = None

    @property
    def of_output(self) -> "Inputs":
        """The same with the second output, the last array, in place of C."""
        assert self.output is not None
        value, bound = self.output.value, self.output.bound
        own = replace(self, c=self.extras[-1], expected=value, bound=bound)
        return replace(own, promise=None, promised=None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of C from its reference. ``first_wrong`` is (product, row, column), or None.

    ``complaint`` says what is wrong with all errors together, where no element is wrong.
    """

    max_error_ratio: float
    wrong_elements: int
    first_wrong: Place | None
    got: float = 0.0
    expected: float = 0.0
    padding_changed: int = 0
    complaint: str = ""

    @property
    def is_wrong(self) -> bool:
        """An element is off by more than rounding, or all together, or the padding was written."""
        return bool(self.wrong_elements or self.padding_changed or self.complaint)


@dataclass(frozen=True, slots=True)
class Changed:
    """Elements of C that differ after two calls with the same inputs, and the first of them."""

    num_elements: int
    first_at: Place
    first: float
    second: float


def with_near_rows(problem: Problem) -> Problem:
    """The problem as the process is given it: of the padding between far rows, FEW elements.

    The process puts the rows as far apart as the kernel expects them, in reserved address space.
    """
    columns = (problem.a_shape[1], problem.b_shape[1], problem.n)
    strides = (problem.lda, problem.ldb, problem.ldc)
    lda, ldb, ldc = (
        least + FEW if stride - least > MANY else stride
        for least, stride in zip(columns, strides, strict=True)
    )
    return replace(problem, lda=lda, ldb=ldb, ldc=ldc)


def make_inputs(problem: Problem, plan: LaunchPlan, data: Data, seed: int) -> Inputs:
    """Random matrices and the reference for them, from float64; a family's own arrays hold what is
    neutral, inputs of the epilogue are random.
    """
    rng = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    dtype = problem.dtype
    num_a, num_b, num_c = problem.num_matrices
    a = _matrix(rng, (num_a, *problem.a_shape), data, dtype.ab)
    b = _matrix(rng, (num_b, *problem.b_shape), data, dtype.b)
    c = _matrix(rng, (num_c, problem.m, problem.n), data, dtype.c)
    # Views: [matrices, M, K] and [matrices, K, N], however they are stored.
    op_a, op_b = _op(a, problem.layout.trans_a), _op(b, problem.layout.trans_b)
    if dtype.ab.is_integer:
        _make_large(rng, data, op_a, op_b)
    else:
        _make_extreme(rng, problem, data, op_a, op_b)
    extras = [_extra(rng, extra, dtype, data) for extra in plan.arrays]
    output = None
    if problem.epilogue.is_plain:
        expected, bound = _plain(problem, Given(a, b, c), data)
    else:
        if data is Data.INTEGERS and not dtype.ab.is_integer:
            a = np.ldexp(a, -sum_exponent(problem.k))
        of_c, output = _fused(problem, Given(a, b, c), plan, extras, data)
        expected, bound = of_c.value, of_c.bound
    promise = promised = None
    if data is Data.REALS:
        count = expected[:, used_rows(problem)].size
        promise = promise_of(problem, count, plan.fp32_every, normal=True)
    if promise is not None:
        promised = _promised(problem, Given(a, b, c), plan, extras, promise, expected)
        promised = promised[:, used_rows(problem)]
    near = with_near_rows(problem)
    rows_a, rows_b, rows_c = problem.batch_rows
    used = used_rows(problem)
    if problem.groups.masked or problem.divides_k:
        # Rows of no group lie among the others, and are multiplied by nothing.
        _forget_unused(problem, a, b)
    before = _stored(c, rows_c, near.ldc, dtype.c)
    return Inputs(
        _stored(a, rows_a, near.lda, dtype.ab),
        _stored(b, rows_b, near.ldb, dtype.b),
        before if problem.reads_c else canaries(before.size, dtype.c),
        tuple(
            canaries(values.size, _element(extra, dtype))
            if extra.is_output
            else stored(values, _element(extra, dtype))
            for extra, values in zip(plan.arrays, extras, strict=True)
        ),
        expected[:, used],
        bound[:, used],
        output,
        promise,
        promised,
    )


@dataclass(frozen=True, slots=True)
class Given:
    """A and B as stored, and the old C: [matrices, rows, columns]. A and B may be multiplied by
    scales.
    """

    a: Floats | Doubles
    b: Floats | Doubles
    c: Floats


def _plain(problem: Problem, given: Given, data: Data) -> tuple[Doubles, Doubles]:
    """C of the plain GEMM, and the largest error of an element."""
    element = problem.dtype.c
    expected, magnitude = _product(problem, given.a, given.b, given.c)
    exact = data is Data.INTEGERS and _is_exact(problem, float(magnitude.max()))
    bound = _rounding_of_sums(problem, expected, magnitude)
    if element.saturates:
        found = Bounded(expected, 0.0 * bound if exact else bound)
        results = rounded_results(found, element, expected.shape, is_exact=exact)
        return results.value, results.bound
    if element.size_bytes < 4:
        # C is rounded once more; subnormal numbers by half their distance.
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        bound += element.unit_roundoff * (size + bound) + element.half_step
    if exact:
        expected, bound = rounded(expected, element).astype(np.float64), np.zeros_like(expected)
    return expected, bound


def _fused(
    problem: Problem, given: Given, plan: LaunchPlan, extras: Sequence[Floats], data: Data
) -> tuple[Expected, Expected | None]:
    """C with an epilogue, and the second output where there is one."""
    scaled = _scaled(problem, given, plan, extras)
    sums, magnitude = _product(problem.plain_product, scaled.a, scaled.b, given.c)
    steps = 1.0 if problem.dtype.ab.is_integer else 2.0 ** sum_exponent(problem.k)
    if problem.epilogue.scales:
        # Scales are multiples of 1/4.
        steps *= 16
    exact = data is Data.INTEGERS and float(magnitude.max()) * steps < 2**24
    error = np.zeros_like(sums) if exact else _rounding_of_sums(problem, sums, magnitude)
    acc = Bounded(sums, error)
    return expected_results(problem, plan, extras, given.c, acc, is_exact=exact)


def _promised(  # noqa: PLR0913, PLR0917  # a problem, its inputs, and what is known of results
    problem: Problem,
    given: Given,
    plan: LaunchPlan,
    extras: Sequence[Floats],
    promise: Promise,
    expected: Doubles,
) -> Doubles:
    """The expected squares of errors: of sums as the epilogue leaves them, and of C's rounding."""
    scaled = _scaled(problem, given, plan, extras)
    own = problem.plain_product
    op_a = _op(scaled.a, own.layout.trans_a).astype(np.float64)
    op_b = _op(scaled.b, own.layout.trans_b).astype(np.float64)
    error = np.sqrt(promise.variance * _dot(own, op_a**2, op_b**2))
    if problem.epilogue.is_plain:
        error *= abs(problem.alpha)
    else:
        sums = Bounded(_dot(own, op_a, op_b), error)
        # In FP32 results are not rounded any more.
        with_fp32 = problem.dtype.with_c(Element.F32)
        unrounded = replace(problem, dtype=with_fp32)
        of_c, _ = expected_results(unrounded, plan, extras, given.c, sums, is_exact=False)
        error = of_c.bound
    squares: Doubles = error**2 + promise.of_result * expected**2
    return squares


def _scaled(problem: Problem, given: Given, plan: LaunchPlan, extras: Sequence[Floats]) -> Given:
    """A and B as stored times the scales of their blocks, where they have some."""
    if not problem.epilogue.scales:
        return given
    values = [one for extra, one in zip(plan.arrays, extras, strict=True) if extra.is_input]
    arrays = [one for one in problem.epilogue.inputs if one.axes]
    shape = (problem.m, problem.n, problem.k, problem.groups.count)
    of_a, of_b = (
        own.reshape(one.shape(*shape)).astype(np.float64)
        for one, own in zip(arrays, values, strict=True)
        if one.is_scale
    )
    for_a = np.repeat(of_a.T, BLOCK, axis=1)[:, : problem.k]
    for_b = np.repeat(np.repeat(of_b, BLOCK, axis=-2), BLOCK, axis=-1)
    for_b = for_b[..., : problem.n, : problem.k]
    layout = problem.layout
    return replace(
        given,
        a=given.a * _op(for_a, layout.trans_a),
        b=given.b * _op(for_b, not layout.trans_b),
    )


def _rounding_of_sums(problem: Problem, expected: Doubles, magnitude: Doubles) -> Doubles:
    """K products and sums, alpha, beta and the last sum, each rounding once: Higham, Accuracy and
    Stability of Numerical Algorithms, 2002, section 3.1, whatever the order of the sums.

    Where tensor cores keep fewer bits, each product and each step's sum is cut off at the last.
    Sums of integers are exact; in floats they are rounded once as such, alpha and beta as others.
    """
    element = problem.dtype.ab
    if element.is_integer:
        return 0.0 * magnitude if problem.dtype.has_exact_sums else 4 * 2.0**-24 * magnitude
    relative = (problem.k + 3) * 2.0**-24
    # Sums of blocks that have scales are added to others in FP32, two roundings later.
    in_chain = min(problem.k, BLOCK) if problem.epilogue.scales else problem.k
    if element.size_bytes == 1:
        steps = -(-in_chain // element.products_per_step)
        relative += (in_chain + 2 * steps) * 2.0**-element.accum_fraction_bits
    return np.where(np.isfinite(expected), relative * magnitude, 0.0)


def _extra(rng: np.random.Generator, extra: Extra, dtype: DType, data: Data) -> Floats:
    """An array beside the matrices."""
    assert extra.count is not None, "an array"
    if extra.is_output:
        return np.full(extra.count, np.nan, np.float32)
    if not extra.is_input:
        return np.full(extra.count, extra.neutral, np.float32)
    values = _matrix(rng, (extra.count, 1), data, _element(extra, dtype)).reshape(-1)
    return values * np.float32(0.25) if data is Data.INTEGERS else values


def _element(extra: Extra, dtype: DType) -> Element:
    element = extra.argument.element(dtype)
    assert element is not None, "an array"
    return element


def compare(problem: Problem, inputs: Inputs, c: Stored) -> Comparison:
    """C as the kernel left it against C as it must be, element by element; padding bit by bit.

    A second output is the C of `Problem.of_output` and `Inputs.of_output`.
    """
    problem = with_near_rows(problem)
    got = _elements(c, problem).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        is_right = _same_special(got, problem, inputs) & ~_is_canary(c, problem)
        error = np.where(is_right, 0.0, np.abs(got - inputs.expected))
        wrong = ~(error <= inputs.bound)
        ratio = np.where(error == 0, 0.0, error / inputs.bound)
    worst = float(np.max(np.where(np.isnan(ratio), np.inf, ratio)))
    bits = np.dtype(f"u{problem.dtype.c.size_bytes}")
    before, after = (_rows(x, problem).view(bits).copy() for x in (inputs.c, c))
    for rows in (before, after):
        rows[:, used_rows(problem), : problem.n] = 0
    changed = int(np.count_nonzero(before != after))
    if not wrong.any():
        complaint = _complaint(inputs, error)
        return Comparison(worst, 0, None, padding_changed=changed, complaint=complaint)
    first = _first(wrong)
    num_wrong = int(np.count_nonzero(wrong))
    return Comparison(
        worst, num_wrong, first, float(got[first]), float(inputs.expected[first]), changed
    )


def _complaint(inputs: Inputs, error: Doubles) -> str:
    """What is wrong with all errors together, each of which is small enough."""
    if inputs.promise is None or inputs.promised is None:
        return ""
    squares, promised = float((error**2).sum()), float(inputs.promised.sum())
    if squares == 0.0:
        # With an alpha of 0, for example, where none is promised either.
        return ""
    times = math.sqrt(squares / promised) if promised > 0.0 else math.inf
    return inputs.promise.complaint("real", times)


def _first(found: npt.NDArray[np.bool_]) -> Place:
    return tuple(int(i) for i in np.argwhere(found)[0])


def changed_between(problem: Problem, first: Stored, second: Stored) -> Changed | None:
    """Elements of C that are not the same after a second call; a NaN is as good as another."""
    near = with_near_rows(problem)
    before, after = (_elements(c, near) for c in (first, second))
    differs = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    if not differs.any():
        return None
    at = _first(differs)
    return Changed(int(np.count_nonzero(differs)), at, float(before[at]), float(after[at]))


def _same_special(got: Doubles, problem: Problem, inputs: Inputs) -> npt.NDArray[np.bool_]:
    """Return where both are NaN, or infinite as a right result may be, or where it may be anything.

    Infinite is right where the result's type has no number as large as the reference, or one within
    the bound of it.
    """
    element = problem.dtype.c
    least, most = (rounded(inputs.expected + sign * inputs.bound, element) for sign in (-1, 1))
    is_high, is_low = got == np.inf, got == -np.inf
    both_nan = np.isnan(got) & np.isnan(inputs.expected)
    same: npt.NDArray[np.bool_] = (
        both_nan | is_high & np.isposinf(most) | is_low & np.isneginf(least)
    )
    same |= np.isfinite(inputs.expected) & np.isinf(inputs.bound)
    return same


def _is_canary(c: Stored, problem: Problem) -> npt.NDArray[np.bool_]:
    """Return where nothing was written, which is no NaN that a kernel made."""
    element = problem.dtype.c
    bits = _used(c, problem).view(f"u{element.size_bytes}")
    same: npt.NDArray[np.bool_] = bits == element.canary_bits
    return same


def _op(matrix: Numbers, is_transposed: bool) -> Numbers:
    return matrix.swapaxes(-1, -2) if is_transposed else matrix


def _product(
    problem: Problem, a: Floats | Doubles, b: Floats | Doubles, c: Floats
) -> tuple[Doubles, Doubles]:
    """C from float64, and the sum of the sizes of all terms.

    A dot product that FP32 cannot hold is infinite, whatever alpha makes of it.
    """
    op_a = _op(a, problem.layout.trans_a).astype(np.float64)
    op_b = _op(b, problem.layout.trans_b).astype(np.float64)
    # float64(float32(x)): the kernel gets its scalars as float.
    alpha, beta = float(np.float32(problem.alpha)), float(np.float32(problem.beta))
    with np.errstate(invalid="ignore"):
        dot = _dot(problem, op_a, op_b)
        dot = np.where(np.abs(dot) >= OVERFLOW, np.copysign(np.inf, dot), dot)
        expected = alpha * dot
        magnitude = abs(alpha) * _dot(problem, np.abs(op_a), np.abs(op_b))
        if beta != 0.0:
            expected += beta * c
            magnitude += abs(beta) * np.abs(c)
    return expected, magnitude


def _dot(problem: Problem, op_a: Doubles, op_b: Doubles) -> Doubles:
    """op(A) op(B), of groups each group's rows by its own B; rows of no group are 0."""
    if problem.groups.is_none:
        dots: Doubles = op_a @ op_b
        return dots
    count, ranges = problem.num_products, problem.groups.ranges(problem.grouped_rows)
    dots = np.zeros((count, problem.m, op_b.shape[2]))
    for group, (first, end) in enumerate(ranges):
        if problem.divides_k:
            dots[group] = op_a[0, :, first:end] @ op_b[0, first:end]
        else:
            dots[0, first:end] = op_a[0, first:end] @ op_b[group]
    return dots


def _forget_unused(problem: Problem, *operands: Floats) -> None:
    """NaN in place of rows of A, or of A and B as stored, that belong to no group."""
    unused = np.ones(problem.grouped_rows, np.bool_)
    for first, end in problem.groups.ranges(problem.grouped_rows):
        unused[first:end] = False
    for operand in operands if problem.divides_k else operands[:1]:
        operand[0, unused] = np.nan


def _make_extreme(
    rng: np.random.Generator, problem: Problem, data: Data, op_a: Floats, op_b: Floats
) -> None:
    """Change elements of both matrices to the special values of ``data``."""
    if data is Data.REALS and problem.dtype.c.saturates:
        op_a[:, 0] = np.ldexp(op_a[:, 0], problem.dtype.c.largest_exponent - 2)
        if problem.n > 1:
            op_b[:, rng.integers(problem.k), problem.n // 2] = np.nan
    elif data is Data.WIDE:
        kind = rng.integers(len(WIDE), size=problem.k)
        exponents = np.array(WIDE)[kind]
        op_a[:] = np.ldexp(op_a, exponents)
        op_b[:] = np.ldexp(op_b, WIDE[0] + WIDE[-1] - exponents[:, None])
    elif data is Data.SPARSE:
        in_a, in_b = op_a[..., ::2], op_b[..., ::2, :]
        large, zero = (in_b, in_a) if problem.k % 2 else (in_a, in_b)
        large[:], zero[:] = np.ldexp(large, ABOVE), 0.0
    elif data is Data.SPECIAL:
        row, column, k = problem.m - 1, problem.n - 1, rng.integers(problem.k, size=3)
        if rng.integers(2):
            op_a[:, row] = np.ldexp(op_a[:, row], BESIDE)
        op_a[:, row, k[0]] = np.inf
        op_b[:, k[1], column] = np.nan
        if row > 0:
            # FP32 holds its products with numbers below 1. No other number of the row is
            # large, so that no sum overflows on its way to one that does not.
            op_a[:, row // 2, k[2]] = LARGEST
            op_b[:, k[2], :column] *= 0.25


def _make_large(rng: np.random.Generator, data: Data, op_a: Floats, op_b: Floats) -> None:
    """Give integers of every other row of op(A) and column of op(B) one sign: from a K of 2000 on
    their sums have more bits than FP32, which adds up the others exactly.
    """
    if data is not Data.INTEGERS:
        for part in (op_a[:, ::2], op_b[:, :, ::2]):
            part[:] = rng.integers(64, 128, part.shape)


def _matrix(
    rng: np.random.Generator, shape: tuple[int, ...], data: Data, element: Element
) -> Floats:
    """Values that the element type holds exactly; of 8-bit integers all that there are."""
    if data is Data.INTEGERS:
        # No zeros: a term left out must change the sum.
        signs: Floats = rng.choice(np.array([-1.0, 1.0], np.float32), shape)
        return rng.integers(1, 4, shape).astype(np.float32) * signs
    if element.is_integer:
        half = LARGEST_INTEGER if element.size_bytes == 4 else 128
        return rng.integers(-half, half, shape).astype(np.float32)
    return rounded(rng.standard_normal(shape).astype(np.float32), element)


def _is_exact(problem: Problem, magnitude: float) -> bool:
    """Return whether sums of multiples of 1/4 stay below 2^24 such steps."""
    quarters = all(x * 4 == int(x * 4) for x in (problem.alpha, problem.beta))
    # Tensor cores add numbers of as many bits; integers of A and B are 3 at most.
    has_room = 9 * problem.k < 2.0 ** (problem.dtype.ab.accum_fraction_bits + 1)
    return quarters and magnitude * 4 < 2**22 and has_room


def _stored(matrices: Floats, group_rows: int, stride: int, element: Element) -> Stored:
    """Row-major with that stride, each matrix so many rows behind the one before (a single one: 0);
    NaN between rows and matrices, ending with the last element.
    """
    count, rows, columns = matrices.shape
    apart = group_rows or rows
    padded = not_a_number(count * apart * stride, element).reshape(count, apart, stride)
    padded[:, :rows, :columns] = stored(matrices, element)
    return padded.reshape(-1)[: ((count - 1) * apart + rows - 1) * stride + columns].copy()


def _rows(c: Stored, problem: Problem) -> Stored:
    """C as [products, rows of each with the gap behind it, ldc]; what the last one does not have of
    padding and gap is NaN.
    """
    shape = (problem.num_products, problem.batch_rows[2], problem.ldc)
    padded = not_a_number(math.prod(shape), problem.dtype.c)
    padded[: c.size] = c
    return padded.reshape(shape)


def _used(c: Stored, problem: Problem) -> Stored:
    """C without padding and gaps, [products, M, N]; without rows of no group."""
    return _rows(c, problem)[:, used_rows(problem), : problem.n].copy()


def _elements(c: Stored, problem: Problem) -> Floats:
    return loaded(_used(c, problem), problem.dtype.c)
