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
    Mutation(
        S, "lines transposed without a barrier", "__syncthreads();\n    return all", "return all"
    ),
    Mutation(S, "numbers past K", "k >= K || n >= N ? 0.0f", "n >= N ? 0.0f"),
    Mutation(S, "vectors of a row as they come", "row[vector ^ line % 8]", "row[vector]"),
    Mutation(S, "lower parts too small", "left * 2048.0f", "left * 1024.0f"),
    Mutation(S, "lines of the other operand", "space.exponents + first", "space.exponents"),
    # K tiles.
    Mutation(
        S, "a k tile not waited for", "mbarrier_wait(full + pipeline.stage, pipeline.parity);", ""
    ),
    Mutation(S, "a stage not waited for", "mbarrier_wait(empty + pipeline.stage,", "(void)(empty,"),
    Mutation(S, "one block's warps counted", "/ 32 * CLUSTER);", "/ 32);"),
    Mutation(S, "both halves to one place", "(BM + rank * (BN / CLUSTER)) * ROW", "BM * ROW"),
    Mutation(S, "products not waited for", "wgmma_wait_1();", ""),
    Mutation(
        S,
        "the same half of K twice",
        "wgmma_f16_kk(uppers, a + NEXT_K, b +",
        "wgmma_f16_kk(uppers, a, b +",
    ),
    # Accumulators and C.
    Mutation(S, "a chunk lost", "accum[i] += uppers[i];", "accum[i] = uppers[i];"),
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
        "with.beta * old_c",
        "0.0f * old_c",
    ),
)
