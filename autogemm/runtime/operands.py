"""Shapes and strides of three arrays as one GEMM: layout, leading dimensions, batches.

Nothing here knows a library or a GPU.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

Shape = tuple[int, ...]
# Products that a launch may have in every family.
MOST_PRODUCTS = 65535


class Products(StrEnum):
    """The way in which float32 is multiplied; other types have one way."""

    EXACT = "exact"
    TF32 = "tf32"
    EMULATED = "emulated"

    def of(self, dtype: DType) -> DType:
        """The dtype of the problem for arrays of that dtype."""
        return DType.TF32 if self is Products.TF32 and dtype is DType.F32 else dtype


@dataclass(frozen=True, slots=True)
class Strided:
    """An array of two dimensions or more; strides in elements."""

    name: str
    shape: Shape
    strides: Shape

    @property
    def rows(self) -> int:
        """Rows of each matrix."""
        return self.shape[-2]

    @property
    def columns(self) -> int:
        """Columns of each matrix."""
        return self.shape[-1]

    @property
    def transposed(self) -> "Strided":
        """The same memory with the last two dimensions exchanged."""
        shape, strides = self.shape, self.strides
        return Strided(
            self.name,
            (*shape[:-2], shape[-1], shape[-2]),
            (*strides[:-2], strides[-1], strides[-2]),
        )


@dataclass(frozen=True, slots=True)
class Call:
    """One launch for all batches, or one for each: what a kernel computes, and where it begins.

    ``swapped``: C is stored column by column, so C^T = op(B)^T op(A)^T is computed, and the
    problem's A is the caller's b. ``offsets`` are elements from the start of the problem's A, B
    and C, a triple for each launch; one where the problem's own batch has all.
    """

    problem: Problem
    swapped: bool
    offsets: tuple[tuple[int, int, int], ...]


def product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of ``a @ b``. Raises UsageError where there is none."""
    for name, shape in (("a", a), ("b", b)):
        if len(shape) < 2:
            raise UsageError(f"{name} must have 2 dimensions or more, got the shape {list(shape)}")
    if a[-1] != b[-2]:
        raise UsageError(
            f"a has {a[-1]} columns and b {b[-2]} rows, they must be equal: shapes {list(a)} and "
            f"{list(b)}"
        )
    return (*_broadcast(a[:-2], b[:-2]), a[-2], b[-1])


def call_for(a: Strided, b: Strided, c: Strided, dtype: DType) -> Call:
    """The GEMM that computes ``c = a @ b``; c has the shape of the product and no extent is 0.

    Raises UsageError for strides that no layout covers.
    """
    if not _by_rows(c) and _by_rows(c.transposed):
        call = call_for(b.transposed, a.transposed, c.transposed, dtype)
        return Call(call.problem, True, call.offsets)
    if not _by_rows(c):
        raise UsageError(_not_covered(c))
    a, b, c = _folded(a, b, c)
    (trans_a, lda), (trans_b, ldb) = _stored(a), _stored(b)
    problem = Problem(
        c.rows,
        c.columns,
        a.columns,
        Layout(f"{'t' if trans_a else 'n'}{'t' if trans_b else 'n'}"),
        dtype,
        lda,
        ldb,
        _leading(c),
    )
    batches = c.shape[:-2]
    columns = (_offsets(one, batches) for one in (a, b, c))
    offsets = tuple(zip(*columns, strict=True))
    batch = _batch_of(problem, offsets)
    if batch is None:
        return Call(problem, False, offsets)
    return Call(replace(problem, batch=batch), False, offsets[:1])


def _batch_of(problem: Problem, offsets: tuple[tuple[int, int, int], ...]) -> Batch | None:
    """The batch that has these matrices; None where they do not lie whole rows apart, all alike."""
    count = len(offsets)
    if not 1 < count <= MOST_PRODUCTS:
        return None
    steps = offsets[1]
    if any(one != tuple(place * step for step in steps) for place, one in enumerate(offsets)):
        return None
    lds = (problem.lda, problem.ldb, problem.ldc)
    pairs = tuple(zip(steps, lds, problem.own_rows, strict=True))
    if any(step % ld or 0 != step < rows * ld for step, ld, rows in pairs) or steps[2] == 0:
        return None
    return Batch(count, *(step // ld for step, ld, _ in pairs))


def _broadcast(a: Shape, b: Shape) -> Shape:
    """Return the broadcast shape, as NumPy does. Raises UsageError."""
    length = max(len(a), len(b))
    pairs = zip((1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b, strict=True)
    shape = []
    for left, right in pairs:
        if left != right and 1 not in (left, right):
            raise UsageError(f"the batches {list(a)} of a and {list(b)} of b do not match")
        shape.append(right if left == 1 else left)
    return tuple(shape)


def _by_rows(one: Strided) -> bool:
    """Whether each row lies side by side, and rows do not overlap."""
    in_row = one.columns == 1 or one.strides[-1] == 1
    return in_row and (one.rows == 1 or one.strides[-2] >= one.columns)


def _leading(one: Strided) -> int:
    return one.columns if one.rows == 1 else one.strides[-2]


def _stored(one: Strided) -> tuple[bool, int]:
    """Whether the memory holds the transposed matrix row by row, and its leading dimension."""
    if _by_rows(one):
        return False, _leading(one)
    if _by_rows(one.transposed):
        return True, _leading(one.transposed)
    raise UsageError(_not_covered(one))


def _not_covered(one: Strided) -> str:
    return (
        f"{one.name} with the shape {list(one.shape)} and strides {list(one.strides)} lies neither "
        "row by row nor column by column: pass a contiguous copy"
    )


def _folded(a: Strided, b: Strided, c: Strided) -> tuple[Strided, Strided, Strided]:
    """Batches of a and c that share one b and follow each other in memory are more rows."""
    while len(c.shape) > 2 and len(a.shape) == len(c.shape) and prod(b.shape[:-2]) == 1:
        if not (_follow(a) and _follow(c)):
            break
        a, b, c = _one_taller(a), Strided(b.name, b.shape[-2:], b.strides[-2:]), _one_taller(c)
    return a, b, c


def _follow(one: Strided) -> bool:
    """Whether the next matrix of the last batch dimension begins where this one's rows end."""
    if not _by_rows(one) or (one.rows == 1 and one.strides[-3] < one.columns):
        return False
    return one.rows == 1 or one.strides[-3] == one.rows * one.strides[-2]


def _one_taller(one: Strided) -> Strided:
    row = one.strides[-3] if one.rows == 1 else one.strides[-2]
    return Strided(
        one.name,
        (*one.shape[:-3], one.shape[-3] * one.rows, one.columns),
        (*one.strides[:-3], row, one.strides[-1]),
    )


def _offsets(one: Strided, batches: Shape) -> tuple[int, ...]:
    """Elements from the start to each batch's matrix, the last batch dimension fastest."""
    missing = len(batches) - (len(one.shape) - 2)
    extents = (1,) * missing + one.shape[:-2]
    strides = (0,) * missing + one.strides[:-2]
    offsets = [0]
    for batch, extent, stride in zip(batches, extents, strides, strict=True):
        step = 0 if extent == 1 else stride
        offsets = [start + step * index for start in offsets for index in range(batch)]
    return tuple(offsets)
