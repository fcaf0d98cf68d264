"""Bugs to plant in kernels of which groups divide K; see mutations_groups.py."""

from mutations import Base, Mutation
from mutations_groups import MMA, PERSISTENT

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import Tile
from autogemm.verify.edge_cases import DIVIDED_SHAPES, grouped

EDGES, WHOLE, MASKED = DIVIDED_SHAPES
TILE_MMA = (32, 32, 32)
TILE_WGMMA = (64, 64, 64)


def divided(number: int, beta: float = 0.0, masked: bool = False, tile: Tile = TILE_MMA) -> Problem:
    shape = MASKED if masked else WHOLE if number % 2 else EDGES
    problem = shape.problem(tile, Layout.TN, DType.BF16, (0.5, beta))
    return grouped(problem, number, tile, masked)


def by_warpgroups(number: int, beta: float = 0.0, masked: bool = False) -> Problem:
    return divided(number, beta, masked, TILE_WGMMA)


# A whole k tile, one that ends in its middle, one of a single row, and none, behind which there are
# rows of no group, which are NaN; C has edges.
WITHIN_TILES = Problem(
    *(72, 136, 256, Layout.TN, DType.BF16),
    alpha=0.5,
    beta=-1.5,
    ldc=144,
    groups=Groups.parse("64,40,1,0,100,0"),
)
HOPPER: dict[str, Value] = PERSISTENT | {"STORE_C": "tma", "LOAD_WARPS": 4}


DIVIDED_BASES: dict[str, Base] = {
    "groups of K by mma": Base(MMA, (divided(0, -1.5), divided(1), divided(2)), "gemm_mma"),
    "groups of K, two fragments": Base(
        MMA | {"REG_STAGES": 2, "BK": 64}, (divided(0), divided(3, 1.0)), "gemm_mma"
    ),
    "masked groups of K": Base(
        MMA, (divided(0, masked=True), divided(2, 0.5, masked=True)), "gemm_mma"
    ),
    "groups of K by wgmma": Base(
        HOPPER | {"BN": 128, "WN": 128, "C_BUFFERS": 2},
        (by_warpgroups(0, -1.5), by_warpgroups(1), WITHIN_TILES),
        "gemm_wgmma",
    ),
    "groups of K by two warpgroups": Base(
        HOPPER | {"BM": 128, "BN": 128, "WN": 128, "C_BUFFERS": 2, "EPILOGUE": "overlapped"},
        (by_warpgroups(0, 0.5), WITHIN_TILES),
        "gemm_wgmma",
    ),
    "groups of K, pingpong": Base(
        HOPPER | {"SCHEDULE": "pingpong", "STORE_C": "threads", "BOX_M": 16},
        (by_warpgroups(0), by_warpgroups(2, 0.5), WITHIN_TILES),
        "gemm_wgmma",
    ),
    "groups of K by clusters": Base(
        HOPPER | {"BM": 128, "WM": 128, "CLUSTER_M": 2, "CLUSTER_N": 2, "GROUP_M": 4},
        (by_warpgroups(0), WITHIN_TILES),
        "gemm_wgmma",
    ),
    "groups of K, C^T": Base(
        HOPPER | {"BM": 64, "BN": 128, "WN": 128, "SWAP_AB": 1, "BOX_M": 16, "C_BUFFERS": 2},
        (by_warpgroups(0, 0.5), WITHIN_TILES),
        "gemm_wgmma",
    ),
    "masked groups of K by wgmma": Base(
        HOPPER, (by_warpgroups(0, masked=True), by_warpgroups(2, 0.5, masked=True)), "gemm_wgmma"
    ),
}
PLAIN, DEEP, BY_COUNTS, WGMMA, PAIR, PINGPONG, CLUSTERS, TRANSPOSED, COUNTED = DIVIDED_BASES
RANGE = "const int num_k_tiles = range.num_k_tiles();\n"
SKIPPED = "if (range.end == range.first) {\n                continue;\n            }\n"

DIVIDED_MUTATIONS: tuple[Mutation, ...] = (
    # Rows of other groups.
    Mutation(PLAIN, "rows of the next group", "K = offsets[group + 1] - first_k", "K -= first_k"),
    Mutation(
        PLAIN, "a row too many", "offsets[group + 1] - first_k", "offsets[group + 1] - first_k + 1"
    ),
    Mutation(
        PLAIN, "a row too few", "offsets[group + 1] - first_k", "offsets[group + 1] - first_k - 1"
    ),
    Mutation(PLAIN, "A of the first group", "A += (long long)first_k * lda", "A += 0"),
    Mutation(PLAIN, "B of the first group", "B += (long long)first_k * ldb", "B += 0"),
    Mutation(PLAIN, "B as far apart as A", "first_k * ldb", "first_k * lda"),
    Mutation(BY_COUNTS, "rows past the count", "K = counts[group]", "K /= groups"),
    Mutation(
        BY_COUNTS,
        "the first row of another",
        "group * (K / groups)",
        "(groups - 1 - group) * (K / groups)",
    ),
    Mutation(
        BY_COUNTS, "a count of another group", "K = counts[group]", "K = counts[groups - 1 - group]"
    ),
    # C of another group, and of those without rows.
    Mutation(PLAIN, "C of the first group", "C += (long long)group * M * ldc", "C += 0"),
    Mutation(PLAIN, "C as far apart as N", "group * M * ldc", "group * N * ldc"),
    Mutation(
        PLAIN,
        "an empty group left out",
        "if (K > 0) {",
        "if (K == 0) {\n        return;\n    } else {",
    ),
    Mutation(DEEP, "an empty group is loaded", "if (K > 0) {", "{"),
    # Rows of a k tile that are not the group's: A's may be NaN where B's are zeros.
    *(
        Mutation(
            base, f"rows of others of {name}", f"{{&map_{name}, range.end}}", f"{{&map_{name}, K}}"
        )
        for base in (WGMMA, PAIR, PINGPONG, CLUSTERS, TRANSPOSED, COUNTED)
        for name in "ab"
    ),
    *(
        Mutation(WGMMA, what, "{&map_a, range.end}", f"{{&map_a, range.end {what_is}}}")
        for what, what_is in (("a row of others", "+ 1"), ("without the last row", "- 1"))
    ),
    Mutation(CLUSTERS, "rows up to the k tile", "{&map_b, range.end}", "{&map_b, k0}"),
    # Ranges of other groups.
    Mutation(WGMMA, "rows from the first group on", "range.first + k_tile * BK", "k_tile * BK"),
    Mutation(WGMMA, "the first offset", "{offsets[group],", "{offsets[0],"),
    Mutation(
        *(WGMMA, "as many rows as up to its end"),
        *("offsets[group + 1]}", "offsets[group] + offsets[group + 1]}"),
    ),
    Mutation(
        WGMMA,
        "rows of the group before",
        "ranges.of(place.product)",
        "ranges.of(max(0, place.product - 1))",
    ),
    Mutation(WGMMA, "a row too many", "offsets[group + 1]}", "offsets[group + 1] + 1}"),
    Mutation(WGMMA, "a row too few", "offsets[group + 1]}", "offsets[group + 1] - 1}"),
    Mutation(
        *(WGMMA, "a group's last k tile left out"),
        *("(end - first + BK - 1) / BK", "(end - first) / BK"),
    ),
    Mutation(COUNTED, "rows past the count", "+ counts[group]}", "+ capacity}"),
    Mutation(COUNTED, "a count of another group", "+ counts[group]}", "+ counts[0]}"),
    Mutation(COUNTED, "groups without gaps", "{group * capacity,", "{group * counts[group],"),
    # C of another group, and of those without rows.
    Mutation(WGMMA, "C of the first group", "{&map_c, place.product}", "{&map_c, 0}"),
    Mutation(PAIR, "C of the tile before", "finished.map_c.matrix = place.product;\n", ""),
    Mutation(WGMMA, "the old C of the first group", "place.product * M * ldc", "0 * M * ldc"),
    Mutation(PINGPONG, "C as far apart as N", "place.product * M * ldc", "place.product * N * ldc"),
    Mutation(
        PINGPONG, "a tile's last rows in the next group's C", "{M, N, own_c", "{2 * M, N, own_c"
    ),
    Mutation(
        WGMMA, "the last group left out", "tiles.products = groups", "tiles.products = groups - 1"
    ),
    Mutation(WGMMA, "an empty group not written", RANGE, f"{RANGE}            {SKIPPED}"),
    Mutation(WGMMA, "an empty group without a k tile", "max(1, (end", "max(0, (end"),
    # Stages of the other warpgroup's tile.
    Mutation(
        PINGPONG,
        "skips as many k tiles as its own",
        "pipeline.skip(ranges.num_k_tiles(tiles, tile + stride))",
        "pipeline.skip(num_k_tiles)",
    ),
    Mutation(
        PINGPONG,
        "skips those of the next tile but one",
        "(tiles, tile + stride)",
        "(tiles, tile + 2 * stride)",
    ),
    Mutation(
        PINGPONG,
        "begins with the first stage",
        "pipeline.skip(ranges.num_k_tiles(tiles, first_tile));",
        "",
    ),
    Mutation(
        PINGPONG,
        "offsets behind the last",
        "index < tiles.count() ? of(tiles.place(index).product).num_k_tiles() : 0",
        "of(tiles.place(index).product).num_k_tiles()",
    ),
)
