"""Problems that break kernels: edges, padding, short K, scalars, each for a reason."""

from dataclasses import dataclass, replace

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import DEFAULT_TILE, Tile

# A leading dimension with which row 2 lies past 2^31 elements and row 4 past 2^32: an index of 32
# bits, signed or not, points to none of the rows. The rest keeps what wraps round off them too.
FAR = -1
FAR_ROWS = 2**30 + 2**13
FAR_WITHOUT_C = (Layout.NT, Layout.TN)


def has_far_rows(problem: Problem) -> bool:
    """Whether rows are gigabytes apart, for which only the emulator has addresses."""
    return max(problem.lda, problem.ldb, problem.ldc) >= FAR_ROWS


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """Sizes as multiples of the block tile plus a rest, and how rows are padded.

    ``row_multiple`` 0 keeps rows packed; otherwise leading dimensions are the next multiple of so
    many words of 4 bytes above the columns, so that there is padding (1: an odd number of
    elements; FAR: FAR_ROWS). ``why`` says what the shape is hard on. ``unset``: also run with
    variables that begin as garbage.
    """

    why: str
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    row_multiple: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    unset: bool = False

    def problem(self, tile: Tile, layout: Layout, dtype: DType) -> Problem:
        """The problem for a block tile (BM, BN, BK)."""
        sides = zip((self.m, self.n, self.k), tile, strict=True)
        m, n, k = (max(1, times * side + rest) for (times, rest), side in sides)
        packed = Problem(m, n, k, layout, dtype)
        columns = (packed.a_shape[1], packed.b_shape[1], n)
        per_word = 4 // dtype.ab.size_bytes
        lda, ldb, ldc = (self._padded(least, per_word) for least in columns)
        # Far rows are for one case in each layout, two of which read C.
        reads_c = self.row_multiple != FAR or layout not in FAR_WITHOUT_C
        beta = self.beta if reads_c else 0.0
        return replace(packed, lda=lda, ldb=ldb, ldc=ldc, alpha=self.alpha, beta=beta)

    def _padded(self, columns: int, per_word: int) -> int:
        if self.row_multiple == 0:
            return columns
        if self.row_multiple == FAR:
            return FAR_ROWS
        if self.row_multiple == 1:
            return columns + 1 + columns % 2  # the next odd number above
        multiple = self.row_multiple * per_word
        return (columns // multiple + 1) * multiple


# (times, rest): times * side of the block tile + rest elements.
EDGE_SHAPES: tuple[EdgeShape, ...] = (
    EdgeShape("one element", (0, 1), (0, 1), (0, 1)),
    EdgeShape("less than one tile, K < BK, beta", (1, -1), (1, -2), (1, -1), 0, 1.0, 1.0),
    EdgeShape("exactly one tile, alpha and beta", (1, 0), (1, 0), (1, 0), 0, 0.5, 1.0),
    EdgeShape("many k_tiles, no edge", (2, 0), (2, 0), (7, 0), unset=True),
    EdgeShape("N % 4 = 3 with aligned rows, odd K", (1, 1), (2, 3), (2, 1), 4, unset=True),
    EdgeShape("edges, N of whole vectors", (1, 1), (1, 8), (2, 1), 4, 0.5, -1.0),
    EdgeShape("odd rows, unaligned, alpha and beta", (2, 3), (1, 1), (3, 1), 1, -1.25, 0.5),
    EdgeShape("only N has an edge, padded rows", (2, 0), (1, 1), (3, 0), 4, 1.0, -0.5),
    EdgeShape("only M has an edge", (0, 3), (2, 0), (5, 0)),
    EdgeShape("only K has an edge", (1, 0), (1, 0), (6, -3), 4),
    EdgeShape("an odd number of tiles", (3, -5), (2, 8), (1, 0), 4, 0.5, 1.0),
    EdgeShape("rows aligned for 8 bytes only", (1, 2), (1, 2), (4, 2), 2),
)

# K of a real problem is cut down to so many k_tiles, where no pipeline needs more.
MOST_K_TILES = 7


def edge_cases(
    tile: Tile = DEFAULT_TILE,
    layouts: tuple[Layout, ...] = tuple(Layout),
    dtype: DType = DType.F32,
    stages: int = 1,
) -> tuple[Problem, ...]:
    """Each edge shape in each layout for a block tile (BM, BN, BK), fewest operations first.

    With several ``stages`` also one tile so deep that their pipeline goes round twice. Rows that
    are 2^30 elements apart (`has_far_rows`) are for the emulator, which needs no memory for them.
    """
    far = EdgeShape("rows 2^30 elements apart", (1, 1), (1, 8), (stages + 1, 1), FAR, 0.5, -1.0)
    shapes = (*EDGE_SHAPES, far)
    if stages > 1:
        why = "a pipeline of k_tiles goes round twice"
        shapes += (EdgeShape(why, (0, 3), (0, 8), (rounds_of(stages), -3), 4),)
    problems = [shape.problem(tile, layout, dtype) for shape in shapes for layout in layouts]
    return tuple(sorted(problems, key=lambda problem: problem.flops))


def unset_cases(tile: Tile, dtype: DType) -> frozenset[Problem]:
    """Return those of `edge_cases` that also run with variables that begin as garbage.

    They have many k_tiles, with edges and without, and a beta of 0, which takes no NaN away.
    """
    shapes = [shape for shape in EDGE_SHAPES if shape.unset]
    return frozenset(shape.problem(tile, layout, dtype) for shape in shapes for layout in Layout)


def rounds_of(stages: int) -> int:
    """Return the k_tiles by which a pipeline of ``stages`` goes round twice.

    Each slot is then filled again with the parity that it began with.
    """
    return 2 * stages + 1


def reduced(problem: Problem, tile: Tile, k_tiles: int = MOST_K_TILES) -> Problem:
    """A problem of a few block tiles that is ragged and aligned where the given one is.

    It has ``k_tiles`` at most, or MOST_K_TILES where that is more. Extents keep their remainder by
    the tile; leading dimensions keep their alignment to vectors. A kernel specialised for the one
    is right for the other.
    """
    m, n, k = (
        extent if extent <= most * side else (most - 1) * side + extent % side
        for extent, side, most in zip(
            (problem.m, problem.n, problem.k), tile, (3, 3, max(k_tiles, MOST_K_TILES)), strict=True
        )
    )
    packed = Problem(m, n, k, problem.layout, problem.dtype)
    columns = (packed.a_shape[1], packed.b_shape[1], n)
    strides = (problem.lda, problem.ldb, problem.ldc)
    vector = 16 // problem.dtype.ab.size_bytes
    lda, ldb, ldc = (
        least + (stride - least) % vector for least, stride in zip(columns, strides, strict=True)
    )
    return replace(packed, lda=lda, ldb=ldb, ldc=ldc, alpha=problem.alpha, beta=problem.beta)
