"""Bugs to plant in kernels of masked groups, and of epilogues of which each group has inputs of its
own; see mutations_groups.py.
"""

from mutations import Base, Mutation
from mutations_direct import TILE as SKINNY
from mutations_groups import MMA, PERSISTENT

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.verify.edge_cases import GROUP_SHAPES, grouped

_, _, EDGES, WHOLE = GROUP_SHAPES
BIAS = Epilogue("relu(acc * scale[g] + bias[g, n]) + c[m, n]")
SWIGLU = Epilogue("silu(acc[n] + bias[g, n]) * (acc[n + N] + gate[g, n])")


def masked(layout: Layout, side: int, number: int, epilogue: str = "") -> Problem:
    """Edge cases as `autogemm verify` makes them, with room behind the groups or without."""
    tile, shape = (side, side, min(side, 64)), WHOLE if number % 2 else EDGES
    dtype = DType.F32 if side == 16 else DType.BF16
    found = grouped(shape.problem(tile, layout, dtype), number, tile, masked=True)
    return found.with_epilogue(Epilogue(epilogue))


def gated(layout: Layout, side: int) -> Problem:
    tile = (side, side, min(side, 64))
    found = grouped(EDGES.problem(tile, layout, DType.BF16), 0, tile)
    return found.with_epilogue(SWIGLU)


def few_rows(groups: str, rows: int = 33, epilogue: Epilogue | None = None) -> Problem:
    found = Problem(rows, 67, 344, Layout.NT, DType.BF16, ldc=69, groups=Groups.parse(groups))
    return found if epilogue is None else found.with_epilogue(epilogue)


MASKED_BASES: dict[str, Base] = {
    "masked groups of one tile a block": Base(
        {"BM": 16, "BN": 16, "TN": 2}, (masked(Layout.NN, 16, 0, BIAS.text),), "naive"
    ),
    "masked groups by mma": Base(
        MMA, (masked(Layout.NN, 32, 0), masked(Layout.NN, 32, 2)), "gemm_mma"
    ),
    "SwiGLU of groups by mma": Base(
        MMA | {"WM": 32, "BM": 32, "BN": 32}, (gated(Layout.NN, 32),), "gemm_mma"
    ),
    "masked groups by threads": Base(
        PERSISTENT | {"STORE_C": "threads"},
        (masked(Layout.NT, 64, 0, BIAS.text), masked(Layout.NT, 64, 2, BIAS.text)),
        "gemm_wgmma",
    ),
    "masked groups by TMA": Base(
        PERSISTENT | {"STORE_C": "tma", "BN": 128, "WN": 128, "C_BUFFERS": 2},
        (masked(Layout.NT, 64, 0), masked(Layout.NT, 64, 1), masked(Layout.NN, 64, 3)),
        "gemm_wgmma",
    ),
    "masked groups overlapped": Base(
        PERSISTENT | {"STORE_C": "tma", "EPILOGUE": "overlapped"},
        (masked(Layout.NT, 64, 0, BIAS.text), masked(Layout.NT, 64, 3, BIAS.text)),
        "gemm_wgmma",
    ),
    # More groups than a warp has lanes, and several rows of tiles.
    "groups of few rows": Base(
        SKINNY | {"PREFETCH_A": 1},
        (few_rows(f"0,0,9,{'0,' * 30}1,0,17,{'0,' * 30}3"),),
        "gemm_skinny",
    ),
    "masked groups of few rows": Base(
        SKINNY | {"SPLIT_K": 3, "PREFETCH_A": 0},
        (few_rows("9,0,3,10,0 masked", rows=50, epilogue=BIAS),),
        "gemm_skinny",
    ),
    "SwiGLU of groups": Base(
        PERSISTENT | {"STORE_C": "tma"}, (gated(Layout.NT, 64),), "gemm_wgmma"
    ),
}
ONE, BY_MMA, GATED_MMA, THREADS, TMA, OVERLAPPED, FEW, FEW_MASKED, GATED = MASKED_BASES

MASKED_MUTATIONS: tuple[Mutation, ...] = (
    # Rows behind a group's count.
    Mutation(
        ONE, "rows past the count", "M = group_m0 + counts[group]", "M = group_m0 + M / groups"
    ),
    Mutation(
        ONE, "a row past the count", "group_m0 + counts[group]", "group_m0 + counts[group] + 1"
    ),
    Mutation(BY_MMA, "rows past the count", "tile.rows = M - m0", "tile.rows = BM"),
    Mutation(THREADS, "rows past the count", "first_m + counts[group]", "first_m + capacity"),
    Mutation(TMA, "rows past the count", "first_m + counts[group]", "first_m + capacity"),
    Mutation(TMA, "a box over rows past the count", "{&map_c, place.end_m}", "{&map_c, M}"),
    Mutation(
        TMA, "the last row left out", "first_m + counts[group]", "first_m + counts[group] - 1"
    ),
    # Where a group begins.
    Mutation(ONE, "groups without room", "group * (M / groups)", "group * counts[0]"),
    Mutation(BY_MMA, "the next group", "group * (M / groups)", "(group + 1) * (M / groups)"),
    Mutation(TMA, "the first group", "first_m = group * capacity", "first_m = 0"),
    Mutation(
        OVERLAPPED,
        "groups begin with others' ends",
        "first_m = group * capacity",
        "first_m = end_m",
    ),
    Mutation(TMA, "a count of another group", "counts[group]", "counts[group - (group > 0)]"),
    Mutation(TMA, "tiles of another group", "counts[one]", "counts[one - (one > 0)]"),
    # Groups without rows.
    Mutation(ONE, "an empty group", "while (index >=", "if (index >="),
    Mutation(BY_MMA, "the last group left out", "group == groups", "group == groups - 1"),
    # Inputs of another group.
    Mutation(ONE, "bias of the first group", "bias += (long long)group * N", "bias += 0"),
    Mutation(ONE, "scale of the next group", "scale += group", "scale += (group + 1) % 4"),
    Mutation(THREADS, "bias of the first group", "with.of_group(place.group, N)", "with"),
    Mutation(
        THREADS,
        "bias of another group",
        "of_group(place.group, N)",
        "of_group(groups - 1 - place.group, N)",
    ),
    Mutation(OVERLAPPED, "bias of the first group", "with.of_group(place.group, N)", "with"),
    Mutation(OVERLAPPED, "the end of the tile before", "finished.map_c.end = place.end_m;", ""),
    Mutation(OVERLAPPED, "no end of rows", "map_c.end = place.end_m;", "map_c.end = M;"),
    Mutation(GATED, "gate of the first group", "gate += (long long)group * N", "gate += 0"),
    Mutation(
        GATED,
        "bias as far apart as B",
        "bias += (long long)group * N",
        "bias += (long long)group * 2 * N",
    ),
    Mutation(GATED_MMA, "bias of the first group", "bias += (long long)group * N", "bias += 0"),
    Mutation(GATED_MMA, "B as of one column", "group * K * ldb", "group * K * ldb / 2"),
    # Groups of which each lane looks at one.
    Mutation(FEW, "a group of each lane alone", "group < end_group", "group < end_group - 1"),
    Mutation(FEW, "a group too early", "through - tiles <= index", "through - tiles < index"),
    Mutation(FEW, "tiles of the group itself left out", "through - tiles, lane", "through, lane"),
    Mutation(FEW, "tiles of the lanes before", "index -= __shfl_sync", "__shfl_sync"),
    Mutation(FEW, "tiles of the groups before", "index -= (M - m0 + BM - 1) / BM;\n", ""),
    Mutation(FEW, "a sum of fewer lanes", "step < 32; step *= 2", "step < 16; step *= 2"),
    Mutation(FEW, "a lane adds its own", "own >= step ? others : 0", "others"),
    Mutation(FEW, "rows past a group's", "M = offsets[group + 1];\n    while", "while"),
    Mutation(FEW, "the first row of tiles", "m0 += index * BM;", ""),
    Mutation(FEW, "B of the lane's number", "(long long)group * N", "(long long)lane_of_group * N"),
    Mutation(FEW, "blocks without a tile", "group >= groups", "group > 2 * groups"),
    Mutation(FEW_MASKED, "rows past the count", "M = group * capacity + counts[group]", "M = M"),
    Mutation(FEW_MASKED, "groups without room", "m0 = group * capacity", "m0 = group * counts[0]"),
    Mutation(
        FEW_MASKED,
        "a lane's rows of another group",
        "(counts[group] + BM - 1) / BM;\n    }",
        "(counts[0] + BM - 1) / BM;\n    }",
        once=True,
    ),
    Mutation(FEW_MASKED, "bias of the first group", ".of_group(group, N)", ".of_group(0, N)"),
)
