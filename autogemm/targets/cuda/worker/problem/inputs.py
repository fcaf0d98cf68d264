"""Matrices on the GPU: sets of inputs, and the memory that a problem takes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np

from autogemm.model.dtypes import Element
from autogemm.model.epilogue import sum_exponent
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Fill
from autogemm.space import EPILOGUE_PREFIX
from autogemm.support.errors import UsageError
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, pointer
from autogemm.targets.cuda.worker.problem.precision import few_step

# Elements before and after each matrix, not to be touched: NaN around inputs, canaries around C.
GUARD = 1024
# Where matrices begin, as large allocations of users do. It matters: 4 KiB further on, cuBLAS was
# 2.5 % slower at 4096x256x1024 on an H100 and the kernels were not.
ALIGNMENT_BYTES = 2 * 2**20
# All bits set: NaN in every element type, -1 of integers.
NAN_BITS = 0xFFFFFFFF
# As fill_random() of verify.cu knows them.
FILL_NUMBERS = {Fill.UNIFORM: 0, Fill.INTEGERS: 1, Fill.NORMAL: 2, Fill.ZEROS: 3}
# Seeds of the matrices of a batch differ by multiples of two to the power of this.
SEED_BITS = 33
# With a rotating L2 this many times its size of other inputs is read before a set's turn comes
# again: caches do not replace strictly the oldest.
ROTATED_L2_SIZES = 2
MAX_ROTATED = 2000

# Edge of the tiles in which float64 references are computed.
TILE = 4096
SPARE_BYTES = 128 * 2**20


@dataclass(frozen=True, slots=True)
class Stacking:
    """So many matrices, each ``rows`` rows behind the one before."""

    count: int = 1
    rows: int = 0

    def total_rows(self, rows: int) -> int:
        """Rows from the first of the first matrix to the last of the last, of ``rows`` each."""
        return (self.count - 1) * self.rows + rows


class Matrix:
    """A rows x cols matrix of exactly the size needed, or those of a batch, NaN between its rows,
    between matrices and around them.
    """

    def __init__(
        self,
        gpu: Gpu,
        shape: tuple[int, int],
        ld: int,
        element: Element,
        stacking: Stacking = Stacking(),
    ) -> None:
        self._gpu = gpu
        self.rows, self.cols = shape
        self.ld, self.element, self._stacking = ld, element, stacking
        self.total = num_elements(stacking.total_rows(self.rows), self.cols, ld) + 2 * GUARD
        self._buffer = gpu.allocate(element.size_bytes * self.total + ALIGNMENT_BYTES)
        self.address = aligned_address(int(self._buffer.ptr), element)
        self.buffer_address = self.address - element.size_bytes * GUARD

    @property
    def num_elements(self) -> int:
        """Elements from the first to the last, those between rows and matrices too."""
        return self.total - 2 * GUARD

    @property
    def count(self) -> int:
        """The number of matrices."""
        return self._stacking.count

    def address_of(self, product: int) -> int:
        """The address of the matrix of a product; all share one where there is no other."""
        number = product if self._stacking.count > 1 else 0
        return self.address + number * self._stacking.rows * self.ld * self.element.size_bytes

    def keep_few(self, step: int, *, transposed: bool) -> None:
        """Make all zero but one column (if transposed, row) of each ``step``."""
        for product in range(self._stacking.count):
            self._run("keep_few", product, np.int32(transposed), np.int64(step))

    def _run(self, name: str, product: int, *arguments: np.generic) -> None:
        """Run a kernel of verify.cu over the elements of one matrix."""
        self._gpu.run_helper(
            name,
            self.rows * self.cols,
            pointer(self.address_of(product)),
            np.int32(self.element.format_code),
            np.int64(self.rows),
            np.int64(self.cols),
            np.int64(self.ld),
            *arguments,
        )

    def fill(self, seed: int, fill: Fill) -> None:
        """Values of that kind, random but for zeros."""
        self._gpu.run_helper(
            "fill_bits",
            self.total,
            pointer(self.buffer_address),
            np.int64(self.total),
            np.int32(self.element.size_bytes),
            np.uint32(NAN_BITS),
        )
        for product in range(self._stacking.count):
            own_seed = np.uint64(seed + (product << SEED_BITS))
            self._run("fill_random", product, own_seed, np.int32(FILL_NUMBERS[fill]))

    def scale(self, exponent: int) -> None:
        """Multiply by a power of two that the element type can take."""
        for product in range(self._stacking.count if exponent else 0):
            self._run("scale_elements", product, np.float32(2.0**exponent))

    def scale_first(self, exponent: int, *, transposed: bool) -> None:
        """Multiply the first row (if transposed, column) of each matrix by a power of two."""
        rows, cols = (self.rows, 1) if transposed else (1, self.cols)
        for product in range(self._stacking.count):
            self._gpu.run_helper(
                "scale_elements",
                rows * cols,
                pointer(self.address_of(product)),
                np.int32(self.element.format_code),
                *map(np.int64, (rows, cols, self.ld)),
                np.float32(2.0**exponent),
            )

    def forget(self, row: int, col: int) -> None:
        """Make the element at that place of each matrix NaN."""
        for product in range(self._stacking.count):
            self._gpu.run_helper(
                "fill_bits",
                1,
                pointer(self.address_of(product) + (row * self.ld + col) * self.element.size_bytes),
                np.int64(1),
                np.int32(self.element.size_bytes),
                np.uint32(NAN_BITS),
            )


def aligned_address(buffer_address: int, element: Element) -> int:
    """The first address in a buffer where a matrix may begin: aligned, behind its guard."""
    least = buffer_address + element.size_bytes * GUARD
    return -(-least // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class InputSet:
    """A, B, C as it was before (None where it is not read), alpha and beta, and ``extras``: arrays
    that an epilogue reads, by the names of their arguments.

    ``own_c`` is the address of a C of the set's own, where it has one; ``output_address`` is where
    a second output goes.

    Values are of the element types of A, B and C. Filled with integers every product and partial
    sum is exact in float32, whatever the order of summation: at most 9 K < 2^24 up to K = 1.8
    million, and beyond that far (over 70 standard deviations) below it because the signs are
    random. Where C saturates, sums of the first row are beyond its largest number, and a column has
    a NaN. Scalars that would spoil that are replaced. With an epilogue A is smaller by a power of
    2, so that sums are about 1 (`autogemm.model.epilogue.sum_exponent`), unless A holds integers.
    """

    def __init__(self, gpu: Gpu, problem: Problem, seed: int, fill: Fill) -> None:
        self._gpu = gpu
        self.fill = fill
        self.integers = integers = fill is Fill.INTEGERS
        self._seed = seed
        alpha, beta = float(np.float32(problem.alpha)), float(np.float32(problem.beta))
        is_plain = problem.epilogue.is_plain
        replaces = integers and is_plain
        self.alpha = exact_scalar(alpha, 2.0) if replaces else alpha
        self.beta = exact_scalar(beta, 0.5) if replaces else beta
        scales = integers and not is_plain and not problem.dtype.ab.is_integer
        self._shift = -sum_exponent(problem.k) if scales else 0
        dtype = problem.dtype
        shape = (problem.m, problem.n, problem.k, problem.groups.count)
        counts = zip(problem.num_matrices, problem.batch_rows, strict=True)
        of_a, of_b, self._of_c = (Stacking(*one) for one in counts)
        self.a = Matrix(gpu, problem.a_shape, problem.lda, dtype.ab, of_a)
        self.b = Matrix(gpu, problem.b_shape, problem.ldb, dtype.b, of_b)
        packed = (problem.m * problem.num_products, problem.n)
        self.c0 = Matrix(gpu, packed, problem.n, dtype.c) if problem.reads_c else None
        self.extras = {
            EPILOGUE_PREFIX + one.name: _matrix_of(gpu, one.shape(*shape), one.element(dtype))
            for one in problem.epilogue.inputs
            if one.axes
        }
        self._own_c: Matrix | None = None
        self.output_address = 0
        self._sum = gpu.allocate(8)
        for number, matrix in enumerate(self._matrices()):
            matrix.fill(4 * seed + number, fill)
        self.a.scale(self._shift)
        if integers and dtype.c.saturates:
            self._make_extreme(problem)
        for number, matrix in enumerate(self.extras.values()):
            matrix.fill(4 * (seed + 1000) + number, fill)
            matrix.scale(-2 if integers else 0)
        self._checksum = self.checksum()

    @property
    def c0_address(self) -> int:
        """The address of C before the launch, packed, of all products; 0 at beta = 0."""
        return self.c0.address if self.c0 is not None else 0

    @property
    def own_c(self) -> int | None:
        """The address of a C that only this set is multiplied into; None if it has none."""
        return self._own_c.address if self._own_c is not None else None

    def give_own_c(self, problem: Problem) -> None:
        """A C of its own, holding what C held before, with the problem's leading dimension."""
        shape = (problem.m, problem.n)
        self._own_c = Matrix(self._gpu, shape, problem.ldc, problem.dtype.c, self._of_c)
        self._own_c.fill(4 * self._seed + 2, self.fill)

    def _make_extreme(self, problem: Problem) -> None:
        layout, largest = problem.layout, problem.dtype.c.largest_exponent
        self.a.scale_first(largest - 2 - self._shift, transposed=layout.trans_a)
        if problem.n > 1:
            place = (problem.k // 2, problem.n // 2)
            self.b.forget(*(reversed(place) if layout.trans_b else place))

    @contextmanager
    def few_products(self, problem: Problem) -> Iterator[None]:
        """Within it A is zero but in few columns; behind it, as it was."""
        self.a.keep_few(few_step(problem.k), transposed=problem.layout.trans_a)
        try:
            yield
        except BaseException:
            # In a broken context this fails too; the first error is the one that counts.
            with suppress(*self._gpu.cuda_errors):
                self._fill_a()
            raise
        self._fill_a()

    def _fill_a(self) -> None:
        self.a.fill(4 * self._seed, self.fill)
        self.a.scale(self._shift)

    def changed(self) -> bool:
        """Whether something wrote to the inputs, their padding or the guards around them."""
        return self.checksum() != self._checksum

    def checksum(self) -> int:
        """Return a checksum of all bits and their positions."""
        self._gpu.runtime.memsetAsync(self._sum.ptr, 0, 8, self._gpu.stream.ptr)
        for matrix in (*self._matrices(), *self.extras.values()):
            self._gpu.run_helper(
                "add_checksum",
                matrix.total,
                pointer(matrix.buffer_address),
                np.int64(matrix.total),
                np.int32(matrix.element.size_bytes),
                pointer(self._sum.ptr),
            )
        value = np.zeros(1, np.uint64)
        self._gpu.read(self._sum.ptr, value)
        return int(value[0])

    def _matrices(self) -> list[Matrix]:
        return [matrix for matrix in (self.a, self.b, self.c0) if matrix is not None]


def _matrix_of(gpu: Gpu, shape: tuple[int, ...], element: Element) -> Matrix:
    """A packed array of one index as one row, with those before the last as one."""
    *rows, cols = shape
    return Matrix(gpu, (math.prod(rows), cols), cols, element)


def exact_scalar(value: float, otherwise: float) -> float:
    """``value`` if it is a multiple of 1/4 up to 4, so that scaling is exact; else a stand-in."""
    return value if abs(value) <= 4 and (4 * value).is_integer() else otherwise


def num_elements(rows: int, cols: int, ld: int) -> int:
    """Count the elements from the first of a row-major matrix to its last."""
    return (rows - 1) * ld + cols


def input_bytes(problem: Problem) -> int:
    """Return the bytes of A, B and, unless beta = 0, C."""
    rows_a, rows_b, _ = problem.stacked_rows
    elements = num_elements(rows_a, problem.a_shape[1], problem.lda)
    elements += num_elements(rows_b, problem.b_shape[1], problem.ldb)
    old_c = problem.m * problem.n * problem.num_products if problem.reads_c else 0
    extents = (problem.m, problem.n, problem.k, problem.groups.count)
    own = problem.epilogue.input_bytes(extents, problem.dtype)
    return problem.dtype.ab.size_bytes * elements + problem.dtype.c.size_bytes * old_c + own


def num_rotated(problem: Problem, l2: CacheState, l2_bytes: int) -> int:
    """Sets of inputs to be timed in turn, so that L2 holds nothing of the next one; else 1.

    Raises UsageError for inputs so small that no number of sets would do.
    """
    if l2 is not CacheState.ROTATE:
        return 1
    read = input_bytes(problem)
    if not problem.groups.is_none:
        # Matrices of groups without rows do not pass through L2.
        read = min(read, problem.moved_bytes)
    num_sets = 1 + math.ceil(ROTATED_L2_SIZES * l2_bytes / read)
    if num_sets > MAX_ROTATED:
        raise UsageError(
            f"{problem.label} is too small for a rotating L2: {num_sets} copies of its matrices "
            f"would be needed, {MAX_ROTATED} are the most; use --l2 cold"
        )
    return num_sets


def bytes_needed(problem: Problem, more_sets: int = 0) -> int:
    """Device memory that inputs, C, references and float64 tiles take together.

    ``more_sets`` of inputs are counted besides the two that verification needs.
    """
    m, n, k = problem.m, problem.n, problem.k
    operands = input_bytes(problem)
    tile_m, tile_n, tile_k = min(m, TILE), min(n, TILE), min(k, TILE)
    wide = tile_n * problem.epilogue.num_columns
    tiles = tile_m * tile_k + tile_k * wide + 2 * tile_m * wide
    result = problem.dtype.c.size_bytes * num_elements(problem.stacked_rows[2], n, problem.ldc)
    references = 4 + 8 + 4  # exact float32, float64, bound
    if problem.needs_pass:
        # Two float64, with a bound each; a third for products that are rounded before.
        references = 3 * (8 + 4)
        if problem.epilogue.num_columns > 1 or problem.dtype.of_sums is not problem.dtype:
            # The plain product, which the baseline makes first.
            references += problem.epilogue.num_columns * problem.dtype.of_sums.c.size_bytes
        if problem.epilogue.output is not None:
            # As much again, and the second output itself.
            references += 3 * (8 + 4) + problem.epilogue.output.element(problem.dtype).size_bytes
    more = operands + (result if problem.reads_c else 0) + 4 * ALIGNMENT_BYTES
    fixed = (
        2 * operands + result + 8 * tiles + references * m * n * problem.num_products + SPARE_BYTES
    )
    if problem.converts or problem.epilogue.scales:
        # Operands of 16 bits, which the baseline makes first, with scales where cuBLAS has no call.
        fixed += 2 * operands
    return fixed + more_sets * more


def require_memory(problem: Problem, free_bytes: int, more_sets: int = 0) -> None:
    """Raises UsageError, with both sizes, when the problem does not fit into free memory."""
    needed = bytes_needed(problem, more_sets)
    if needed > free_bytes:
        raise UsageError(
            f"{problem.label} needs {needed / 2**30:.1f} GiB on the GPU ("
            f"{problem.operand_bytes / 2**30:.1f} GiB of matrices, the rest to verify results), "
            f"{free_bytes / 2**30:.1f} GiB are free: choose a smaller size"
        )
