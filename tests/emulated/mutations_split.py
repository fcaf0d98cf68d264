"""Bugs to plant in the emitted kernels of sgemm_emulated_wgmma; see mutations.py."""

from mutations import Base, Mutation

from autogemm.model.problem import Layout, Problem

SPLIT_BASES: dict[str, Base] = {
    "f16x3": Base(
        {"CHUNK": 64, "BN": 64, "CLUSTER": 2, "STAGES": 3},
        (Problem(140, 70, 135, Layout.NN, beta=-0.5),),
        "sgemm_emulated_wgmma",
    ),
}

(S,) = SPLIT_BASES

SPLIT_MUTATIONS: tuple[Mutation, ...] = (
    # Measuring and splitting.
    Mutation(S, "lines turned without a barrier", "__syncthreads();\n    return all", "return all"),
    Mutation(S, "numbers past K", "k >= K || n >= N ? 0.0f", "n >= N ? 0.0f"),
    Mutation(S, "pieces of a row as they come", "row[piece ^ line % 8]", "row[piece]"),
    Mutation(S, "lower parts too small", "left * 2048.0f", "left * 1024.0f"),
    Mutation(S, "lines of the other operand", "space.exponents + first", "space.exponents"),
    # Slabs.
    Mutation(S, "a slab not waited for", "mbarrier_wait(filled + ring.stage, ring.parity);", ""),
    Mutation(S, "a stage not waited for", "mbarrier_wait(freed + ring.stage,", "(void)(freed,"),
    Mutation(S, "one block's warps counted", "/ 32 * CLUSTER);", "/ 32);"),
    Mutation(S, "both halves to one place", "(BM + rank * (BN / CLUSTER)) * ROW", "BM * ROW"),
    Mutation(S, "products not waited for", "wgmma_wait_1();", ""),
    Mutation(
        S,
        "the same half of K twice",
        "wgmma_f16_kk(uppers, a + NEXT_K, b +",
        "wgmma_f16_kk(uppers, a, b +",
    ),
    # Sums.
    Mutation(S, "a chunk lost", "sums[i] += uppers[i];", "sums[i] = uppers[i];"),
    Mutation(
        S,
        "a chunk counted twice",
        "wgmma_f16_kk(uppers, a, b, i > 0);",
        "wgmma_f16_kk(uppers, a, b, 1);",
    ),
    Mutation(S, "powers of two of rows alone", "exponent_a + exponents_b[n + e]", "exponent_a"),
    Mutation(S, "columns past N", "if (n + e < N) {", "if (true) {"),
    Mutation(
        S,
        "C left out",
        "update(row + n + e, two[e], alpha, beta);",
        "update(row + n + e, two[e], alpha, 0.0f);",
    ),
)
