"""Bugs to plant in the emitted kernels of sgemm_skinny; see mutations.py."""

from mutations import Base, Mutation, ragged

from autogemm.model.config import Value
from autogemm.model.problem import Layout

TILE: dict[str, Value] = {"BM": 32, "BN": 32, "BK": 16, "TM": 8, "TN": 4, "SLICE_K": 2}

SKINNY_BASES: dict[str, Base] = {
    # Five k_tiles for six partial sums: one is empty; sums of four and of two, then of both.
    "split": Base(
        TILE | {"SPLIT_K": 6, "FAN_IN": 4, "STAGES": 2}, ragged(Layout.NN, 4), "sgemm_skinny"
    ),
    # Two threads for each four floats of a part.
    "adders": Base(
        {"BM": 16, "BN": 32, "BK": 64, "TM": 4, "TN": 4, "SLICE_K": 8}
        | {"SPLIT_K": 6, "FAN_IN": 4, "STAGES": 2},
        ragged(Layout.NN, 4),
        "sgemm_skinny",
    ),
    "pipeline of a warp": Base(
        TILE | {"SPLIT_K": 1, "STAGES": 3}, ragged(Layout.NT, 4), "sgemm_skinny"
    ),
    "through registers": Base(
        TILE | {"SPLIT_K": 1, "STAGES": 1}, ragged(Layout.TN, 2), "sgemm_skinny"
    ),
    "half warps": Base(
        TILE | {"BK": 32, "TN": 8, "SPLIT_K": 1, "STAGES": 2}, ragged(Layout.NN, 4), "sgemm_skinny"
    ),
}

S, A, R, T, H = SKINNY_BASES

SKINNY_MUTATIONS: tuple[Mutation, ...] = (
    # Lanes that share a slice's k's.
    Mutation(H, "both halves take all k's", "k += 4 * LANES_K", "k += 4"),
    Mutation(H, "both halves take the same k's", "+ lane_k * STRIDE_B", ""),
    Mutation(H, "halves at different k's", " * STRIDE_A + lane_k;", " * STRIDE_A;"),
    Mutation(H, "halves share a tile", "warp * LANES_K + lane_k / 4", "warp * LANES_K"),
    Mutation(H, "the first halves only", "SLICE_K * LANES_K, totals", "SLICE_K, totals"),
    # Sums over blocks.
    Mutation(
        S, "arrival orders nothing", "atomic_add_acq_rel(counter, 1)", "atomicAdd(counter, 1u)"
    ),
    Mutation(
        S,
        "arrived before all have published",
        "}\n        __syncthreads();\n        // Arrive",
        "}\n        // Arrive",
    ),
    Mutation(S, "one part left out", "== members - 1u;", "== members - 2u;"),
    Mutation(S, "waits for a part that is not there", "== members - 1u;", "== FAN_IN - 1u;"),
    Mutation(S, "counter left as it is", "*counter = 0;", ""),
    Mutation(S, "levels share a counter", "counters + first + stride;", "counters + first + 1;"),
    Mutation(
        S,
        "counters among the partial sums",
        "(long long)num_tiles * SPLIT_K * TILE)",
        "(long long)num_tiles * TILE)",
    ),
    Mutation(
        S, "tiles share counters", "tile_idx * SPLIT_K;\n    int first", "tile_idx;\n    int first"
    ),
    Mutation(S, "partial sums of neighbours", "(first + min(member", "(partial + min(member"),
    Mutation(
        S,
        "sum left where it was",
        "SPLIT_K; stride *= FAN_IN) {\n        float* const own = partials + first * TILE;",
        "SPLIT_K; stride *= FAN_IN) {\n        float* const own = partials + partial * TILE;",
    ),
    Mutation(S, "missing ones added too", "if (member < members) {", "if (member <= members) {"),
    Mutation(
        S,
        "only one level",
        "stride < SPLIT_K; stride *= FAN_IN",
        "stride < FAN_IN; stride *= FAN_IN",
    ),
    Mutation(S, "k_tiles of two ranges", "(partial + 1) / SPLIT_K);", "(partial + 2) / SPLIT_K);"),
    Mutation(A, "one adder's sum left out", "add_tiles(shared, ADDERS,", "add_tiles(shared, 1,"),
    Mutation(A, "adders add the same parts", "first_member + adder", "first_member"),
    Mutation(A, "an adder's sum read too soon", "__syncthreads();\n        add_tiles", "add_tiles"),
    # Sums over warps.
    Mutation(S, "tiles over slices still read", "owns.\n    __syncthreads();", "owns."),
    Mutation(
        S, "tiles read before they are there", "__syncthreads();\n    float totals", "float totals"
    ),
    Mutation(S, "one warp left out", "(shared, SLICE_K,", "(shared, SLICE_K - 1,"),
    Mutation(S, "threads own the same floats", "4 * (vector * THREADS +", "4 * (vector +"),
    # The pipeline of a warp.
    Mutation(R, "no wait", "wait_for_copies();\n", ""),
    Mutation(R, "no barrier of the warp", "__syncwarp();", ""),
    Mutation(R, "one group too many in flight", "STAGES - 2;", "STAGES - 1;"),
    Mutation(R, "groups not committed", "}\n        commit_copies();", "}"),
    Mutation(R, "wraps too late", "read == (STAGES - 1) * SLICE", "read == STAGES * SLICE"),
    Mutation(R, "pipelines overlap", "shared + warp * PIPELINE", "shared + warp * SLICE"),
    Mutation(R, "slices overlap", "k_tile * BK - copy_kb", "k_tile * DEPTH - copy_kb"),
    Mutation(
        R, "all warps the same slice", "first_k_tile * BK + warp * DEPTH", "first_k_tile * BK"
    ),
    Mutation(R, "rows of a slice overlap", "STRIDE_B = DEPTH + 4", "STRIDE_B = DEPTH - 4"),
    Mutation(R, "K guard forgets the warp", "k_left = K - warp * DEPTH", "k_left = K"),
    Mutation(T, "stored while still read", "__syncwarp();\n        store", "store"),
    Mutation(T, "read before all have stored", "from_b);\n        __syncwarp();", "from_b);"),
    Mutation(
        T,
        "the last k_tile left out",
        "while (k_tile < end_k_tile)",
        "while (k_tile + 1 < end_k_tile)",
    ),
    Mutation(T, "A not advanced", "A += advance_a;", ""),
    # Edges and scalars.
    Mutation(S, "rows beyond M stored", "if (m >= tile.rows)", "if (m > tile.rows)"),
    Mutation(
        S, "vector store over the edge", "if (n + VEC_C <= tile.columns)", "if (n < tile.columns)"
    ),
    Mutation(S, "K rounded down", "(K + BK - 1) / BK", "K / BK"),
    Mutation(S, "C read at beta = 0", "if (with.beta != 0.0f) {", "if (true) {"),
    Mutation(S, "C addressed by N", "(long long)m * ldc", "(long long)m * tile.columns"),
)
