"""Bugs to plant in the emitted kernels of gemm_skinny; see mutations.py."""

from dataclasses import replace

from mutations import Base, Mutation

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

TILE: dict[str, Value] = {
    **{"BM": 8, "BN": 32, "BK": 64, "WN": 16, "SLICE_K": 2, "STAGES": 2},
}


def few_rows(problem: Problem) -> tuple[Problem, ...]:
    """Without C's old value, and with it."""
    return problem, replace(problem, alpha=0.5, beta=-1.5)


DIRECT_BASES: dict[str, Base] = {
    # Five whole k_tiles and a rest, rows and columns past the edges.
    "rows of weights": Base(
        TILE | {"BM": 16, "BN": 64, "WN": 32, "PREFETCH_A": 1},
        few_rows(Problem(11, 67, 344, Layout.NT, DType.BF16, ldc=69)),
        "gemm_skinny",
    ),
    # Two rows of tiles; six blocks for five k_tiles, one of which has none.
    "columns of weights": Base(
        TILE | {"SPLIT_K": 6, "PREFETCH_A": 0},
        few_rows(Problem(11, 68, 341, Layout.NN, DType.F16_F32)),
        "gemm_skinny",
    ),
    "weights one by one": Base(
        TILE | {"BN": 16, "STAGES": 1},
        few_rows(Problem(5, 35, 203, Layout.TN, DType.BF16)),
        "gemm_skinny",
    ),
}

R, C, E = DIRECT_BASES

DIRECT_MUTATIONS: tuple[Mutation, ...] = (
    # Which lane has what.
    Mutation(R, "k's by the wrong lanes", "lane % 4 * 8;", "lane / 8 * 8;"),
    Mutation(R, "rows of A by the wrong lanes", "i * 8 + lane / 4, M", "i * 8 + lane % 8, M"),
    Mutation(R, "rows of B by the wrong lanes", "j * 8 + lane / 4, N", "j * 8 + lane % 8, N"),
    Mutation(R, "all warps the same slice", "warp / WARPS_N * DEPTH + lane", "lane"),
    Mutation(R, "all warps the same columns", "warp % WARPS_N * WN;", "0;"),
    Mutation(R, "warps take each other's k's", "warp / WARPS_N * DEPTH", "warp % SLICE_K * DEPTH"),
    Mutation(R, "tiles of warps side by side", "+ warp / WARPS_N * TILE", "+ warp * TILE"),
    Mutation(R, "columns of warps overlap", "+ warp_n * 8 +", "+ warp_n +"),
    Mutation(R, "steps overlap", "const int word = half % 2 * 2;", "const int word = 0;"),
    Mutation(R, "registers of B exchanged", "b[step][2 * j + 1][word],", "b[step][2 * j][word],"),
    Mutation(C, "halves of a word exchanged", "0x5410", "0x7632"),
    Mutation(C, "two k's of the same row", "(word + pair) + 1][j]", "(word + pair)][j]"),
    Mutation(C, "columns by the wrong lanes", "(2 * TILES_N) + j;", "(2 * TILES_N) + (j ^ 1);"),
    # The pipeline.
    Mutation(R, "a stage is loaded twice", "k + STAGES * BK, b[stage]", "k + BK, b[stage]"),
    Mutation(R, "A is not loaded on", "load_slice_a(rows_a, k + STAGES * BK, a[stage]);", ""),
    Mutation(R, "the last stages left out", "k_tile + stage < end_k_tile", "k_tile < end_k_tile"),
    Mutation(R, "loads past the end", "stage + STAGES < end_k_tile", "stage < end_k_tile"),
    Mutation(C, "k_tiles of two ranges", "(partial + 1) / SPLIT_K);", "(partial + 2) / SPLIT_K);"),
    # Edges.
    Mutation(R, "rest read past K", "if (k + step * 32 < K) {", "if (true) {"),
    Mutation(R, "rest begins too late", "num_k_tiles * BK + lane_k;", "num_k_tiles * BK + 8;"),
    Mutation(C, "every block adds the rest", "if (partial == SPLIT_K - 1) {", "if (true) {"),
    Mutation(C, "rows of B past K", "if (k + step * 32 + row >= K) {", "if (false) {"),
    Mutation(E, "A read past K", "first + 1 < K ? from[lda] : 0u", "from[lda]"),
    Mutation(E, "columns past N", "min(2 * word + 1, last_column)", "2 * word + 1"),
    Mutation(E, "first column past N", "last_column = N - 1 -", "last_column = N -"),
    Mutation(R, "rows past M", " M - 1);", " M);"),
    Mutation(R, "rows of B past N", " N - 1)", " N)"),
    Mutation(C, "columns of B past N", "N - 2 * TILES_N);", "N);"),
    Mutation(R, "rows past M stored", "if (m < M) {", "if (m <= M) {"),
    Mutation(R, "columns past N stored", "|| n >= N", "|| n > N"),
    # Sums over warps and blocks.
    Mutation(R, "tiles read before they are there", "__syncthreads();\n    float tot", "float tot"),
    Mutation(R, "one warp left out", "(shared, SLICE_K,", "(shared, SLICE_K - 1,"),
    Mutation(R, "rows of a tile overlap", "(i * BN + column) * 8)", "(i * BN + column) * 4)"),
    Mutation(R, "threads own the same floats", "4 * (vector * THREADS +", "4 * (vector +"),
    Mutation(R, "rows of C by the wrong threads", "owned(vector) % 8 + e;", "e;"),
    Mutation(
        C,
        "counters among the partial sums",
        "(long long)num_tiles * SPLIT_K * TILE)",
        "(long long)num_tiles * TILE)",
    ),
    Mutation(
        C, "partial sums of another tile", "blockIdx.y * gridDim.x + blockIdx.x", "blockIdx.x"
    ),
    Mutation(R, "C read at beta = 0", "return beta != 0.0f;", "return true;"),
)
