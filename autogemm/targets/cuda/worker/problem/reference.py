"""The reference for C on the GPU: exact for integers, float64 with a bound on the error for reals.

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

The sums of 8-bit floats have 13 bits of fraction in place of 23, and 32 products a step
(`Element.accum_fraction_bits`; decision 0090 has the sources). The bound is that of a kernel that
never adds them to sums in FP32; one that does is held to it by its errors as a whole
(`autogemm.model.accuracy.short_sums`), and ``--max-error`` asks for more.

Where blocks have scales, tensor cores add 128 products, n = 4 steps. What they cut off may have one
sign within a block, and has the random sign of the block's sum among blocks:

    |error| <= 2^-13 lambda^2 (n + sqrt(33/32 128)) sqrt(sum_k (a_k b_k)^2), whatever K,

of scaled a and b, and lambda^2 u (sqrt(K / 128) + 3) as much for scales and sums in FP32.

Sums of 8-bit integers are exact. In a C of floats one is rounded to FP32 at the end, by at most
u |sum| <= u sqrt(K) sqrt(sum_k (a_k b_k)^2); in a C of 32-bit integers nothing is.

A and B hold numbers of their element type, so that their rounding is no error of the kernel's; C of
16 bits is rounded once more. Decision 0022 has what this bound lets pass, and what not.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autogemm.model.accuracy.short_sums import Promise
from autogemm.model.dtypes import Element
from autogemm.model.epilogue import Gate
from autogemm.model.formula import BLOCK
from autogemm.model.problem import Problem
from autogemm.space import EPILOGUE_PREFIX, epilogue_rules
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, Helpers, pointer
from autogemm.targets.cuda.worker.problem.inputs import TILE, InputSet, Matrix
from autogemm.targets.cuda.worker.problem.precision import FAILURE_PROBABILITY, chain_variance


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle of a product's C: first row and column, extents; of rows of a group the number
    of its B.
    """

    row: int
    col: int
    rows: int
    cols: int
    product: int = 0
    group: int = 0

    @property
    def arguments(self) -> tuple[np.int64, ...]:
        """The arguments as the kernels of verify.cu take them."""
        return tuple(np.int64(value) for value in (self.row, self.col, self.rows, self.cols))


class Reference:
    """The right C for one set of inputs: exact, or float64 with a bound.

    The addresses of the exact result, of the float64 result and of the allowed errors are 0 where
    there is none: the first for real inputs, the others for integer inputs. ``predicted`` is the
    sum of the squared errors that FP32 is expected to make (precision.py); 0 where nothing is.

    ``fused`` has the kernels of an epilogue. Its results have a bound in any case, on integers
    that of the epilogue's own rounding. ``rounds_sums``: to C's type, before the epilogue.
    ``of_output``: it is for the second output, not for C. Of C's, ``second`` is that one, None
    where there is none.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # the GPU, its library, and what is to be right
        self,
        gpu: Gpu,
        cublas: Cublas,
        problem: Problem,
        inputs: InputSet,
        fused: Helpers | None = None,
        rounds_sums: bool = False,
        of_output: bool = False,
    ) -> None:
        self._gpu, self._cublas = gpu, cublas
        self._fused, self._rounds_sums, self._of_output = fused, rounds_sums, of_output
        self._problem, self._inputs = problem, inputs
        elements = problem.m * problem.n * problem.num_products
        sizes = (4, 0, 0) if inputs.integers and fused is None else (0, 8, 4)
        self._buffers = [gpu.allocate(size * elements) if size else None for size in sizes]
        addresses = [int(buffer.ptr) if buffer else 0 for buffer in self._buffers]
        self.exact_address, self.real_address, self.bound_address = addresses
        self._predicted = gpu.allocate(8)
        gpu.write(int(self._predicted.ptr), np.zeros(1))
        self._compute()
        predicted = np.zeros(1)
        gpu.read(int(self._predicted.ptr), predicted)
        of_fp32 = problem.dtype.has_fp32_products and fused is None
        self.predicted = float(predicted[0]) if of_fp32 else 0.0
        self.second: Reference | None = None
        if problem.epilogue.output is not None and not of_output:
            self.second = Reference(gpu, cublas, problem, inputs, fused, rounds_sums, True)

    def times_expected(
        self, promise: Promise, num_elements: int, of_errors: float, of_expected: float
    ) -> float:
        """How many times the promised errors are those of a result. The last two are sums of
        squares, of its errors and of what is expected, as shares of the bounds.

        A bound has what the epilogue makes of the allowance of a sum, hence that part of it of an
        error that is smaller, or more.
        """
        allowance = rounding_allowance(self._problem)
        promised = num_elements * promise.variance / allowance**2 + promise.of_result * of_expected
        return math.sqrt(of_errors / promised)

    def _compute(self) -> None:
        problem = self._problem
        tile_m, tile_n = min(TILE, problem.m), min(TILE, problem.n)
        tile_k = min(TILE, problem.k)
        wide = tile_n * problem.epilogue.num_columns
        a_tile = self._gpu.allocate(8 * tile_m * tile_k)
        b_tile = self._gpu.allocate(8 * tile_k * wide)
        product = self._gpu.allocate(8 * tile_m * wide)
        squares = self._gpu.allocate(8 * tile_m * wide)
        for tile in self._tiles():
            self._multiply(tile, (a_tile.ptr, b_tile.ptr, product.ptr), squared=False)
            if self._inputs.integers and self._fused is None:
                self._finish_exact(tile, product.ptr)
            elif self._inputs.integers and self._fused is not None:
                self._finish_fused(self._fused, tile, product.ptr, 0)
            else:
                self._multiply(tile, (a_tile.ptr, b_tile.ptr, squares.ptr), squared=True)
                if self._fused is None:
                    self._finish(tile, product.ptr, squares.ptr)
                else:
                    self._finish_fused(self._fused, tile, product.ptr, squares.ptr)
        # The tiles go back to the pool now, the kernels that use them must have run.
        self._gpu.stream.synchronize()

    def _tiles(self) -> Iterator[Tile]:
        """The tiles of all products."""
        problem = self._problem
        if not (problem.groups.is_none or problem.divides_k):
            yield from self._tiles_of_groups()
            return
        corners = itertools.product(range(0, problem.m, TILE), range(0, problem.n, TILE))
        for (row, col), number in itertools.product(corners, range(problem.num_products)):
            rows, cols = min(TILE, problem.m - row), min(TILE, problem.n - col)
            yield Tile(row, col, rows, cols, number)

    def _tiles_of_groups(self) -> Iterator[Tile]:
        problem = self._problem
        for group, (first, end) in enumerate(problem.groups.ranges(problem.m)):
            for row, col in itertools.product(range(first, end, TILE), range(0, problem.n, TILE)):
                rows, cols = min(TILE, end - row), min(TILE, problem.n - col)
                yield Tile(row, col, rows, cols, group=group)

    def _of_product(self, address: int, tile: Tile, num_bytes: int) -> np.uint64:
        """The address of the tile's product in packed results of so many bytes an element."""
        elements = tile.product * self._problem.m * self._problem.n
        return pointer(address + num_bytes * elements if address else 0)

    def _multiply(self, tile: Tile, buffers: tuple[int, int, int], *, squared: bool) -> None:
        """op(A) op(B) of one tile of C in float64, all of K; optionally of squared elements.

        For a gated epilogue these are two columns for each of C, one tile behind the other or
        alternating.
        """
        a_tile, b_tile, product = buffers
        for part in self._parts(tile):
            self._multiply_part(part, (a_tile, b_tile, product), squared=squared)
            product += 8 * part.rows * part.cols

    def _parts(self, tile: Tile) -> list[Tile]:
        """The tiles of the product that a tile of C is made of."""
        col, cols = tile.col, tile.cols
        match self._problem.epilogue.gate:
            case Gate.NONE:
                return [tile]
            case Gate.HALVES:
                return [tile, replace(tile, col=col + self._problem.n)]
            case Gate.INTERLEAVED:
                return [replace(tile, col=2 * col, cols=2 * cols)]

    def _multiply_part(self, tile: Tile, buffers: tuple[int, int, int], *, squared: bool) -> None:
        a_tile, b_tile, product = buffers
        layout = self._problem.layout
        product_of_a = product_of_b = 0 if self._problem.divides_k else tile.product
        first, end = self._range_of_k(tile)
        if first == end:
            size = 8 * tile.rows * tile.cols
            self._gpu.runtime.memsetAsync(product, 0, size, self._gpu.stream.ptr)
        for k in range(first, end, TILE):
            depth = min(TILE, end - k)
            a_part = Tile(tile.row, k, tile.rows, depth, product_of_a)
            b_part = Tile(k, tile.col, depth, tile.cols, product_of_b or tile.group)
            a_ld = self._widen(a_tile, self._inputs.a, a_part, layout.trans_a, squared)
            b_ld = self._widen(b_tile, self._inputs.b, b_part, layout.trans_b, squared)
            if self._problem.epilogue.scales:
                self._scale(a_tile, b_tile, a_part, b_part, squared=squared)
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
                    beta=0.0 if k == first else 1.0,
                    c=product,
                    ldc=tile.cols,
                )
            )

    def _range_of_k(self, tile: Tile) -> tuple[int, int]:
        """The first k of the tile's dot products, and the one behind the last."""
        if self._problem.divides_k:
            return self._problem.groups.ranges(self._problem.k)[tile.product]
        return (0, self._problem.k)

    def _widen(
        self, target: int, matrix: Matrix, part: Tile, transposed: bool, squared: bool
    ) -> int:
        """A part of op(matrix) as it is stored, in float64; returns its leading dimension."""
        stored = _transposed(part) if transposed else part
        self._gpu.run_helper(
            "widen_tile",
            stored.rows * stored.cols,
            pointer(target),
            pointer(matrix.address_of(part.product)),
            np.int32(matrix.element.format_code),
            np.int64(matrix.ld),
            *stored.arguments,
            np.int32(squared),
        )
        return stored.cols

    def _scale(self, a_tile: int, b_tile: int, a: Tile, b: Tile, *, squared: bool) -> None:
        """Multiply parts of op(A) and op(B), as they are stored, by the scales of their blocks."""
        problem = self._problem
        of_a, of_b = problem.epilogue.scales
        # Extent of a block and distance of its scale to the next: along rows, then along columns.
        m, k_of_a = (1, 1), (BLOCK, problem.m)
        blocks_of_n, blocks_of_k = -(-problem.n // BLOCK), -(-problem.k // BLOCK)
        n, k_of_b = (BLOCK, blocks_of_k), (BLOCK, 1)
        # Each group has a B with scales of its own.
        before_b = b.product * blocks_of_n * blocks_of_k
        if problem.layout.trans_a:
            a, m, k_of_a = _transposed(a), k_of_a, m
        if problem.layout.trans_b:
            b, k_of_b, n = _transposed(b), n, k_of_b
        for target, part, scales, before, steps in (
            (a_tile, a, of_a, 0, (*m, *k_of_a)),
            (b_tile, b, of_b, before_b, (*k_of_b, *n)),
        ):
            own = self._inputs.extras[EPILOGUE_PREFIX + scales.name]
            self._gpu.run_helper(
                "scale_tile",
                part.rows * part.cols,
                pointer(target),
                pointer(own.address + before * own.element.size_bytes),
                *map(np.int64, steps),
                *part.arguments,
                np.int32(squared),
            )

    def _finish(self, tile: Tile, product: int, squares: int) -> None:
        first, end = self._range_of_k(tile)
        self._gpu.run_helper(
            "finish_tile",
            tile.rows * tile.cols,
            pointer(product),
            pointer(squares),
            self._of_product(self._inputs.c0_address, tile, self._problem.dtype.c.size_bytes),
            np.int32(self._problem.dtype.c.format_code),
            np.float64(self._inputs.alpha),
            np.float64(self._inputs.beta),
            np.float64(rounding_allowance(self._problem)),
            np.float64(chain_variance(end - first)),
            *tile.arguments,
            np.int64(self._problem.n),
            self._of_product(self.real_address, tile, 8),
            self._of_product(self.bound_address, tile, 4),
            pointer(self._predicted.ptr),
        )

    def _finish_fused(self, fused: Helpers, tile: Tile, product: int, squares: int) -> None:
        """As `_finish`, with the epilogue; without squares sums are exact."""
        problem, inputs = self._problem, self._inputs
        of_sums = problem.dtype.of_sums.c
        sum_roundoff = of_sums.unit_roundoff if self._rounds_sums else 0.0
        fused.run(
            "finish_fused_tile",
            tile.rows * tile.cols,
            pointer(product),
            pointer(squares),
            self._of_product(inputs.c0_address, tile, problem.dtype.c.size_bytes),
            np.int32(problem.dtype.c.format_code),
            np.float64(inputs.alpha),
            np.float64(inputs.beta),
            np.float64(rounding_allowance(problem)),
            np.float64(sum_roundoff),
            np.int32(squares == 0 and not self._rounds_sums),
            *tile.arguments,
            np.int64(problem.n),
            self._of_product(self.real_address, tile, 8),
            self._of_product(self.bound_address, tile, 4),
            *([np.int32(self._of_output)] if problem.epilogue.output is not None else []),
            *(
                np.float64(one) if isinstance(one, float) else one
                for one in epilogue_inputs(problem, inputs, tile.group)
            ),
        )

    def _finish_exact(self, tile: Tile, product: int) -> None:
        self._gpu.run_helper(
            "finish_exact_tile",
            tile.rows * tile.cols,
            pointer(product),
            self._of_product(self._inputs.c0_address, tile, self._problem.dtype.c.size_bytes),
            np.int32(self._problem.dtype.c.format_code),
            np.float64(self._inputs.alpha),
            np.float64(self._inputs.beta),
            *tile.arguments,
            np.int64(self._problem.n),
            self._of_product(self.exact_address, tile, 4),
        )


def _transposed(part: Tile) -> Tile:
    return replace(part, row=part.col, col=part.row, rows=part.cols, cols=part.rows)


def epilogue_inputs(
    problem: Problem, inputs: InputSet, group: int = 0, first_row: int = 0
) -> list[np.uint64 | float]:
    """The inputs of the epilogue in order: the address of an array, or a number; where kernels get
    them for rows of that group, counted from ``first_row`` of C.
    """
    steps = {"g": group, "g, n": group * problem.n, "m": first_row, "m, n": first_row * problem.n}
    found: list[np.uint64 | float] = []
    for rule, one in zip(epilogue_rules(problem), problem.epilogue.inputs, strict=True):
        if one.axes:
            away = steps.get(one.axes, 0) * one.element(problem.dtype).size_bytes
            found.append(pointer(inputs.extras[rule.name].address + away))
        else:
            found.append(rule.neutral)
    return found


def rounding_allowance(problem: Problem, num_products: int | None = None) -> float:
    """Return the factor of sqrt(sum_k (a_k b_k)^2) that bounds a dot product's error.

    ``num_products`` are summed in FP32 where that is fewer than K.
    """
    lambda_squared = 2 * math.log(problem.flops / FAILURE_PROBABILITY)
    if problem.dtype.has_fp32_products:
        in_chain = num_products or problem.k
        return lambda_squared * Element.F32.unit_roundoff * math.sqrt(in_chain)
    element = problem.dtype.ab
    if element.is_integer:
        exact = problem.dtype.has_exact_sums
        return 0.0 if exact else Element.F32.unit_roundoff * math.sqrt(problem.k)
    truncation = 2.0**-element.accum_fraction_bits * math.sqrt(lambda_squared)
    per_step = element.products_per_step
    if problem.epilogue.scales:
        return _allowance_of_blocks(problem, lambda_squared)
    at_random = math.sqrt(lambda_squared * (1 + 1 / per_step) * problem.k)
    return truncation * (problem.k / per_step + at_random)


def _allowance_of_blocks(problem: Problem, lambda_squared: float) -> float:
    """As `rounding_allowance`, where blocks of 128 along k have scales and sums of their own."""
    element = problem.dtype.ab
    in_block = min(problem.k, BLOCK)
    num_blocks = -(-problem.k // BLOCK)
    steps = in_block / element.products_per_step
    cut_off = 2.0**-element.accum_fraction_bits * (steps + math.sqrt(in_block + steps))
    # Two factors, and one addition each, in FP32.
    of_sums = Element.F32.unit_roundoff * (math.sqrt(num_blocks) + 3)
    return lambda_squared * (cut_off + of_sums)
