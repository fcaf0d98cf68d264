"""Bugs to plant in the emitted kernels of gemm_mma and sgemm_emulated; see mutations.py."""

from dataclasses import replace

from mutations import Base, Mutation, ragged

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "BK": 32, "WM": 32, "WN": 32, "STAGES": 3, "REG_STAGES": 2},
    **{"SWIZZLE": 1, "MMA_K": 16, "GROUP_M": 4, "MIN_BLOCKS": 1},
}
EMULATED = {name: value for name, value in TILE.items() if name != "MMA_K"} | {"GROUP_M": 8}


def problems(layout: Layout, multiple: int, dtype: DType) -> tuple[Problem, ...]:
    return tuple(replace(problem, dtype=dtype) for problem in ragged(layout, multiple))


TENSOR_BASES: dict[str, Base] = {
    "bf16": Base(TILE, problems(Layout.NN, 8, DType.BF16), "gemm_mma"),
    "transposed": Base(
        TILE | {"REG_STAGES": 1, "SWIZZLE": 0}, problems(Layout.TT, 8, DType.F16_F32), "gemm_mma"
    ),
    "words": Base(TILE | {"MMA_K": 8}, problems(Layout.TN, 4, DType.TF32), "gemm_mma"),
    "element by element": Base(TILE, problems(Layout.NN, 1, DType.F16), "gemm_mma"),
    "registers": Base(
        TILE | {"STAGES": 1, "REG_STAGES": 1}, problems(Layout.NT, 8, DType.BF16), "gemm_mma"
    ),
    "tf32x3": Base(
        EMULATED | {"SPLIT": "tf32x3", "CHUNK": 64}, ragged(Layout.NN, 4), "sgemm_emulated"
    ),
    "bf16x6": Base(
        EMULATED | {"SPLIT": "bf16x6", "CHUNK": 16, "REG_STAGES": 1},
        ragged(Layout.NT, 4),
        "sgemm_emulated",
    ),
}

B, T, W, E, R, X, Y = TENSOR_BASES

LESS = "for (int j = 0; j < TILES_N - (threadIdx.x == 5); ++j) {\n            mma"

TENSOR_MUTATIONS: tuple[Mutation, ...] = (
    # Which lane has what.
    Mutation(B, "rows of A by the wrong lanes", "i * 16 + lane % 16;", "i * 16 + lane / 2;"),
    Mutation(B, "halves of k swapped", "step * 2 + lane / 16", "step * 2 + 1 - lane / 16"),
    Mutation(B, "B not transposed", "load_transposed(", "load_matrices("),
    Mutation(
        B,
        "tiles of B swapped",
        "fragments.b[j], fragments.b[j + 1],",
        "fragments.b[j + 1], fragments.b[j],",
    ),
    Mutation(T, "A not transposed", "load_transposed(fragments.a", "load_matrices(fragments.a"),
    Mutation(
        T, "rows of A's matrices swapped", "i * 2 + lane / 8 % 2;", "i * 2 + 1 - lane / 8 % 2;"
    ),
    Mutation(
        T, "B transposed too often", "load_matrices(fragments.b", "load_transposed(fragments.b"
    ),
    Mutation(W, "k's of a register", "lane % 4 + e / 2 * 4;", "lane % 4 + e % 2 * 4;"),
    Mutation(W, "columns by the wrong lanes", "j * 8 + lane / 4;", "j * 8 + lane % 8;"),
    Mutation(B, "rows of C by the wrong lanes", "WM + lane / 4;", "WM + lane % 8;"),
    Mutation(B, "columns of C by the wrong lanes", "lane % 4 * 2;", "lane % 4;"),
    Mutation(
        B, "one lane stays away", "for (int j = 0; j < TILES_N; ++j) {\n            mma", LESS
    ),
    # K tiles.
    Mutation(B, "one matrix row too far", "place_a(m, step * 2", "place_a(m + 1, step * 2"),
    Mutation(
        B,
        "a barrier left out",
        "wait_for_copies();\n                __syncthreads();",
        "wait_for_copies();",
    ),
    Mutation(
        B,
        "no wait for the copies",
        "if (step == STEPS - 1) {\n                wait_for_copies();",
        "if (step == STEPS - 1) {",
    ),
    Mutation(
        B,
        "the stage that is read is overwritten",
        "int write = (STAGES - 1) * STAGE;",
        "int write = 0;",
    ),
    Mutation(
        B, "too many pending", "MAX_PENDING_COPIES = STAGES - 2", "MAX_PENDING_COPIES = STAGES - 1"
    ),
    Mutation(B, "fragments take no turns", "fragments[(step + 1) % 2]", "fragments[step % 2]"),
    Mutation(B, "edge of K", "K - k0 - copy_ka", "K - k0"),
    Mutation(B, "edge of M", "m_left = tile.rows - row_a;", "m_left = tile.rows;"),
    Mutation(E, "edge of N", "n_left = tile.columns - column_b;", "n_left = tile.columns;"),
    Mutation(E, "one element too many", "i < num_valid ?", "i <= num_valid ?"),
    Mutation(
        E,
        "vectors of rows that are not aligned",
        "Element elements[VECTOR];",
        "Element elements[VECTOR];\n"
        "if (num_valid == VECTOR) return *reinterpret_cast<const uint4*>(from);",
    ),
    Mutation(
        R,
        "stored while others read",
        "// Store, once all warps have left the k tile before.\n        __syncthreads();",
        "",
    ),
    Mutation(R, "read before it is stored", "vectors_b);\n        __syncthreads();", "vectors_b);"),
    # C.
    Mutation(
        B,
        "cut off instead of rounded",
        "low = bf16_from_float(epilogue(accum[0], old_c[0], m, n, with));",
        "low = __float_as_uint(epilogue(accum[0], old_c[0], m, n, with)) >> 16;",
    ),
    Mutation(
        B,
        "neighbours swapped",
        "low | high << 16",
        "high | low << 16",
    ),
    Mutation(B, "C read at beta = 0", "if (with.reads_c()) {", "if (true) {"),
    Mutation(B, "pairs across the edge", "if (n + 1 < tile.columns)", "if (n < tile.columns)"),
    # FP32 made of less.
    Mutation(X, "small products left out", "mma_tf32_k8(accum[i][j], low_a[i], high_b);", ""),
    Mutation(
        X,
        "high is not rounded off",
        "low = __float_as_uint(__uint_as_float(number) - __uint_as_float(high));",
        "low = 0;",
    ),
    Mutation(
        X,
        "a chunk is lost",
        "accum[i][j][e] += partial[i][j][e];",
        "accum[i][j][e] = partial[i][j][e];",
    ),
    Mutation(X, "a chunk counts twice", "partial[i][j][e] = 0.0f;", ""),
    Mutation(X, "the last chunk is left out", "    promote(partial, accum);\n}", "}"),
    Mutation(Y, "parts of A and B that do not go together", "parts_b[order - p]", "parts_b[p]"),
    Mutation(
        Y, "a step is lost", "accum[i][j][e] += fresh[i][e];", "accum[i][j][e] = fresh[i][e];"
    ),
    Mutation(Y, "only the largest products", "LAST_ORDER = 2", "LAST_ORDER = 0"),
    Mutation(
        Y,
        "pairs of other k's in B",
        "split(numbers[0], numbers[1], &parts_b",
        "split(numbers[1], numbers[0], &parts_b",
    ),
    Mutation(
        Y, "halves of a step swapped", "fragments.halves[e].b[j]", "fragments.halves[1 - e].b[j]"
    ),
)
