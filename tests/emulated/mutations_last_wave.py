"""Bugs to plant where blocks of gemm_wgmma help in the last wave; see mutations.py."""

from mutations import Base, Mutation
from mutations_wgmma import TILE

from autogemm.dtypes import DType
from autogemm.problem import Layout, Problem

LAST_WAVE_BASES: dict[str, Base] = {
    # Six tiles of 19 slabs and four blocks: a wave, two tiles, and two blocks that help.
    "wgmma helped": Base(
        TILE | {"GROUP_M": 1, "BLOCKS": 78, "LAST_WAVE": "helped"},
        (Problem(67, 131, 1210, Layout.TT, DType.BF16, lda=72, ldb=1216, ldc=136, beta=-1.5),),
        "gemm_wgmma",
        num_blocks=4,
    ),
    # Seven tiles of pairs of blocks, and four pairs: three tiles, one pair that helps all of them.
    "wgmma helped in clusters": Base(
        TILE | {"GROUP_M": 1, "BLOCKS": 78, "CLUSTER_M": 2, "LAST_WAVE": "helped"},
        (Problem(67, 448, 1040, Layout.NT, DType.F16_F32),),
        "gemm_wgmma",
        num_blocks=8,
    ),
}

S, C = LAST_WAVE_BASES

LAST_WAVE_MUTATIONS: tuple[Mutation, ...] = (
    # Parts and flags.
    Mutation(
        S, "a flag not released", "store_release(parts.flag(place), 1)", "*parts.flag(place) = 1"
    ),
    Mutation(
        S,
        "a flag set before all lanes have stored",
        "__syncwarp();\n    if (threadIdx.x % 32 == 0) {\n        store_release",
        "if (threadIdx.x % 32 == 0) {\n        store_release",
    ),
    Mutation(S, "parts not waited for", "while (load_acquire(parts.flag(place)) == 0) {", "{"),
    Mutation(
        S,
        "lanes that do not wait for the first",
        "    __syncwarp();\n    const float4* const fours",
        "    const float4* const fours",
    ),
    Mutation(S, "parts that overlap", "place * (BM * BN / 4)", "place * (BM * BN / 8)"),
    # Who has which slabs.
    Mutation(S, "parts not added", "piece.num_slabs < num_slabs", "false"),
    Mutation(C, "only one tile helped", "last_tile += step;", "last_tile += 2 * step;"),
    Mutation(C, "pieces from the first slab on", "(piece.first_slab + slab)", "slab"),
    Mutation(C, "one place for both blocks", "place * (BM", "place / 2 * (BM"),
    Mutation(C, "a tile too many taken whole", "tile < whole_tiles", "tile <= whole_tiles"),
)
