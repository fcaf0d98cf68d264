"""Bugs to plant in the packing of operands and in C that threads write; see mutations.py."""

from mutations import Base, Mutation
from packed_cases import BOTH, TILE

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

# Rows of more than one square, and more than one square of rows; words with one element left.
PACKING_BASES: dict[str, Base] = {
    "wgmma packed": Base(
        TILE | BOTH | {"STAGES": 3},
        (Problem(67, 141, 74, Layout.NN, DType.BF16, alpha=0.5, beta=-1.5, lda=75, ldc=143),),
        "gemm_wgmma",
    ),
    "wgmma packed in pairs": Base(
        TILE | BOTH | {"BOX_M": 16, "STAGES": 3},
        (Problem(67, 143, 70, Layout.TN, DType.F16, lda=70, ldb=146, ldc=150),),
        "gemm_wgmma",
    ),
    "wgmma packed and transposed": Base(
        TILE | BOTH | {"STAGES": 3},
        (Problem(67, 75, 91, Layout.TN, DType.TF32, beta=0.5),),
        "gemm_wgmma",
    ),
}

P, Q, T = PACKING_BASES

PACKING_MUTATIONS: tuple[Mutation, ...] = (
    # Reads and writes.
    Mutation(P, "the last row not read", "at < rows ? read", "at < rows - 1 ? read"),
    Mutation(P, "rows read as if packed", "(long long)at * ld + column,", "at * columns + column,"),
    Mutation(P, "rows written without padding", "at * packed_ld(columns)", "at * columns"),
    Mutation(P, "the last pair torn", "left > 1 ? from[1]", "left > 2 ? from[1]"),
    Mutation(P, "an element behind the row read", "left > 1 ? from[1]", "left > 0 ? from[1]"),
    Mutation(P, "B packed over A's last row", "packed_size(M, K)", "packed_size(M - 1, K)"),
    Mutation(Q, "a single element lost", "left > 0 ? *from", "left > 1 ? *from"),
    # Squares that are transposed.
    Mutation(
        T, "no barrier in between", "    __syncthreads();\n    #pragma unroll", "    #pragma unroll"
    ),
    Mutation(
        T,
        "edges not exchanged",
        "columns, rows, column, row, words",
        "rows, columns, column, row, words",
    ),
    # C written by threads.
    Mutation(P, "the element before the first pair lost", "first == 1 && lane == 0", "false"),
    Mutation(P, "a pair behind the row written", "if (at + 1 < columns)", "if (at < columns)"),
    Mutation(P, "columns past C written", "min(output.N - n0, BOX_N)", "BOX_N"),
    Mutation(
        P,
        "a box written before it is full",
        "    named_barrier_sync(1 + warpgroup, WARPGROUP);\n    write_box",
        "    write_box",
    ),
    Mutation(
        Q,
        "a warp's box filled while it is written",
        "    __syncwarp();\n    unsigned char* const box",
        "    unsigned char* const box",
    ),
)
