"""Bugs to plant in emitted kernels: each is one text edit that a slip of the pen could make."""

from dataclasses import dataclass

from autogemm.model.config import Config, Value
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, launch_plan, load_family


@dataclass(frozen=True)
class Base:
    """A config of a family, and problems that need the same text.

    A parameter that is not named has the first of its values. Blocks that stay are few, so that
    each walks over several tiles.
    """

    values: dict[str, Value]
    problems: tuple[Problem, ...]
    family_name: str = "sgemm_simt"

    @property
    def family(self) -> Family:
        return load_family(self.family_name)

    @property
    def config(self) -> Config:
        names = {parameter.name: parameter.values[0] for parameter in self.family.parameters}
        return Config.of(self.family_name, names | self.values)

    def plan(self, problem: Problem) -> LaunchPlan:
        return launch_plan(self.family, self.config, problem, few_blocks=True)


@dataclass(frozen=True)
class Mutation:
    """``old`` becomes ``new`` everywhere (or once) in the text of the base, which then ``hangs``
    or not.
    """

    base: str
    name: str
    old: str
    new: str
    once: bool = False
    hangs: bool = False

    def apply(self, source: KernelSource) -> KernelSource:
        """The mutant. Fails where the template no longer has the text to edit."""
        assert self.old in source.text, f"the emitted kernel no longer has {self.old!r}"
        text = source.text.replace(self.old, self.new, 1 if self.once else -1)
        return KernelSource(
            source.family, source.template_sha256, source.config, source.layout, text
        )


TILE: dict[str, Value] = {
    **{"BM": 32, "BN": 64, "BK": 16, "WM": 16, "WN": 32, "TM": 4, "TN": 4, "GROUP_M": 8},
    **{"PAD_A": 4, "PAD_B": 0, "MIN_BLOCKS": 1, "FMA_ORDER": "snake", "LANE_MAP": "quads"},
}


def ragged(layout: Layout, multiple: int) -> tuple[Problem, ...]:
    """Edges everywhere, rows padded to a multiple: without C's old value, and with it."""
    packed = Problem(67, 131, 75, layout)

    def padded(columns: int) -> int:
        return (columns // multiple + 1) * multiple

    strides = {
        "lda": padded(packed.a_shape[1]),
        "ldb": padded(packed.b_shape[1]),
        "ldc": padded(packed.n),
    }
    return (
        Problem(67, 131, 75, layout, **strides),
        Problem(67, 131, 75, layout, **strides, alpha=0.5, beta=-1.5),
    )


BASES: dict[str, Base] = {
    "pipeline": Base(
        TILE | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4}, ragged(Layout.NN, 4)
    ),
    "one fragment": Base(
        TILE | {"STAGES": 4, "REG_STAGES": 1, "VEC_LOAD": 2, "VEC_STORE": 2, "PAD_A": 0},
        ragged(Layout.TN, 2),
    ),
    "double buffer": Base(
        TILE | {"STAGES": 2, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "PAD_B": 4},
        ragged(Layout.NT, 4),
    ),
    "sliced": Base(
        TILE | {"STAGES": 3, "REG_STAGES": 1, "SLICE_K": 2, "VEC_LOAD": 4, "VEC_STORE": 4},
        ragged(Layout.NN, 4),
    ),
    "separate slices": Base(
        TILE
        | {"BM": 32, "BN": 32, "WN": 32, "BK": 8, "SLICE_K": 2, "SLICES": "separate"}
        | {"STAGES": 2, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "POINTERS": "held"},
        ragged(Layout.NN, 4),
    ),
    "lone warps": Base(
        TILE
        | {
            "BM": 16,
            "BN": 32,
            "WN": 32,
            "TM": 4,
            "TN": 4,
            "BK": 8,
            "SLICE_K": 4,
            "SLICES": "separate",
        }
        | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "POINTERS": "held"},
        # One problem with a k_tile for one of the slices.
        (*ragged(Layout.NN, 4), Problem(33, 65, 7, lda=8, ldb=68, ldc=68)),
    ),
    "single buffer": Base(
        TILE | {"STAGES": 1, "REG_STAGES": 1, "VEC_LOAD": 1, "VEC_STORE": 1, "GROUP_M": 1},
        ragged(Layout.NN, 1),
    ),
}

P, F, D, K, A, W, S = BASES
APART_BARRIER = (
    "if (k == BK - 1) {\n                named_barrier_sync(1 + place.slice, SLICE_THREADS);"
)
BARRIER_AFTER_WAIT = "wait_for_copies();\n        __syncthreads();"

MUTATIONS: tuple[Mutation, ...] = (
    # Barriers and waits.
    Mutation(S, "no barrier before computing", "__syncthreads();", "", once=True),
    Mutation(S, "no barrier after computing", "accum);\n        __syncthreads();", "accum);"),
    Mutation(S, "barrier for some threads", "__syncthreads();", "if (m_left > 0) __syncthreads();"),
    Mutation(S, "warp barrier instead", "__syncthreads();", "__syncwarp();"),
    Mutation(
        D,
        "no barrier in the loop",
        "if (k == BK - 1) {\n                __syncthreads();",
        "if (k == BK - 1) {",
    ),
    Mutation(
        D,
        "no barrier at the start",
        "    __syncthreads();\n    float frag_a[2]",
        "    float frag_a[2]",
    ),
    Mutation(D, "stage not switched", "read = STAGE - read;", ""),
    Mutation(D, "stage overlaps", "read = STAGE - read;", "read = STAGE - 1 - read;"),
    Mutation(A, "stage not switched", "in_register(fragments_a + to_other_stage)", "fragments_a"),
    Mutation(A, "stored to the stage that is read", "copy_to_a + STAGE)", "copy_to_a)"),
    Mutation(A, "stages switched once", "to_other_stage = -to_other_stage;", ""),
    Mutation(A, "stage overlaps", "int to_other_stage = STAGE;", "int to_other_stage = STAGE - 4;"),
    Mutation(F, "no wait", "wait_for_copies();\n", ""),
    Mutation(F, "no barrier after the wait", BARRIER_AFTER_WAIT, "wait_for_copies();"),
    Mutation(F, "one group too many in flight", "STAGES - 2;", "STAGES - 1;"),
    Mutation(F, "loop's groups not committed", "}\n        commit_copies();", "}"),
    Mutation(F, "first groups not committed", "}\n        commit_copies();", "}", once=True),
    Mutation(F, "read and write the same stage", "int read = 0;", "int read = STAGE;"),
    Mutation(
        F,
        "wraps one stage too late",
        "read = read == (STAGES - 1) * STAGE",
        "read = read == STAGES * STAGE",
    ),
    Mutation(
        F,
        "copies one k_tile too few",
        "k_tile + STAGES - 1 < num_k_tiles",
        "k_tile + STAGES < num_k_tiles",
    ),
    Mutation(
        P,
        "no wait in the loop",
        "wait_for_copies();\n                __syncthreads();",
        "__syncthreads();",
    ),
    Mutation(
        P,
        "no barrier in the loop",
        "wait_for_copies();\n                __syncthreads();",
        "wait_for_copies();",
    ),
    Mutation(P, "barrier one k too early", "if (k == BK - 1) {", "if (k == BK - 2) {"),
    Mutation(P, "copies before the barrier", "if (k == 0) {", "if (k == BK - 1) {"),
    Mutation(P, "fragments of one register stage", "frag_a[(k + 1) % 2]", "frag_a[k % 2]"),
    Mutation(
        K,
        "no barrier before handing over",
        "% SLICE_THREADS;\n    __syncthreads();",
        "% SLICE_THREADS;",
    ),
    Mutation(
        K,
        "no barrier after handing over",
        "    }\n    __syncthreads();\n    #pragma unroll 3",
        "    }\n    #pragma unroll 3",
    ),
    Mutation(K, "slices store what others store", "first += SLICE_K * VEC_C", "first += VEC_C"),
    Mutation(
        K, "all slices multiply the same part", "place.slice * DEPTH * STRIDE_A", "0 * STRIDE_A"
    ),
    Mutation(K, "a slice left out", "slice < SLICE_K;", "slice < SLICE_K - 1;"),
    Mutation(K, "a slice too many", "slice < SLICE_K;", "slice <= SLICE_K;"),
    Mutation(
        K, "handed over to the wrong place", "(place.slice * NUM_ACCUM + i)", "(place.slice + i)"
    ),
    # Slices with k_tiles and barriers of their own.
    Mutation(A, "no barrier in the loop", APART_BARRIER, "if (k == BK - 1) {"),
    Mutation(
        A, "slices at one barrier", "named_barrier_sync(1 + place.slice", "named_barrier_sync(1"
    ),
    Mutation(A, "k_tiles of slices overlap", "place.slice * 2 * STAGE", "place.slice * STAGE"),
    Mutation(A, "all slices the same k", "all_k_tiles * place.slice", "all_k_tiles * 0"),
    Mutation(
        A, "a k_tile left out", "(place.slice + 1) / SLICE_K", "(place.slice + 1) / SLICE_K - 1"
    ),
    Mutation(W, "an empty slice reads", "if (k_extent <= 0)", "if (false)"),
    Mutation(W, "no barrier of the warp", "__syncwarp();", ""),
    # Edges.
    Mutation(P, "no guard of K in A", "k < k_left ? 1 : 0", "true ? 1 : 0"),
    Mutation(P, "K guard off by one", "k < k_left", "k <= k_left"),
    Mutation(P, "M guard off by one", "m < m_left", "m <= m_left"),
    Mutation(
        P, "N guard forgets the vector", "min(max(n_left, 0), VEC_B)", "(n_left > 0 ? VEC_B : 0)"
    ),
    Mutation(P, "valid bytes in floats", "4 * num_valid", "num_valid"),
    Mutation(P, "valid bytes negative", "max(n_left, 0)", "n_left"),
    Mutation(P, "vector store over the edge", "if (n + VEC_C <= ", "if (n < "),
    Mutation(P, "rows beyond M stored", "return m < tile.rows", "return m <= tile.rows"),
    Mutation(D, "edge elements left out", "if (n + e < ", "if (n + e + 1 < "),
    Mutation(D, "zero fill left out", "source[i] : 0.0f;", "source[i] : regs[i];"),
    Mutation(S, "K rounded down", "(k_extent + BK - 1) / BK", "k_extent / BK"),
    Mutation(S, "no guard of K", "k_left - k : 0", "VEC_A : 0"),
    Mutation(S, "N rounded down", "(N + BN - 1) / BN", "N / BN"),
    # Addresses.
    Mutation(P, "A not advanced", "A += advance_a;", ""),
    Mutation(P, "B advanced by the columns", "(long long)BK * ldb", "(long long)BK * (ldb - 1)"),
    Mutation(P, "C addressed by N", "(long long)m0 * ldc", "(long long)m0 * N"),
    Mutation(
        P,
        "leading dimensions swapped",
        "copy_k_tile_a(copy_to_a + write, A, lda",
        "copy_k_tile_a(copy_to_a + write, A, ldb",
    ),
    Mutation(P, "rows of a k_tile overlap", "STRIDE_A = BM + 4", "STRIDE_A = BM - 4"),
    Mutation(P, "k_tile of B begins too early", "shared + K_TILE_A + copy_kb", "shared + copy_kb"),
    Mutation(P, "k_tile too small", "K_TILE_B = BK * STRIDE_B", "K_TILE_B = (BK - 1) * STRIDE_B"),
    Mutation(P, "lane map sends two lanes to one place", "+ lane / 2 % 2;", "+ lane % 2;"),
    Mutation(P, "warps swapped", "warp / WARPS_N * WM", "warp % WARPS_N * WM"),
    Mutation(
        P, "group of blocks not cut at the edge", "min(GROUP_M, blocks_m - first_m)", "GROUP_M"
    ),
    Mutation(D, "fragment rows not interleaved", "i / VEC_M * VEC_M * LANES_M", "i * LANES_M"),
    Mutation(D, "vector at an odd address", "thread % SIDE_A) * VEC_A", "thread % SIDE_A)"),
    Mutation(D, "half of the rows twice", "SIDE_A % ROWS_A", "SIDE_A % (ROWS_A / 2)"),
    Mutation(S, "walks past a local array", "regs += VEC_A;", "regs += 2 * VEC_A;", once=True),
    # Values.
    Mutation(S, "accumulators not cleared", "float accum[TM][TN] = {};", "float accum[TM][TN];"),
    Mutation(S, "alpha forgotten", "fmaf(with.alpha, accum", "fmaf(1.0f, accum"),
    Mutation(S, "beta forgotten", "with.beta * old_c", "old_c"),
    Mutation(S, "C read at beta = 0", "if (with.beta != 0.0f) {", "if (true) {"),
    Mutation(
        S,
        "half precision on the way",
        "? with.alpha * accum :",
        "? with.alpha * __int_as_float(__float_as_int(accum) & ~0x1fff) :",
    ),
    Mutation(P, "snake turns into a wrong column", "TN - 1 - step", "TN - 2 - step + step / 3 * 3"),
)
