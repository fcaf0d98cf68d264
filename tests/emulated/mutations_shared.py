"""Bugs to plant where several blocks share a tile of C: SPLIT_K and STREAM_BLOCKS of sgemm_simt."""

from mutations import TILE, Base, Mutation, ragged

from autogemm.model.problem import Layout

PIPELINE = TILE | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4}
SHARED_BASES: dict[str, Base] = {
    "split K": Base(PIPELINE | {"SPLIT_K": 3}, ragged(Layout.NN, 4)),
    "stream K": Base(PIPELINE | {"STREAM_BLOCKS": 38}, ragged(Layout.NN, 4)),
    # Rows of twelve vectors, copied by 64 threads in three chunks; two slices of each k_tile.
    "stream K, sliced, in chunks": Base(
        PIPELINE
        | {"BM": 32, "BN": 48, "WM": 32, "WN": 48, "TM": 4, "TN": 12, "PAD_A": 0}
        | {"SLICE_K": 2, "STREAM_BLOCKS": 38},
        ragged(Layout.TN, 4),
    ),
}
K, S, P = SHARED_BASES

ARRIVE, LEAVE = "atomic_add_acq_rel(arrived, 1)", "    if (!__syncthreads_or(is_last)) {"
RESET = "        *arrived = 0;\n"


# Kernels with SPLIT_K, whose blocks wait for each other.
SPLIT_ARRIVE = "atomic_add_acq_rel(counter, 1)"
SPLIT_LEAVE = "atomicCAS(counter, seen, (seen + DEPARTED) | LEFT) == seen"
SPLIT_RESET = "atomicExch(counter, 0);"


STORE_PARTIAL = "    store_partial(partials + (long long)partial * PARTIAL, accum);\n"
STORE_BY_EPILOGUE = (
    "    Tile own = tile;\n    own.C = partials + (long long)partial * PARTIAL;\n"
    "    own.rows = BM;\n    own.columns = BN;\n    store_tile(own, BN, accum, with);\n"
)


def both(name: str, old: str, new: str) -> tuple[Mutation, Mutation]:
    """The same slip in both ways of sharing."""
    return Mutation(K, name, old, new), Mutation(S, name, old, new)


SHARED_MUTATIONS: tuple[Mutation, ...] = (
    # Handing over.
    Mutation(S, "arrival orders nothing", ARRIVE, "atomicAdd(arrived, 1u)"),
    Mutation(
        S,
        "arrived before all have stored",
        "    __syncthreads();\n    bool is_last",
        "    bool is_last",
    ),
    Mutation(S, "arrival is no atomic", ARRIVE, "(*arrived)++"),
    Mutation(S, "no block waits to be the last", LEAVE, "    if (partial > 0) {"),
    Mutation(S, "all add up", LEAVE, "    if (false) {"),
    Mutation(S, "one arrival too few", "(unsigned)num_partials - 1", "(unsigned)num_partials - 2"),
    Mutation(S, "one arrival too many", "(unsigned)num_partials - 1", "(unsigned)num_partials"),
    Mutation(
        S,
        "only the thread that counted adds up",
        LEAVE,
        "    if (!is_last) {",
    ),
    # Counters.
    Mutation(S, "counter not set back", RESET, ""),
    Mutation(S, "counter set back to one", RESET, RESET.replace("0;", "1;")),
    Mutation(
        S,
        "every block sets the counter back",
        LEAVE,
        f"    *arrived = 0;\n{LEAVE}",
    ),
    *both(
        "counters overlap the partial sums", "(num_tiles + 3) / 4 * 4", "(num_tiles + 3) / 8 * 4"
    ),
    Mutation(K, "one counter for all tiles", "arrived + index", "arrived"),
    Mutation(S, "one counter for all tiles", "arrived + stream_tile", "arrived"),
    # Partial sums.
    Mutation(S, "first partial sum left out", "for (int from = 0; from", "for (int from = 1; from"),
    Mutation(S, "last partial sum left out", "from < num_partials", "from < num_partials - 1"),
    Mutation(
        S,
        "partial sums begin at the wrong place",
        "(long long)from * PARTIAL + first",
        "(long long)from * STEP + first",
    ),
    Mutation(S, "the epilogue in each partial sum", STORE_PARTIAL, STORE_BY_EPILOGUE),
    *both(
        "rows of a partial sum overlap", "(to + (long long)m * BN", "(to + (long long)m * (BN - 4)"
    ),
    *both("rows beyond M stored", "return m < tile.rows", "return m <= tile.rows"),
    # Blocks that wait for each other, and share the adding up.
    Mutation(K, "arrival orders nothing", SPLIT_ARRIVE, "atomicAdd(counter, 1u)"),
    Mutation(K, "arrival is no atomic", SPLIT_ARRIVE, "(*counter)++"),
    Mutation(K, "its own arrival not seen", f"{SPLIT_ARRIVE} + 1", SPLIT_ARRIVE),
    Mutation(K, "look orders nothing", "load_acquire(counter)", "*(volatile unsigned*)counter"),
    Mutation(
        K,
        "arrived before all have stored",
        "    __syncthreads();\n    Duty* const duty",
        "    Duty* const duty",
    ),
    Mutation(
        K,
        "duty read before it is known",
        "    __syncthreads();\n    constexpr int ALL_VECTORS",
        "    constexpr int ALL_VECTORS",
    ),
    Mutation(K, "one arrival too few", "< (unsigned)num_partials", "< (unsigned)num_partials - 1"),
    Mutation(K, "one arrival too many", "< (unsigned)num_partials", "< (unsigned)num_partials + 1"),
    Mutation(K, "left without a word", "(seen + DEPARTED) | LEFT", "seen + DEPARTED"),
    Mutation(K, "left though a partial sum arrived", SPLIT_LEAVE, f"({SPLIT_LEAVE} || true)"),
    Mutation(K, "all that waited add up all", "is_last ? EVERYTHING : NOTHING", "EVERYTHING"),
    Mutation(K, "no block adds up all", "is_last ? EVERYTHING : NOTHING", "NOTHING"),
    Mutation(K, "shares though one left", "if (!(seen & LEFT))", "if (true)"),
    Mutation(K, "counter not set back", SPLIT_RESET, ""),
    Mutation(K, "counter set back to one", SPLIT_RESET, SPLIT_RESET.replace("0)", "1)")),
    Mutation(K, "counter set back by the first", "(unsigned)num_partials - 1;", "0u;"),
    Mutation(
        K,
        "first partial sum left out",
        "for (int partial = 0; partial",
        "for (int partial = 1; partial",
    ),
    Mutation(
        K,
        "last partial sum left out",
        "partial + p < num_partials",
        "partial + p < num_partials - 1",
    ),
    Mutation(
        K,
        "partial sums begin at the wrong place",
        "(partial + p) * PARTIAL",
        "(partial + p) * THREADS",
    ),
    Mutation(
        K,
        "ranges overlap",
        "ALL_VECTORS * partial / num_partials",
        "ALL_VECTORS * partial / PARTIAL",
    ),
    Mutation(
        K,
        "a vector of a range left out",
        "ALL_VECTORS * (partial + 1) / num_partials",
        "ALL_VECTORS * (partial + 1) / num_partials - 1",
    ),
    Mutation(
        K, "partial sums of two tiles overlap", "index * SPLIT_K * PARTIAL", "index * PARTIAL"
    ),
    Mutation(
        K,
        "a k_tile left out",
        "(partial + 1) / num_partials) * BK",
        "(partial + 1) / num_partials - 1) * BK",
    ),
    Mutation(
        K,
        "a k_tile twice",
        "num_k_tiles * partial / num_partials",
        "num_k_tiles * partial / (num_partials + 1)",
    ),
    Mutation(
        S, "partial sums of two tiles overlap", "(owner + stream_tile) * PARTIAL", "owner * PARTIAL"
    ),
    Mutation(
        S,
        "range of k_tiles begins too late",
        "min(stream_block, stream_blocks)",
        "min(stream_block + 1, stream_blocks)",
    ),
    Mutation(S, "one partial sum fewer expected", "last_owner - owner + 1", "last_owner - owner"),
    Mutation(P, "slices not added up", "        add_slices(shared, accum);\n", ""),
    Mutation(
        P, "slices store rows of others", "if (place.slice != i / ROWS_PER_SLICE)", "if (false)"
    ),
    Mutation(P, "two chunks of three", "n += LANES_B * VEC_B", "n += 2 * LANES_B * VEC_B"),
    Mutation(P, "each chunk to the same place", "k * STRIDE_B + n,", "k * STRIDE_B,"),
    Mutation(P, "the first chunk three times", "* ldb + n,", "* ldb,"),
    Mutation(P, "all chunks guarded as the first", "n_left - n, 0", "n_left, 0"),
)
