"""Problems that break kernels: edges, padding, short K, scalars, each for a reason.

Their order is that of coverage: `edge_shapes` begins with the few that reach most of a kernel.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN as PLAIN_GEMM
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups, Spread
from autogemm.model.problem import Layout, Problem
from autogemm.space import Tile
from autogemm.verify.schedule import Schedule, rows_of_tiles

# A leading dimension with which row 2 lies past 2^31 elements and row 4 past 2^32: an index of 32
# bits, signed or not, points to none of the rows. The rest keeps what wraps round off them too.
# Rows that are not aligned are a word or two longer.
FAR_ROWS = 2**30 + 2**13
# A process has 2^47 bytes of addresses; a problem that would take more than half of them, such as
# one that fills the pipelines of many ranges of K, has near rows.
MOST_FAR_BYTES = 2**46

# Kernels that pack rows no vector divides do so in squares of this side: K reaches a second one.
PACKED_SIDE = 64


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of the rows of A and C, or such as divide K; ``masked`` ones have a capacity."""

    masked: bool = False
    divides_k: bool = False

    def layout(self, layout: Layout) -> Layout:
        """The layout that such groups have: their rows are rows of A as it is stored."""
        if self.divides_k:
            return Layout.TN
        return Layout.NT if layout.trans_b else Layout.NN


class Batches(Enum):
    """The edge cases with several products, or groups of rows: none, some shapes beside the
    others, some of each (with groups that divide K or without), all several products, or all groups
    of one kind.
    """

    NONE = auto()
    SOME = auto()
    SOME_AND_GROUPS = auto()
    SOME_AND_DIVIDED = auto()
    ALL = auto()
    ALL_GROUPS = Grouping()
    ALL_MASKED = Grouping(masked=True)
    ALL_DIVIDED = Grouping(divides_k=True)
    ALL_DIVIDED_MASKED = Grouping(masked=True, divides_k=True)

    @staticmethod
    def of(problem: Problem) -> "Batches":
        """The choice with which all cases are like that problem."""
        if problem.groups.is_none:
            return Batches.NONE if problem.batch.is_one else Batches.ALL
        return Batches(Grouping(problem.groups.masked, problem.divides_k))


# Products of a case, and rows from the end of one's A, B and C to the beginning of the next one's;
# None: all share the matrix. Gaps show what is read or written past a product's rows, and differ,
# so that one matrix's distance is not right for another.
STACKINGS: tuple[tuple[int, int | None, int | None, int], ...] = (
    *((3, 1, 2, 3), (2, None, 0, 5), (3, 7, None, 0), (2, 0, 0, 0)),
)


def stacked(problem: Problem, number: int) -> Problem:
    """The problem as a batch, of which products and gaps are those of that stacking."""
    count, *gaps = STACKINGS[number % len(STACKINGS)]
    rows = (
        0 if gap is None else own + gap for own, gap in zip(problem.own_rows, gaps, strict=True)
    )
    return replace(problem, batch=Batch(count, *rows))


# Rows of the groups of a case, as multiples of the block tile's rows plus a rest, as far as there
# are rows; None: all that are left. Groups are empty at the beginning, between others and at the
# end, their rows end within a tile and with it, and some rows are in no group. Layout nn takes the
# first and the third, nt the second and the fourth. Two have more groups than a warp has lanes: in
# one of them a single group has all rows, in the other both groups of two lanes have some, behind
# rows that are no whole tile and behind a whole tile.
GROUPINGS: tuple[tuple[tuple[int, int] | None, ...], ...] = (
    ((0, 0), (0, 3), (0, 0), (1, 1), (0, 1), None),
    ((1, 0), (0, 0), (1, -1), (0, 0)),
    (*((0, 0),) * 33, None, (0, 0)),
    ((1, -1), (0, 1), *((0, 0),) * 30, (1, 0), None),
)


# Rows of each masked group behind the largest one's last, in turns.
MASKED_GAPS = (3, 0)


def grouped(problem: Problem, number: int, tile: Tile, masked: bool = False) -> Problem:
    """The problem with its rows, or K in layout tn, in groups, whose sizes are those of that
    grouping. Masked ones have room for the largest, and as much as it may lie behind it.
    """
    divides_k = problem.layout.trans_a
    left, rows = problem.k if divides_k else problem.m, []
    for one in GROUPINGS[number % len(GROUPINGS)]:
        wanted = left if one is None else max(0, one[0] * tile[2 if divides_k else 0] + one[1])
        rows.append(min(wanted, left))
        left -= rows[-1]
    if not masked:
        return replace(problem, groups=_listed(rows))
    total = len(rows) * (max(*rows, 1) + MASKED_GAPS[number % len(MASKED_GAPS)])
    return problem.regrouped(total, replace(_listed(rows), masked=True))


def with_groups(problem: Problem, count: int) -> Problem:
    """The problem of `grouped` with so many groups: empty ones behind its own, or its last ones as
    one.
    """
    rows = [*problem.groups.rows(problem.m), *[0] * count][:count]
    rows[-1] = problem.used_rows - sum(rows[:-1])
    return replace(problem, groups=_listed(rows))


def _listed(rows: list[int]) -> Groups:
    return Groups(len(rows), Spread.LISTED, listed=tuple(rows))


def has_far_rows(problem: Problem) -> bool:
    """Whether rows are gigabytes apart, for which only the emulator has addresses."""
    return max(problem.lda, problem.ldb, problem.ldc) >= FAR_ROWS


def with_near_rows(problem: Problem) -> Problem:
    """The problem with rows as near as their alignment to vectors of 16 bytes and some padding
    allow, where they are gigabytes apart.
    """
    if not has_far_rows(problem):
        return problem
    columns = (problem.a_shape[1], problem.b_shape[1], problem.n)
    vector = 16 // problem.dtype.ab.size_bytes
    far = (problem.lda, problem.ldb, problem.ldc)
    lda, ldb, ldc = (
        rows if rows < FAR_ROWS else (least // vector + 1) * vector + rows - FAR_ROWS
        for least, rows in zip(columns, far, strict=True)
    )
    return replace(problem, lda=lda, ldb=ldb, ldc=ldc)


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """Sizes as multiples of the block tile plus a rest, and how rows are padded.

    ``row_multiple`` 0 keeps rows packed; otherwise leading dimensions are the next multiple of so
    many words of 4 bytes above the columns, so that there is padding (1: an odd number of
    elements); with ``far`` they are as many words above FAR_ROWS. Padded rows of B are a vector of
    16 bytes longer, those of C two. ``why`` says what the shape is hard on. With
    ``alpha_is_zero`` alpha is 0, which would hide what else is wrong elsewhere. ``unset``: the
    layouts in which it is also run with variables that begin as garbage. ``fills``: K is at least
    so long that a pipeline is filled and goes on, which a source that no other shape needs would
    never be seen to do otherwise. ``more_n``: rows along N are so many elements longer than N.
    ``batched``: there are several products; ``groups``: rows belong to groups of that kind.
    """

    why: str
    m: tuple[int, int]
    n: tuple[int, int]
    k: tuple[int, int]
    row_multiple: int = 0
    far: bool = False
    alpha_is_zero: bool = False
    unset: tuple[Layout, ...] = ()
    fills: bool = False
    more_n: int = 0
    batched: bool = False
    groups: Grouping | None = None

    def filling(self, k_tiles: int, bk: int) -> "EdgeShape":
        """The shape for a pipeline that so many k_tiles of ``bk`` fill."""
        times, rest = self.k
        least = k_tiles + (rest < 0)
        if self.row_multiple == 1:
            least = max(least, PACKED_SIDE // bk)
        return replace(self, k=(max(times, least), rest)) if self.fills else self

    def problem(
        self, tile: Tile, layout: Layout, dtype: DType, scalars: tuple[float, float] = (1.0, 0.0)
    ) -> Problem:
        """The problem for a block tile (BM, BN, BK), with alpha and beta."""
        sides = zip((self.m, self.n, self.k), tile, strict=True)
        m, n, k = (max(1, times * side + rest) for (times, rest), side in sides)
        packed = Problem(m, n, k, layout, dtype)
        roomy = Problem(m, n + self.more_n, k, layout, dtype)
        columns = (roomy.a_shape[1], roomy.b_shape[1], roomy.n)
        vector = 16 // dtype.ab.size_bytes
        padded = [self._padded(least, vector // 4) for least in columns]
        # Rows of A and B have K elements in NT, those of B and C have N in NN: each padding has a
        # length of its own, so that no matrix's rows can be taken for another's.
        more = vector if self.far or self.row_multiple else 0
        lda, ldb, ldc = (rows + place * more for place, rows in enumerate(padded))
        alpha, beta = scalars
        alpha = 0.0 if self.alpha_is_zero else alpha
        alpha, beta = dtype.legal_factors(alpha, beta)
        return replace(packed, lda=lda, ldb=ldb, ldc=ldc, alpha=alpha, beta=beta)

    def _padded(self, columns: int, per_word: int) -> int:
        more = self.row_multiple * (per_word if self.row_multiple > 1 else 1)
        if self.far:
            return FAR_ROWS + more
        if more == 0:
            return columns
        if more == 1:
            return columns + 1 + columns % 2  # the next odd number above
        return (columns // more + 1) * more


# Two layouts in which A and B are each stored in both ways, and the other two.
ALIKE, MIXED = (Layout.NN, Layout.TT), (Layout.NT, Layout.TN)

# (times, rest): times * side of the block tile + rest elements.
EDGE_SHAPES: tuple[EdgeShape, ...] = (
    EdgeShape("one element", (0, 1), (0, 1), (0, 1)),
    EdgeShape("less than one tile, K < BK", (1, -1), (1, -2), (1, -1)),
    EdgeShape("exactly one tile", (1, 0), (1, 0), (1, 0)),
    EdgeShape("edges, N of whole vectors", (1, 1), (1, 8), (2, 1), 4),
    EdgeShape("N % 4 = 3 with aligned rows, odd K", (1, 1), (2, 3), (2, 1), 4, unset=ALIKE),
    EdgeShape(
        *("odd rows, unaligned", (2, 3), (1, 1), (3, 1), 1), far=True, fills=True, unset=MIXED
    ),
    EdgeShape("only M has an edge", (0, 3), (2, 0), (5, 0), far=True, fills=True),
    EdgeShape("only K has an edge", (1, 0), (1, 0), (6, -3), far=True, fills=True),
    EdgeShape("only N has an edge, padded rows", (2, 0), (1, 1), (3, 0), far=True, fills=True),
    EdgeShape("an odd number of tiles", (3, -5), (2, 8), (1, 0), 4, fills=True),
    # An odd number of words makes the next even one no multiple of four.
    EdgeShape("rows aligned for 8 bytes only", (1, 1), (1, 1), (4, 1), 2, far=True, fills=True),
    EdgeShape("odd rows, even ones along N", (1, -1), (1, -3), (2, -1), more_n=1, fills=True),
    EdgeShape("nothing but beta times C", (1, 1), (1, 3), (1, 0), 4, alpha_is_zero=True),
)

# For kernels that make several products at once, another text.
BATCH_SHAPES: tuple[EdgeShape, ...] = (
    EdgeShape(
        "a batch with edges", (1, 3), (1, 8), (2, 1), far=True, batched=True, unset=(Layout.NN,)
    ),
    EdgeShape("a batch of whole tiles", (2, 0), (1, 0), (3, 0), batched=True),
)

# For kernels whose rows belong to groups, again another text. The largest group has several rows of
# tiles, also of clusters, and yet no whole second group of rows.
GROUP_SHAPES: tuple[EdgeShape, ...] = (
    EdgeShape(
        "groups with edges", (7, 5), (1, 8), (2, 1), far=True, groups=Grouping(), unset=(Layout.NN,)
    ),
    EdgeShape("groups, whole tiles of N and K", (4, 0), (1, 0), (3, 0), groups=Grouping()),
    EdgeShape(
        "masked groups with edges", (4, 5), (1, 8), (2, 1), far=True, groups=Grouping(masked=True)
    ),
    EdgeShape("masked groups", (2, 0), (1, 0), (3, 0), groups=Grouping(masked=True)),
)
# For those of groups that divide K.
DIVIDED_SHAPES: tuple[EdgeShape, ...] = (
    EdgeShape(
        *("groups of K with edges", (1, 3), (1, 8), (3, 5)),
        far=True,
        groups=Grouping(divides_k=True),
        unset=(Layout.TN,),
    ),
    EdgeShape("groups of K, whole tiles", (1, 0), (2, 0), (4, 0), groups=Grouping(divides_k=True)),
    EdgeShape("masked groups of K", (1, 3), (1, 8), (2, 5), far=True, groups=Grouping(True, True)),
)

# Alpha and beta, each of 1 and other numbers beside 0, 1 and other numbers. The first detects
# kernels that forget alpha where beta is 0, the second those that forget beta or confuse both. All
# are multiples of 1/4, so that sums of integers stay exact.
SCALARS: tuple[tuple[float, float], ...] = (
    *((-2.0, 0.0), (0.5, -1.5), (1.0, 1.0), (0.5, 0.0)),
    *((-1.25, 0.5), (1.0, -0.5), (1.0, 0.0), (-2.0, 1.0)),
)

# The schedule of a config of which nothing is known.
PLAIN = Schedule()
# K of a real problem is cut down to so many k_tiles, where no pipeline needs more.
MOST_K_TILES = 7
# The edge shapes of a schedule have at most so many operations: seconds on a processor.
MOST_FLOPS = 1_500_000_000


def edge_shapes(schedule: Schedule, batches: Batches = Batches.NONE) -> tuple[EdgeShape, ...]:
    """Return the shapes for a schedule in the order of coverage.

    First what some schedules have alone: shared tiles, tiles of two heights, a second group of
    rows; then edges everywhere, and whole tiles, for a pipeline that goes round; then batches and
    groups. Then come edges and whole tiles with rows that are 2^30 elements apart
    (`has_far_rows`), for the emulator, which needs no memory for them. Last comes each edge by
    itself. What is a text of its own, as edges of one kind and batches are, has far rows at least
    once, or an index of 32 bits would not be seen in it.
    """
    bm, bn, bk = schedule.tile
    most = MOST_FLOPS / (2.0 * bm * bn * bk)
    chosen = [
        shape
        for shape in _reaching(schedule)
        if max(1, shape.m[0]) * max(1, shape.n[0]) * max(1, shape.k[0]) <= most
    ]
    # A schedule without more may ask for what all get: each size and padding once.
    fixed = [shape.filling(schedule.filled, bk) for shape in EDGE_SHAPES]
    once = {shape.problem(schedule.tile, Layout.NN, DType.F32): shape for shape in fixed}
    for shape in chosen:
        once.pop(shape.problem(schedule.tile, Layout.NN, DType.F32), None)
    k_tiles = schedule.stages + 1
    far = (
        EdgeShape("rows 2^30 elements apart, edges", (1, 1), (1, 8), (k_tiles, 1), far=True),
        EdgeShape("rows 2^30 elements apart, whole tiles", (1, 0), (1, 0), (k_tiles, 0), far=True),
    )
    with_groups = (Batches.SOME_AND_GROUPS, Batches.SOME_AND_DIVIDED)
    own = BATCH_SHAPES if batches in (Batches.SOME, *with_groups) else ()
    own += GROUP_SHAPES if batches in with_groups else ()
    own += DIVIDED_SHAPES if batches is Batches.SOME_AND_DIVIDED else ()
    return (*chosen, *own, *far, *once.values())


def _reaching(schedule: Schedule) -> list[EdgeShape]:
    """Return shapes that are sized from the schedule."""
    deep, group, stages = schedule.deep, schedule.group_rows, schedule.stages
    shapes = _shared(schedule.sharing_blocks) if schedule.sharing_blocks else []
    if schedule.short_by:
        # A column with one tile more has a single tall one. The number of tiles is odd, so that the
        # last wave of two blocks is not full: so many columns are cut anew as blocks are idle, of
        # one or of three.
        less = schedule.short_by
        count = rows_of_tiles(schedule.tile[0], less)
        rows = count, schedule.tile[0] - (count + 1) * less + less // 2
        shapes += [
            EdgeShape("tiles of two heights in a column", rows, (1, -8), (1, 0), 4),
            EdgeShape("tiles of two heights in several waves", rows, (3, -8), (1, 0), 4),
        ]
    if group > 1:
        why = "a second group of rows, edges"
        shapes.append(EdgeShape(why, (group + 1, 3), (1, 8), (2, 1), 4))
    shapes += [
        EdgeShape("edges, a pipeline that goes round twice", (1, 3), (1, 8), (deep, -3), 4),
        EdgeShape(
            *("whole tiles, a pipeline that goes round twice", (2, 0), (2, 0), (deep, 0)),
            unset=tuple(Layout),
        ),
    ]
    if schedule.cluster != (1, 1):
        # Three clusters have tiles, and the emulator has two: one tile is left for a last wave.
        high, wide = schedule.cluster
        why = "an odd number of clusters with tiles"
        shapes.append(EdgeShape(why, (3 * high, -5), (wide, -8), (schedule.filled, -3), 4))
    if group > 1:
        why = "a second group of rows, whole tiles"
        shapes.append(EdgeShape(why, (group + 2, 0), (2, 0), (1, 0)))
    if stages > 1:
        less = schedule.k_ranges * (stages - 1)
        often = max(deep, schedule.k_ranges * 5 * stages + 1)
        shapes += [
            EdgeShape("one k_tile less than stages", (0, 3), (1, 0), (less, 0)),
            EdgeShape("one k_tile more than stages", (0, 3), (1, 8), (schedule.filled, -1), 4),
            # A barrier that takes one arrival too few falls behind by one in each round; four
            # later the arrivals of a warpgroup are missing.
            EdgeShape("a short tile, five rounds of the pipeline", (0, 3), (0, 8), (often, -3), 4),
        ]
    return shapes


def _shared(blocks: int) -> list[EdgeShape]:
    """Return shapes of which blocks share tiles.

    First all tiles: each block has more than one k_tile, and some have the end of one tile and the
    beginning of the next. Then whole tiles before the shared ones.
    """
    # So many columns of two tiles that no tile ends where the range of a block does; of these three
    # k_tiles for two blocks.
    columns = next((count for count in (3, 5, 7, 11) if blocks % (2 * count)), 13)
    k_tiles = 3 * blocks // (4 * columns) + 1
    return [
        EdgeShape("tiles shared by blocks", (1, 3), (columns - 1, 1), (k_tiles, -3), 4),
        EdgeShape("whole tiles before shared ones", (2, -1), (blocks // 2 + 1, 3), (5, -1), 4),
        EdgeShape("tiles shared by blocks, no edge", (2, 0), (columns, 0), (k_tiles, 0)),
    ]


def edge_cases(
    schedule: Schedule = PLAIN,
    layouts: tuple[Layout, ...] = tuple(Layout),
    dtype: DType = DType.F32,
    epilogue: Epilogue = PLAIN_GEMM,
    batches: Batches = Batches.NONE,
) -> tuple[tuple[Problem, ...], ...]:
    """Each edge shape in each layout for a schedule, in turns: a shape once in each turn.

    The layouts of a shape begin with another one than those of the shape before, its alpha and
    beta as well, as far as the epilogue reads them, and the way in which products are stacked or
    rows grouped.
    """
    shapes = edge_shapes(schedule, batches)

    def problem(shape: EdgeShape, place: int, turn: int) -> Problem:
        found = problem_of(shape, place, turn)
        if has_far_rows(found) and 4 * sum(found.stacked_rows) * FAR_ROWS > MOST_FAR_BYTES:
            near = replace(shape, far=False, row_multiple=shape.row_multiple or 4)
            return problem_of(near, place, turn)
        return found

    def problem_of(shape: EdgeShape, place: int, turn: int) -> Problem:
        layout = layouts[(place + turn) % len(layouts)]
        groups = batches.value if isinstance(batches.value, Grouping) else shape.groups
        scalars = SCALARS[(place + 3 * turn) % len(SCALARS)]
        if groups is not None:
            found = shape.problem(schedule.tile, groups.layout(layout), dtype, scalars)
            of_groups = grouped(found, place + turn, schedule.tile, groups.masked)
            return of_groups.with_epilogue(epilogue)
        found = shape.problem(schedule.tile, layout, dtype, scalars).with_epilogue(epilogue)
        is_batch = shape.batched or batches is Batches.ALL
        return stacked(found, place + turn) if is_batch else found

    return tuple(
        tuple(problem(shape, place, turn) for place, shape in enumerate(shapes))
        for turn in range(len(layouts))
    )


def unset_cases(
    schedule: Schedule,
    dtype: DType,
    epilogue: Epilogue = PLAIN_GEMM,
    batches: Batches = Batches.NONE,
) -> frozenset[Problem]:
    """Return those of `edge_cases` that also run with variables that begin as garbage.

    They have many k_tiles, with edges and without; rows with edges are aligned or not.
    """
    shapes = edge_shapes(schedule, batches)
    return frozenset(
        problem
        for turn in edge_cases(schedule, dtype=dtype, epilogue=epilogue, batches=batches)
        for shape, problem in zip(shapes, turn, strict=True)
        if problem.layout in shape.unset
    )


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
    found = replace(packed, lda=lda, ldb=ldb, ldc=ldc, alpha=problem.alpha, beta=problem.beta)
    return few_products(found, problem, tile).with_epilogue(problem.epilogue)


# So many products of a real problem, which are more than a wave where few blocks are launched.
MOST_PRODUCTS = 3
# Rows between two products that are kept of a gap.
MOST_GAP = 3


def few_products(small: Problem, problem: Problem, tile: Tile, number: int = 0) -> Problem:
    """The small problem with a batch of few products, with gaps and shared matrices where the given
    problem has them; or with few groups, those of that grouping.
    """
    if not problem.groups.is_none:
        return grouped(small, number, tile, problem.groups.masked)
    pairs = zip(problem.batch_rows, problem.own_rows, small.own_rows, strict=True)
    rows = [small_own + min(rows - own, MOST_GAP) if rows else 0 for rows, own, small_own in pairs]
    return replace(small, batch=Batch(min(problem.batch.count, MOST_PRODUCTS), *rows))
