"""Bugs to plant where chains of additions end now and then: CHAIN_K; see mutations.py."""

from mutations import TILE, Base, Mutation

from autogemm.model.problem import Layout, Problem

# Three chains of different lengths, in part of the tiles.
DEEP = (
    Problem(33, 67, 300, Layout.NN, ldb=68, ldc=68),
    Problem(33, 67, 300, Layout.NN, ldb=68, ldc=68, alpha=0.5, beta=-1.5),
)

CHAIN_BASES: dict[str, Base] = {
    "chains of slices": Base(
        TILE
        | {"BM": 32, "BN": 32, "WN": 32, "BK": 8, "SLICE_K": 2, "SLICES": "separate"}
        | {"STAGES": 2, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "POINTERS": "held"}
        | {"CHAIN_K": 128},
        tuple(Problem(33, 67, 600, ldb=68, ldc=68, beta=each.beta) for each in DEEP),
    ),
    "chains of shared tiles": Base(
        TILE
        | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "STREAM_BLOCKS": 38}
        | {"CHAIN_K": 128},
        # Two tiles more than blocks that share tiles.
        (Problem(97, 580, 272, beta=-1.5),),
    ),
    "chains of few rows": Base(
        {"BM": 32, "BN": 32, "BK": 16, "TM": 8, "TN": 4, "SLICE_K": 2}
        | {"SPLIT_K": 1, "STAGES": 3, "CHAIN_K": 64},
        DEEP,
        "sgemm_skinny",
    ),
}

A, S, R = CHAIN_BASES

LONGER = ("min(num_k_tiles, k_tile + CHAIN_K_TILES)", "k_tile + 16")

CHAIN_MUTATIONS: tuple[Mutation, ...] = (
    Mutation(A, "a chain lost", "THREADS] += accum", "THREADS] = accum"),
    Mutation(A, "a chain counted twice", "        accum[i % TM][i / TM] = 0.0f;\n", ""),
    Mutation(A, "begun with what was there", "begin_chains(finished);\n", "\n"),
    Mutation(A, "threads share a float", "PIPELINE + (int)threadIdx.x", "PIPELINE"),
    Mutation(A, "over the k_tiles", "shared + PIPELINE + ", "shared + "),
    Mutation(A, "over the k_tiles of the other slice", "PIPELINE = SLICE_K * 2", "PIPELINE = 2"),
    Mutation(A, "the last chain too long", *LONGER),
    Mutation(A, "only the last chain", "take_finished(finished, accum);", ""),
    Mutation(S, "a chain lost", "THREADS] += accum", "THREADS] = accum"),
    Mutation(S, "begun with what was there", "begin_chains(finished);\n", "\n"),
    Mutation(S, "over the k_tiles", "shared + PIPELINE + ", "shared + "),
    Mutation(S, "the last chain too long", *LONGER),
    Mutation(R, "a chain lost", "finished[i][j] += accum", "finished[i][j] = accum"),
    Mutation(R, "a chain counted twice", "            accum[i][j] = 0.0f;\n", ""),
    Mutation(R, "only the last chain", "end_chain(finished, accum);", ""),
    Mutation(R, "the last chain too long", "max(0, left - CHAIN_K_TILES)", "left - CHAIN_K_TILES"),
)
