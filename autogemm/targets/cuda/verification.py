"""Checks a result on the card, element by element, before any time is believed.

Two checks catch different faults. On integer inputs every right kernel gives exactly the
reference, so one dropped or doubled product is seen. On real inputs |C - reference| must stay
within a bound on the rounding error of float32 arithmetic, which lower precision does not meet.

The bound follows from probabilistic rounding error analysis (Higham and Mary, SIAM J. Sci.
Comput. 41(5), 2019, A2815; for random data 42(5), 2020, A3427). With independent mean-zero
rounding errors of at most u, the error of a dot product stays below

    lambda u sqrt(sum of squares of its K partial sums),

and with inputs of random sign every partial sum stays below lambda sqrt(sum_k (a_k b_k)^2), so

    |error| <= lambda^2 u sqrt(K) sqrt(sum_k (a_k b_k)^2),    lambda = sqrt(2 ln(2 M N K / p)),

each with probability 1 - p over all partial sums of all elements. The sums of squares come from
one more float64 GEMM. The classical lambda sqrt(K) u |A||B| is several times larger at the sizes
of interest, enough to let TF32 pass.

Tensor cores multiply 16-bit and TF32 numbers exactly, but cut sums off where FP32 ends instead of
rounding them (Fasi, Higham, Mikaitis and Pranesh, PeerJ Computer Science 7:e330, 2021: 4 to 16
products are added to a sum in one step, each term aligned to the largest and truncated, the result
truncated once more). Of at most 2 u times a partial sum each, the truncated results, one in four
products, may all have one sign; the terms, with the sign of what they were cut from, are random. So

    |error| <= 2 u lambda (K / 4 + lambda sqrt(5/4 K)) sqrt(sum_k (a_k b_k)^2).

A and B hold numbers of their element type, so that their rounding is no error of the kernel's; C of
16 bits is rounded once more. Decision 0022 has what this bound lets pass, and what not.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autogemm.dtypes import Element
from autogemm.outcome import Verification
from autogemm.problem import Problem
from autogemm.targets.cuda.card import Card, pointer
from autogemm.targets.cuda.cublas import Cublas, Gemm
from autogemm.targets.cuda.inputs import (
    ALIGNMENT_BYTES,
    CANARY_BITS,
    ELEMENT_NUMBERS,
    GUARD,
    NAN_BITS,
    TILE,
    InputSet,
    Matrix,
    aligned_address,
    num_elements,
)

# Chance that rounding alone breaks the bound anywhere, per problem.
FAILURE_PROBABILITY = 1e-6
# Of the tensor cores that add the fewest in one step.
PRODUCTS_PER_STEP = 4

# Layout of what check_result() in verify.cu writes per block.
CHECK_FIELDS = 10
CHECK_BLOCKS = 512


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of C: first row and column, extents."""

    row: int
    col: int
    rows: int
    cols: int

    @property
    def arguments(self) -> tuple[np.int64, ...]:
        """As the kernels of verify.cu take them."""
        return tuple(np.int64(value) for value in (self.row, self.col, self.rows, self.cols))


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One comparison of C with its reference, all elements counted."""

    mismatches: int
    worst_score: float
    worst_at: tuple[int, int]
    value: float
    expected: float
    max_abs_error: float
    relative_frobenius: float
    overwritten: int
    shape: tuple[int, int]

    def complaint(self, inputs: str) -> str:
        """One line on what is wrong; empty when nothing is."""
        row, col = self.worst_at
        if self.mismatches:
            return (
                f"{self.mismatches} of {self.shape[0] * self.shape[1]} elements are wrong on "
                f"{inputs} inputs, worst C[{row}, {col}]: got {self.value:.9g}, "
                f"expected {self.expected:.9g}"
            )
        if self.overwritten:
            return (
                f"{self.overwritten} elements outside C (between or around its rows) were written"
            )
        return ""

    @property
    def verification(self) -> Verification | None:
        """The errors as the outcome keeps them; None when the result holds NaN or infinity."""
        errors = (self.max_abs_error, self.worst_score, self.relative_frobenius)
        return Verification(*errors) if all(map(math.isfinite, errors)) else None


class Result:
    """C on the card, with canaries between its rows and around it."""

    def __init__(self, card: Card, problem: Problem) -> None:
        self._card = card
        self._shape = (problem.m, problem.n)
        self._ldc = problem.ldc
        self._element = problem.dtype.c
        self._total = num_elements(problem.m, problem.n, problem.ldc) + 2 * GUARD
        num_bytes = self._element.size_bytes * self._total
        self._buffer = card.allocate(num_bytes + ALIGNMENT_BYTES)
        self._fields = card.allocate(8 * CHECK_FIELDS * CHECK_BLOCKS)
        self.address = aligned_address(int(self._buffer.ptr), self._element)

    def reset(self, inputs: InputSet) -> None:
        """C as it is before a launch: the inputs' C, or NaN where a kernel must not read it."""
        self._card.run_helper(
            "reset_result",
            self._total,
            self._begin,
            np.int32(self._element.size_bytes),
            *self._geometry,
            pointer(inputs.c0_address),
            np.uint32(NAN_BITS),
            np.uint32(CANARY_BITS[self._element.size_bytes]),
        )

    def check(self, reference: "Reference") -> CheckResult:
        """Compare every element, and every canary. Waits for the card."""
        self._card.run_helper_blocks(
            "check_result",
            CHECK_BLOCKS,
            self._begin,
            np.int32(ELEMENT_NUMBERS[self._element]),
            *self._geometry,
            np.uint32(CANARY_BITS[self._element.size_bytes]),
            pointer(reference.exact_address),
            pointer(reference.real_address),
            pointer(reference.bound_address),
            pointer(self._fields.ptr),
        )
        fields = np.zeros((CHECK_BLOCKS, CHECK_FIELDS))
        self._card.read(self._fields.ptr, fields)
        return summarised(fields, self._shape)

    @property
    def _begin(self) -> np.uint64:
        return pointer(self.address - self._element.size_bytes * GUARD)

    @property
    def _geometry(self) -> tuple[np.generic, ...]:
        return (
            np.int64(self._total),
            np.int64(GUARD),
            np.int64(self._shape[1]),
            np.int64(self._ldc),
        )


def summarised(fields: NDArray[np.float64], shape: tuple[int, int]) -> CheckResult:
    """The blocks' rows of CHECK_FIELDS numbers as one result."""
    _, score, index, value, expected = fields[int(np.argmax(fields[:, 1])), :5]
    squared_error, squared_expected = fields[:, 6].sum(), fields[:, 7].sum()
    # An all-zero reference has no relative error; its absolute one is zero if C is right.
    relative = math.sqrt(squared_error / squared_expected) if squared_expected > 0 else 0.0
    return CheckResult(
        mismatches=int(fields[:, 0].sum()),
        worst_score=float(score),
        worst_at=divmod(int(index), shape[1]),
        value=float(value),
        expected=float(expected),
        max_abs_error=float(fields[:, 5].max()),
        relative_frobenius=relative,
        overwritten=int(fields[:, 8].sum()),
        shape=shape,
    )


class Reference:
    """What C must be for one set of inputs: exact, or float64 with a bound."""

    def __init__(self, card: Card, cublas: Cublas, problem: Problem, inputs: InputSet) -> None:
        self._card, self._cublas = card, cublas
        self._problem, self._inputs = problem, inputs
        elements = problem.m * problem.n
        self._exact = card.allocate(4 * elements) if inputs.integers else None
        self._real = None if inputs.integers else card.allocate(8 * elements)
        self._bound = None if inputs.integers else card.allocate(4 * elements)
        self._compute()

    @property
    def exact_address(self) -> int:
        """Of the exact result; 0 for real inputs."""
        return int(self._exact.ptr) if self._exact else 0

    @property
    def real_address(self) -> int:
        """Of the float64 result; 0 for integer inputs."""
        return int(self._real.ptr) if self._real else 0

    @property
    def bound_address(self) -> int:
        """Of the allowed errors; 0 for integer inputs."""
        return int(self._bound.ptr) if self._bound else 0

    def _compute(self) -> None:
        problem = self._problem
        tile_m, tile_n = min(TILE, problem.m), min(TILE, problem.n)
        tile_k = min(TILE, problem.k)
        a_tile = self._card.allocate(8 * tile_m * tile_k)
        b_tile = self._card.allocate(8 * tile_k * tile_n)
        product = self._card.allocate(8 * tile_m * tile_n)
        squares = self._card.allocate(8 * tile_m * tile_n)
        for row in range(0, problem.m, TILE):
            for col in range(0, problem.n, TILE):
                rows, cols = min(TILE, problem.m - row), min(TILE, problem.n - col)
                tile = Tile(row, col, rows, cols)
                self._multiply(tile, (a_tile.ptr, b_tile.ptr, product.ptr), squared=False)
                if self._inputs.integers:
                    self._finish_exact(tile, product.ptr)
                else:
                    self._multiply(tile, (a_tile.ptr, b_tile.ptr, squares.ptr), squared=True)
                    self._finish(tile, product.ptr, squares.ptr)
        # The tiles go back to the pool now, the kernels that use them must have run.
        self._card.stream.synchronize()

    def _multiply(self, tile: Tile, buffers: tuple[int, int, int], *, squared: bool) -> None:
        """op(A) op(B) of one tile of C in float64, all of K; optionally of squared elements."""
        a_tile, b_tile, product = buffers
        layout = self._problem.layout
        for k in range(0, self._problem.k, TILE):
            depth = min(TILE, self._problem.k - k)
            a_part = Tile(tile.row, k, tile.rows, depth)
            b_part = Tile(k, tile.col, depth, tile.cols)
            a_ld = self._widen(a_tile, self._inputs.a, a_part, layout.trans_a, squared)
            b_ld = self._widen(b_tile, self._inputs.b, b_part, layout.trans_b, squared)
            self._cublas.dgemm(
                Gemm(
                    m=tile.rows,
                    n=tile.cols,
                    k=depth,
                    trans_a=layout.trans_a,
                    trans_b=layout.trans_b,
                    alpha=1.0,
                    a=a_tile,
                    lda=a_ld,
                    b=b_tile,
                    ldb=b_ld,
                    beta=1.0 if k else 0.0,
                    c=product,
                    ldc=tile.cols,
                )
            )

    def _widen(
        self, target: int, matrix: Matrix, part: Tile, transposed: bool, squared: bool
    ) -> int:
        """A part of op(matrix) as it is stored, in float64; returns its leading dimension."""
        stored = Tile(part.col, part.row, part.cols, part.rows) if transposed else part
        self._card.run_helper(
            "widen_tile",
            stored.rows * stored.cols,
            pointer(target),
            pointer(matrix.address),
            np.int32(ELEMENT_NUMBERS[matrix.element]),
            np.int64(matrix.ld),
            *stored.arguments,
            np.int32(squared),
        )
        return stored.cols

    def _finish(self, tile: Tile, product: int, squares: int) -> None:
        self._card.run_helper(
            "finish_tile",
            tile.rows * tile.cols,
            pointer(product),
            pointer(squares),
            pointer(self._inputs.c0_address),
            np.int32(ELEMENT_NUMBERS[self._problem.dtype.c]),
            np.float64(self._inputs.alpha),
            np.float64(self._inputs.beta),
            np.float64(rounding_allowance(self._problem)),
            *tile.arguments,
            np.int64(self._problem.n),
            pointer(self.real_address),
            pointer(self.bound_address),
        )

    def _finish_exact(self, tile: Tile, product: int) -> None:
        self._card.run_helper(
            "finish_exact_tile",
            tile.rows * tile.cols,
            pointer(product),
            pointer(self._inputs.c0_address),
            np.int32(ELEMENT_NUMBERS[self._problem.dtype.c]),
            np.float64(self._inputs.alpha),
            np.float64(self._inputs.beta),
            *tile.arguments,
            np.int64(self._problem.n),
            pointer(self.exact_address),
        )


def rounding_allowance(problem: Problem) -> float:
    """What sqrt(sum_k (a_k b_k)^2) is multiplied by to bound a dot product's error."""
    lambda_squared = 2 * math.log(2 * problem.m * problem.n * problem.k / FAILURE_PROBABILITY)
    if problem.dtype.has_fp32_products:
        return lambda_squared * Element.F32.unit_roundoff * math.sqrt(problem.k)
    partial_sum = math.sqrt(lambda_squared)
    truncation = 2 * Element.F32.unit_roundoff * partial_sum
    at_random = math.sqrt(lambda_squared * (1 + 1 / PRODUCTS_PER_STEP) * problem.k)
    return truncation * (problem.k / PRODUCTS_PER_STEP + at_random)
