"""Bugs to plant in the packing of operands and in C that threads write; see mutations.py."""

from mutations import Base, Mutation
from packed_cases import BOTH, TILE

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

# Rows of more than one square, and more than one square of rows; words with one element left.
PACKING_BASES: dict[str, Base] = {
    "wgmma packed": Base(
        TILE | BOTH | {"STAGES": 3},
        (
            Problem(131, 141, 151, Layout.NN, DType.BF16, alpha=0.5, beta=-1.5, ldc=143),
            Problem(67, 73, 64, Layout.NN, DType.BF16, lda=67, ldc=74),
        ),
        "gemm_wgmma",
    ),
    "wgmma packed in pairs": Base(
        TILE | BOTH | {"BOX_M": 16, "STAGES": 3},
        (Problem(130, 143, 130, Layout.TN, DType.F16, ldb=146, ldc=150),),
        "gemm_wgmma",
    ),
    "wgmma packed and transposed": Base(
        TILE | BOTH | {"STAGES": 3},
        (Problem(131, 77, 91, Layout.TN, DType.TF32, beta=0.5),),
        "gemm_wgmma",
    ),
}

P, Q, T = PACKING_BASES

PACKING_MUTATIONS: tuple[Mutation, ...] = (
    # What is read and written.
    Mutation(P, "the last row not read", "at < rows ? read", "at < rows - 1 ? read"),
    Mutation(P, "a row too many read", "at < rows ? read", "at <= rows ? read"),
    Mutation(P, "the last row not written", "at < rows && column", "at < rows - 1 && column"),
    Mutation(P, "a row too many written", "at < rows && column", "at <= rows && column"),
    Mutation(P, "rows read as if packed", "(long long)at * ld + column,", "at * columns + column,"),
    Mutation(P, "rows written without padding", "at * packed_ld(columns)", "at * columns"),
    Mutation(P, "the last element lost", "left > 0 ? from[0]", "left > 1 ? from[0]"),
    Mutation(P, "the last pair torn", "left > 1 ? from[1]", "left > 2 ? from[1]"),
    Mutation(P, "an element behind the row read", "left > 1 ? from[1]", "left > 0 ? from[1]"),
    Mutation(P, "elements of a word exchanged", "low | high << 16", "high | low << 16"),
    Mutation(
        P,
        "the last columns not packed",
        "(columns + IN_SQUARE - 1) / IN_SQUARE",
        "columns / IN_SQUARE",
    ),
    Mutation(P, "the last rows not packed", "((rows + SQUARE - 1) / SQUARE)", "(rows / SQUARE)"),
    Mutation(P, "squares walked the other way", "square / squares", "square % squares"),
    Mutation(P, "B packed as if A were", "square - squares_a", "square"),
    Mutation(P, "B packed over A's last row", "packed_size(M, K)", "packed_size(M - 1, K)"),
    Mutation(P, "every other pass forgotten", "row + i * PACK_ROWS", "row + i / 2 * PACK_ROWS"),
    Mutation(Q, "a pair behind the row read", "if (left > 1)", "if (left > 0)"),
    Mutation(Q, "a single element lost", "left > 0 ? *from", "left > 1 ? *from"),
    # Squares that are transposed.
    Mutation(T, "not transposed", "shared_square[in_row][first", "shared_square[first][in_row"),
    Mutation(
        T, "no barrier in between", "    __syncthreads();\n    #pragma unroll", "    #pragma unroll"
    ),
    Mutation(
        T,
        "put where it was",
        "columns, rows, column, row, words",
        "columns, rows, row, column, words",
    ),
    Mutation(
        T,
        "edges not exchanged",
        "columns, rows, column, row, words",
        "rows, columns, column, row, words",
    ),
    Mutation(
        T, "the last columns not packed", "(columns + SQUARE - 1) / SQUARE", "columns / SQUARE"
    ),
    # C written by threads.
    Mutation(P, "the element before the first pair lost", "first == 1 && lane == 0", "false"),
    Mutation(
        P, "pairs at odd elements", "const int at = first + 2 * lane;", "const int at = 2 * lane;"
    ),
    Mutation(P, "a pair behind the row written", "if (at + 1 < columns)", "if (at < columns)"),
    Mutation(P, "the last element not written", "} else if (at < columns)", "} else if (false)"),
    Mutation(P, "chunks as they lie", "(column / 8) ^ row % 8", "column / 8"),
    Mutation(P, "columns past C written", "min(output.N - n0, BOX_N)", "BOX_N"),
    Mutation(P, "columns of the next box written", "min(output.N - n0, BOX_N)", "output.N - n0"),
    Mutation(P, "rows past C written", "min(rows, output.M - m0)", "rows"),
    Mutation(P, "every warp all rows", "row = warp; row", "row = 0; row"),
    Mutation(
        P,
        "a box written before it is full",
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n    write_box",
        "    write_box",
    ),
    Mutation(
        P,
        "a box filled while it is written",
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n    unsigned char* const box",
        "    unsigned char* const box",
    ),
    Mutation(
        Q, "a warp's box before it is full", "    __syncwarp();\n    write_box", "    write_box"
    ),
    Mutation(
        Q,
        "a warp's box filled while it is written",
        "    __syncwarp();\n    unsigned char* const box",
        "    unsigned char* const box",
    ),
    Mutation(Q, "a warp's rows those of the first", "m0 + 16 * warp, n0", "m0, n0"),
    Mutation(T, "words as they lie", "(lane / 4) ^ row % 8", "lane / 4"),
    Mutation(T, "a word too many", "if (lane < columns)", "if (lane <= columns)"),
)
