"""Bugs to plant in kernels of which rows belong to groups; see mutations.py.

Groups are those of edge cases as `autogemm verify` makes them: what is caught here is caught there.
"""

from dataclasses import replace

from mutations import Base, Mutation
from packed_cases import TILE

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.verify.edge_cases import GROUP_SHAPES, grouped

EDGES, WHOLE, _, _ = GROUP_SHAPES
PLAIN_EDGES = grouped(EDGES.problem((16, 16, 8), Layout.NN, DType.F32), 0, (16, 16, 8))
SHORT_EDGES = grouped(
    EDGES.problem((64, 64, 64), Layout.NT, DType.BF16, (0.5, -1.5)), 0, (64, 64, 64)
)
ONE_TAKES_ALL = grouped(EDGES.problem((64, 64, 64), Layout.NN, DType.BF16), 2, (64, 64, 64))
UNUSED_ROWS = grouped(WHOLE.problem((64, 64, 64), Layout.NT, DType.BF16), 1, (64, 64, 64))
# Boxes with a group's last rows stand between others; two are in flight at a time.
MANY_BOXES = Problem(137, 256, 64, Layout.NT, DType.BF16, groups=Groups.parse("65,72"))

PERSISTENT: dict[str, Value] = TILE | {"STAGES": 3, "PACK": "none", "BLOCKS": 132}
MMA: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 32, "WM": 16, "WN": 16, "STAGES": 2, "REG_STAGES": 1},
    **{"SWIZZLE": 1, "MMA_K": 16, "GROUP_M": 4, "MIN_BLOCKS": 1},
}
MMA_EDGES = grouped(EDGES.problem((32, 32, 32), Layout.NN, DType.BF16), 0, (32, 32, 32))

GROUP_BASES: dict[str, Base] = {
    "groups of one tile a block": Base({"BM": 16, "BN": 16, "TN": 2}, (PLAIN_EDGES,), "naive"),
    "groups by mma": Base(MMA, (MMA_EDGES,), "gemm_mma"),
    "groups by threads": Base(
        PERSISTENT | {"STORE_C": "threads"}, (SHORT_EDGES, ONE_TAKES_ALL), "gemm_wgmma"
    ),
    "groups by TMA": Base(
        PERSISTENT | {"STORE_C": "tma", "BN": 128, "WN": 128, "C_BUFFERS": 2},
        (SHORT_EDGES, UNUSED_ROWS, MANY_BOXES),
        "gemm_wgmma",
    ),
    "groups by clusters": Base(
        PERSISTENT | {"STORE_C": "tma", "CLUSTER_M": 2, "GROUP_M": 4},
        (SHORT_EDGES, replace(ONE_TAKES_ALL, beta=0.5)),
        "gemm_wgmma",
    ),
}
ONE, BY_MMA, THREADS, TMA, CLUSTERS = GROUP_BASES
END = "place.end_m}"
GROUP_MUTATIONS: tuple[Mutation, ...] = (
    # The rows of a tile behind its group's last: they are the next group's, or no group's.
    Mutation(ONE, "rows past a group's", "m >= M ||", "m > M ||"),
    Mutation(BY_MMA, "rows past a group's", "tile.rows = M - m0", "tile.rows = BM"),
    Mutation(THREADS, "rows past a group's", "{place.end_m, N, C", "{M, N, C"),
    Mutation(TMA, "a group's tail over the next one's head", f"{{&map_c, {END}", "{&map_c, M}"),
    Mutation(TMA, "a row past a group's", f"{{&map_c, {END}", "{&map_c, place.end_m + 1}"),
    Mutation(
        CLUSTERS, "a group's last row not written", f"{{&map_c, {END}", "{&map_c, place.end_m - 1}"
    ),
    Mutation(
        CLUSTERS, "a group's last row not read", f"{{&map_a, {END}", "{&map_a, place.end_m - 1}"
    ),
    # Groups without rows.
    Mutation(ONE, "an empty group", "while (index >=", "if (index >="),
    Mutation(THREADS, "an empty group", "while (index - first_tile", "if (index - first_tile"),
    Mutation(
        TMA,
        "the first lane with as many tiles before it",
        "tiles_before <= index",
        "tiles_before < index",
    ),
    # B of another group.
    Mutation(ONE, "B of the first group", "B += (long long)group *", "B += 0 *"),
    Mutation(BY_MMA, "B as far apart as A", "group * K * ldb", "group * K * lda"),
    Mutation(TMA, "B of the first group", "{&map_b, place.group}", "{&map_b, 0}"),
    Mutation(TMA, "B of the next group", "{&map_b, place.group}", "{&map_b, place.group + 1}"),
    # Coordinates of another map than there is.
    Mutation(TMA, "A by matrices", "k_tile, const GroupMap& map", "k_tile, const MatrixMap& map"),
    Mutation(TMA, "B by groups", "k_tile, const MatrixMap& map", "k_tile, const GroupMap& map"),
    Mutation(TMA, "A by the group", f"{{&map_a, {END}", "{&map_a, place.group}"),
    # Offsets.
    Mutation(ONE, "an offset too early", "M = offsets[group + 1]", "M = offsets[group]"),
    Mutation(TMA, "an offset too early", "end_m = offsets[group + 1]", "end_m = offsets[group]"),
    Mutation(TMA, "rows from the group before", "end_m = offsets[first]", "end_m = offsets[group]"),
    Mutation(ONE, "an offset past the last", "group == groups", "group > groups"),
    Mutation(TMA, "the last group left out", "first >= groups", "first + 1 >= groups"),
    Mutation(THREADS, "groups of a lane left out", "one < end; ++one", "one < end; one += 2"),
    Mutation(
        THREADS,
        "a lane without its last group",
        "first + groups_of_lane(), groups",
        "first + 1, groups",
    ),
    Mutation(CLUSTERS, "rows of tiles before a lane", "(through - own) * columns", "through - own"),
    Mutation(
        TMA,
        "a lane's groups go on with the last tile",
        "rows = 0;\n            group = first",
        "group = first",
    ),
    Mutation(TMA, "one lane alone looks for a group", "continue;\n", "break;\n"),
    Mutation(BY_MMA, "the last group left out", "group == groups", "group == groups - 1"),
    Mutation(
        *(TMA, "rows from the group's own end"),
        *("first_m = end_m;", "first_m = offsets[group + 1];"),
        hangs=True,
    ),
    # Tiles of a group.
    Mutation(TMA, "tiles from the first group on", "index - first_tile;", "index;"),
    Mutation(TMA, "a group's last tile left out", "(rows + BM - 1) / BM", "rows / BM"),
    Mutation(
        BY_MMA, "rows of tiles of all rows", "(M - group_m0 + BM - 1) / BM;", "(M + BM - 1) / BM;"
    ),
    Mutation(CLUSTERS, "a row of tiles a cluster", "row * CLUSTER_M + row_in", "row + row_in"),
    Mutation(CLUSTERS, "tiles from the first group on", "index - first_tile;", "index;"),
)
