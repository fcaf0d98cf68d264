"""Bugs to plant where blocks of gemm_wgmma share tiles along K; see mutations.py."""

from mutations import Base, Mutation
from mutations_wgmma import TILE

from autogemm.dtypes import DType
from autogemm.problem import Layout, Problem

STREAMED_BASES: dict[str, Base] = {
    # Six tiles of four slabs, five blocks: one tile is shared by four, the fifth has no range.
    "wgmma streamed": Base(
        TILE | {"GROUP_M": 1, "BLOCKS": 78, "STREAM_K": "one_tile"},
        (Problem(67, 131, 200, Layout.TT, DType.BF16, lda=72, ldb=200, ldc=136, beta=-1.5),),
        "gemm_wgmma",
        num_blocks=5,
    ),
    # Seven tiles of pairs of blocks, four pairs: each has 1.75 tiles of three slabs.
    "wgmma streamed in clusters": Base(
        TILE | {"GROUP_M": 1, "BLOCKS": 78, "CLUSTER_M": 2, "STREAM_K": "two_tile"},
        (Problem(67, 448, 136, Layout.NT, DType.F16_F32),),
        "gemm_wgmma",
        num_blocks=8,
    ),
}

S, C = STREAMED_BASES

STREAMED_MUTATIONS: tuple[Mutation, ...] = (
    # Parts and flags.
    Mutation(
        S, "a flag not released", "store_release(parts.flag(block), 1)", "*parts.flag(block) = 1"
    ),
    Mutation(
        S,
        "a flag set before all lanes have stored",
        "__syncwarp();\n    if (threadIdx.x % 32 == 0) {\n        store_release",
        "if (threadIdx.x % 32 == 0) {\n        store_release",
    ),
    Mutation(S, "parts not waited for", "while (load_acquire(parts.flag(block)) == 0) {", "{"),
    Mutation(
        S,
        "lanes that do not wait for the first",
        "    __syncwarp();\n    const float4* const fours",
        "    const float4* const fours",
    ),
    Mutation(S, "parts that overlap", "block * (BM * BN / 4)", "block * (BM * BN / 8)"),
    # Who has which slabs.
    Mutation(
        S,
        "the first of several parts alone",
        "walk.reaches(other, piece.tile); ++other",
        "walk.reaches(other, piece.tile) && other == walk.range + 1; ++other",
    ),
    Mutation(
        C, "a range that ends early", "end = begin(range + 1);", "end = begin(range + 1) - 1;"
    ),
    Mutation(C, "pieces from the first slab on", "(piece.first_slab + slab)", "slab"),
    Mutation(C, "one place for both blocks", "block * (BM", "block / 2 * (BM"),
    Mutation(C, "a tile too many taken whole", "tile < whole_tiles", "tile <= whole_tiles"),
)
