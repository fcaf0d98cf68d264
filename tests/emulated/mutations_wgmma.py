"""Bugs to plant in the emitted kernels of gemm_wgmma; see mutations.py."""

from dataclasses import replace

from mutations import Base, Mutation
from mutations_tensor import problems

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132},
}


def written_by_tma(layout: Layout, multiple: int, dtype: DType) -> tuple[Problem, ...]:
    """Edges everywhere, but rows of C are whole chunks of 16 bytes."""
    ragged = problems(layout, multiple, dtype)
    return tuple(replace(one, n=one.ldc) for one in ragged)


# C whose rows begin at even elements, with its old values, too; and at odd ones.
SPLIT_PROBLEMS = (
    Problem(259, 67, 200, Layout.TN, DType.F16, lda=264, ldb=72, ldc=68),
    Problem(131, 64, 200, Layout.TN, DType.F16, alpha=0.5, beta=-1.5, lda=136),
    Problem(64, 64, 200, Layout.TN, DType.F16, ldc=65),
)

# Few persistent blocks, so that each walks over several tiles and all stages are used again.
WGMMA_BASES: dict[str, Base] = {
    "wgmma": Base(TILE | {"BN": 128}, written_by_tma(Layout.NN, 8, DType.BF16), "gemm_wgmma"),
    # Tiles of four k tiles, and of one, which are fewer than boxes.
    "wgmma overlapped": Base(
        TILE
        | {"BN": 128, "WN": 128, "C_BUFFERS": 2, "EPILOGUE": "overlapped"}
        | {"K_ORDER": "serpentine"},
        (
            Problem(130, 264, 200, dtype=DType.BF16, beta=0.5),
            Problem(130, 264, 64, dtype=DType.BF16, alpha=0.5),
        ),
        "gemm_wgmma",
    ),
    "wgmma pingpong": Base(
        TILE | {"SCHEDULE": "pingpong", "BOX_M": 16, "GROUP_M": 1},
        written_by_tma(Layout.NT, 8, DType.F16_F32),
        "gemm_wgmma",
    ),
    "wgmma swapped": Base(
        TILE
        | {"BM": 200, "WM": 200, "BN": 128, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 40}
        | {"C_BUFFERS": 2, "SWAP_AB": 1},
        (
            Problem(410, 264, 200, dtype=DType.BF16),
            Problem(190, 136, 72, Layout.NT, DType.BF16, alpha=0.5, beta=-1.0, ldc=144),
        ),
        "gemm_wgmma",
    ),
    # Tiles of 128 and of 104 rows, and one block more work than the other without them: five tall
    # tiles or one and five short ones in a column; two short ones, the last of a single row.
    "wgmma of two heights": Base(
        TILE
        | {"BM": 128, "WM": 128, "BN": 128, "EPILOGUE": "overlapped", "SWAP_AB": 1}
        | {"SHORT_BY": 24},
        (
            Problem(630, 264, 72, dtype=DType.BF16, alpha=0.5, beta=-1.0),
            Problem(313, 136, 200, Layout.NT, DType.BF16),
        ),
        "gemm_wgmma",
    ),
    "wgmma of two heights, pingpong": Base(
        TILE
        | {"BM": 200, "WM": 200, "BN": 128, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 40}
        | {"C_BUFFERS": 2, "SWAP_AB": 1, "SHORT_BY": 8},
        (Problem(593, 264, 72, dtype=DType.BF16, beta=0.5),),
        "gemm_wgmma",
    ),
    "wgmma in clusters": Base(
        TILE | {"CLUSTER_M": 2, "CLUSTER_N": 2},
        written_by_tma(Layout.TT, 8, DType.BF16),
        "gemm_wgmma",
    ),
    "wgmma by registers": Base(
        TILE | {"C_BUFFERS": 2},
        written_by_tma(Layout.NN, 4, DType.TF32),
        "gemm_wgmma",
    ),
    # Two warpgroups multiply: one may still read a stage that the other is done with. Each has two
    # row tiles, of which a block's own elements are half of one; of two rows of tiles, and of two
    # columns, the last is cut off.
    "wgmma split along K": Base(
        TILE | {"SPLIT_K": 4, "BM": 256, "WM": 128, "GROUP_M": 1, "BLOCKS": 0},
        SPLIT_PROBLEMS,
        "gemm_wgmma",
    ),
    "wgmma split along K, partial sums in stages": Base(
        TILE
        | {"SPLIT_K": 4, "BM": 256, "WM": 128, "GROUP_M": 1, "BLOCKS": 0, "PARTIALS": "in_stages"},
        SPLIT_PROBLEMS,
        "gemm_wgmma",
    ),
}

R, V, T, S, H, U, M, W, P, Q = WGMMA_BASES

END_OF_CLUSTER = "    cluster_arrive_relaxed();\n    cluster_wait_acquire();\n}"

WGMMA_MUTATIONS: tuple[Mutation, ...] = (
    # The pipeline.
    Mutation(
        R,
        "a stage released while tensor cores read it",
        "wgmma_wait_1();\n            pipeline.release",
        "pipeline.release",
    ),
    Mutation(R, "too few bytes expected", "expect(full, STAGE_BYTES)", "expect(full, A_BYTES)"),
    Mutation(R, "the pipeline's parity stays", "parity ^= 1;", "parity ^= 0;"),
    Mutation(
        R,
        "k tiles not waited for",
        "mbarrier_wait(pipeline.full + pipeline.stage, pipeline.parity);",
        "",
    ),
    Mutation(
        R,
        "stages not waited for",
        "mbarrier_wait(pipeline.empty + pipeline.stage, pipeline.parity ^ 1);",
        "",
    ),
    Mutation(
        R, "the last stage kept", "wgmma_wait_0();\n    pipeline.release(before", "before += (0"
    ),
    Mutation(R, "each lane loads", " && is_elected()", ""),
    # Products.
    Mutation(R, "products not waited for", "wgmma_wait_0();", ""),
    Mutation(R, "half a step along k", "step * 32;", "step * 16;"),
    Mutation(
        R, "eight rows too far", "column * 128, BK * 128, 1024", "column * 128, BK * 128, 2048"
    ),
    Mutation(R, "the first product adds", "k_tile > 0 || step > 0);", "true);"),
    Mutation(W, "k's of a register", "4 * (at / 2);", "4 * (at % 2);"),
    Mutation(W, "swizzle not undone", "row % BK / 4 ^ k % 8;", "row % BK / 4;"),
    # C.
    Mutation(R, "chunks of C not swizzled", "^ lane % 8;", ";"),
    Mutation(R, "TMA is not told of what was stored", "fence_before_bulk_copies();", ""),
    Mutation(R, "a box filled while TMA reads it", "wait_for_tile_reads(C_BUFFERS - 1);", ""),
    Mutation(
        R,
        "a box written before all have filled it",
        "named_barrier_sync(1 + warpgroup, WARPGROUP);\n    if (thread == 0) {\n        store",
        "if (thread == 0) {\n        store",
    ),
    Mutation(R, "C read past its edge", "m < M && n < N", "m < M"),
    Mutation(
        T,
        "a warp does not wait for its lanes",
        "__syncwarp();\n    if (lane == 0) {\n        store",
        "if (lane == 0) {\n        store",
    ),
    Mutation(
        T, "stages of the other's tile", "pipeline.skip(num_k_tiles);\n            store", "store"
    ),
    Mutation(
        W, "columns in another order", "lane, at / 2 % 2) % 32", "lane ^ 16, at / 2 % 2) % 32"
    ),
    Mutation(W, "columns of C by the wrong lanes", "warp / 2 * BOX_BYTES", "warp % 2 * BOX_BYTES"),
    # K, serpentine.
    Mutation(
        V, "backward from a k tile too far", "num_k_tiles - 1 - k_tile", "num_k_tiles - k_tile"
    ),
    Mutation(V, "forward and backward in one tile", "k_tile : k_tile)", "k_tile : k_tile / 2)"),
    # C^T.
    # Tiles of two heights.
    Mutation(H, "short tiles as far apart as tall ones", "row * tile_height", "row * BM"),
    Mutation(H, "short tiles over tall ones", "below.first_m = still_tall * BM;", ""),
    Mutation(H, "beside the other columns", "above.first_n = below.first_n", "below.first_n"),
    Mutation(H, "no tall tiles above", "above.rows = still_tall;", "above.rows = 0;"),
    Mutation(H, "a short tile is missing", "rows + 1 - still_tall", "rows - still_tall"),
    Mutation(H, "the numbers of short tiles", "index - above.count()", "index"),
    Mutation(H, "columns are not counted", "+ below.count();", ";"),
    Mutation(H, "a short box as a tall one", "? *map_last : map_c", "? map_c : map_c"),
    Mutation(H, "tall boxes as short ones", "? map_c_short : map_c", "? map_c_short : map_c_short"),
    Mutation(H, "old values of another's rows", "min(M, place.m0 + place.height)", "M"),
    Mutation(H, "all tiles short", "if (height < BM) {", "if (true) {"),
    Mutation(H, "rows of 16 in a box", "4 * at + lane / 16 * 8", "2 * at + lane / 16 * 8"),
    Mutation(
        H, "chunks of a box by another warp", "(2 * warp + lane / 8 % 2)", "(warp + lane / 8 % 2)"
    ),
    Mutation(H, "boxes above each other", "m0 + block * BOX_M", "m0"),
    Mutation(U, "a short pair of boxes as a tall one", "? map_last : map_c", "? map_c : map_c"),
    Mutation(U, "tall pairs as short ones", "? map_c_short : map_c", "? map_c_short : map_c_short"),
    Mutation(S, "rows of the next tile of 64", "in_b = i * 64 * 128", "in_b = i * 64 * 64"),
    Mutation(S, "the same columns of two row tiles", "&accum[i + j / 2]", "&accum[i]"),
    Mutation(
        S, "a warp's columns by another", "(2 * warp + lane / 8 % 2)", "(warp + lane / 8 % 2)"
    ),
    Mutation(S, "both row tiles in one box", "box + lane / 16 * BOX_BYTES", "box"),
    Mutation(S, "boxes above each other", "m0 + BOX_M * block", "m0"),
    Mutation(S, "chunks of C not swizzled", "lane / 8 % 2) ^ lane % 8;", "lane / 8 % 2);"),
    Mutation(S, "boxes filled while TMA reads them", "wait_for_tile_reads(C_BUFFERS - 2);", ""),
    Mutation(
        S, "old values of other columns", "64 * i + 16 * warp + lane / 4", "16 * warp + lane / 4"
    ),
    # C, while the next tile is multiplied.
    Mutation(
        V, "the rest of a tile lost", "finished.store_rest();\n            finished", "finished"
    ),
    Mutation(V, "the last tile lost", "finished.store_rest();\n        if", "if"),
    Mutation(V, "the same words for each box", "words[at] = words[at + IN_BOX]", "words[at] += 0"),
    Mutation(V, "the wrong box", "written % C_BUFFERS", "0"),
    Mutation(V, "a box filled while TMA reads it", "wait_for_tile_reads(C_BUFFERS - 1);", ""),
    Mutation(V, "kept before all products are done", "wgmma_wait_0();", ""),
    # Clusters.
    Mutation(M, "stages released at home only", "lane < CLUSTER_M * CLUSTER_N", "lane < 1"),
    Mutation(M, "the wrong part for all", "tiles.row_in_cluster * ROWS", "0 * ROWS"),
    Mutation(M, "to the wrong blocks", "0x5u << tiles.row_in_cluster", "0x3u"),
    Mutation(M, "a block leaves early", END_OF_CLUSTER, "}"),
    Mutation(P, "partial sums read before they are there", "mbarrier_wait(arrived, 0);", ""),
    Mutation(P, "accumulators not exchanged", "is_set ? high : low", "low"),
    Mutation(P, "the own ones kept", "is_set ? low : high", "high"),
    Mutation(P, "the same columns for all", "(int)(rank * OWN_FOURS % FOURS)", "0"),
    Mutation(P, "the same rows for all", "(int)(rank * OWN_FOURS / FOURS)", "0"),
    Mutation(P, "neighbours exchanged", "f16_pair(low, high)", "f16_pair(high, low)"),
    Mutation(P, "two stored where C has one column", "N - n0 >= WN", "N - n0 >= 0"),
    Mutation(P, "two stored at an odd place", "ldc % 2 == 0 &&", "true &&"),
    Mutation(P, "C lost", "return !with.reads_c() &&", "return"),
    Mutation(P, "rows past the last", "if (m < M) {", "{"),
    Mutation(P, "the same four elements each time", "= own[next + 1][i]", "= own[next][i]"),
    Mutation(P, "one range of k for all", "(first_k_tile + k_tile) * BK", "k_tile * BK"),
    Mutation(P, "fewer bytes expected", "expect(arrived, PARTIALS_BYTES)", "expect(arrived, 8192)"),
    Mutation(P, "sent before barriers are there", "cluster_wait_acquire();\n        send", "send"),
    Mutation(P, "two warpgroups in one place", "* CONSUMERS + warpgroup", "* CONSUMERS"),
    Mutation(Q, "sent to stages that are still read", "        cluster_sync();\n", ""),
    Mutation(Q, "barriers among the partial sums", "(shared + STAGES_BYTES)", "(shared + 4096)"),
)
