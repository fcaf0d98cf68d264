"""Bugs to plant where several blocks share a tile of C: SPLIT_K and STREAM_BLOCKS of sgemm_simt."""

from mutations import TILE, Base, Mutation, ragged

from autogemm.model.problem import Layout

PIPELINE = TILE | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4}
SHARED_BASES: dict[str, Base] = {
    "split K": Base(PIPELINE | {"SPLIT_K": 3}, ragged(Layout.NN, 4)),
    "stream K": Base(PIPELINE | {"STREAM_BLOCKS": 38}, ragged(Layout.NN, 4)),
    # Rows of twelve vectors, copied by 64 threads in three pieces; two slices of each slab.
    "stream K, sliced, in pieces": Base(
        PIPELINE
        | {"BM": 32, "BN": 48, "WM": 32, "WN": 48, "TM": 4, "TN": 12, "PAD_A": 0}
        | {"SLICE_K": 2, "STREAM_BLOCKS": 38},
        ragged(Layout.TN, 4),
    ),
}
K, S, P = SHARED_BASES

ARRIVE, LEAVE = "atomic_add_acq_rel(arrived, 1)", "    if (!__syncthreads_or(is_last)) {"
RESET = "        *arrived = 0;\n"


# Of SPLIT_K, whose blocks wait for each other.
SPLIT_ARRIVE = "atomic_add_acq_rel(counter, 1)"
SPLIT_LEAVE = "atomicCAS(counter, seen, (seen + DEPARTED) | LEFT) == seen"
SPLIT_RESET = "atomicExch(counter, 0);"


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
    Mutation(S, "nobody waits to be the last", LEAVE, "    if (part > 0) {"),
    Mutation(S, "all add up", LEAVE, "    if (false) {"),
    Mutation(S, "one arrival too few", "(unsigned)num_parts - 1", "(unsigned)num_parts - 2"),
    Mutation(S, "one arrival too many", "(unsigned)num_parts - 1", "(unsigned)num_parts"),
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
    *both("counters overlap the parts", "(num_tiles + 3) / 4 * 4", "(num_tiles + 3) / 8 * 4"),
    Mutation(K, "one counter for all tiles", "arrived + index", "arrived"),
    Mutation(S, "one counter for all tiles", "arrived + shared_tile", "arrived"),
    # Parts.
    Mutation(S, "first part left out", "for (int from = 0; from", "for (int from = 1; from"),
    Mutation(S, "last part left out", "from < num_parts", "from < num_parts - 1"),
    Mutation(
        S,
        "parts begin at the wrong place",
        "(long long)from * PART + first",
        "(long long)from * STEP + first",
    ),
    *both("alpha in each part", "(own, BN, 1.0f, 0.0f", "(own, BN, alpha, 0.0f"),
    *both("C in each part", "(own, BN, 1.0f, 0.0f", "(own, BN, 1.0f, beta"),
    Mutation(K, "rows beyond M stored", "|| m >= tile.rows", "|| m > tile.rows"),
    Mutation(S, "rows beyond M stored", "if (m >= tile.rows)", "if (m > tile.rows)"),
    *both("part stored like the edge of C", "    own.rows = BM;\n", ""),
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
        "    __syncthreads();\n    constexpr int ALL_FOURS",
        "    constexpr int ALL_FOURS",
    ),
    Mutation(K, "one arrival too few", "< (unsigned)num_parts", "< (unsigned)num_parts - 1"),
    Mutation(K, "one arrival too many", "< (unsigned)num_parts", "< (unsigned)num_parts + 1"),
    Mutation(K, "left without a word", "(seen + DEPARTED) | LEFT", "seen + DEPARTED"),
    Mutation(K, "left though a part arrived", SPLIT_LEAVE, f"({SPLIT_LEAVE} || true)"),
    Mutation(K, "all that waited add up all", "is_last ? EVERYTHING : NOTHING", "EVERYTHING"),
    Mutation(K, "nobody adds up all", "is_last ? EVERYTHING : NOTHING", "NOTHING"),
    Mutation(K, "shares though one left", "if (!(seen & LEFT))", "if (true)"),
    Mutation(K, "counter not set back", SPLIT_RESET, ""),
    Mutation(K, "counter set back to one", SPLIT_RESET, SPLIT_RESET.replace("0)", "1)")),
    Mutation(K, "counter set back by the first", "(unsigned)num_parts - 1;", "0u;"),
    Mutation(K, "first part left out", "for (int part = 0; part", "for (int part = 1; part"),
    Mutation(K, "last part left out", "part + p < num_parts", "part + p < num_parts - 1"),
    Mutation(K, "parts begin at the wrong place", "(part + p) * PART", "(part + p) * THREADS"),
    Mutation(K, "shares overlap", "ALL_FOURS * part / num_parts", "ALL_FOURS * part / PART"),
    Mutation(
        K,
        "a four of a share left out",
        "ALL_FOURS * (part + 1) / num_parts",
        "ALL_FOURS * (part + 1) / num_parts - 1",
    ),
    Mutation(K, "parts of two tiles overlap", "index * SPLIT_K * PART", "index * PART"),
    Mutation(
        K, "a slab left out", "(part + 1) / num_parts) * BK", "(part + 1) / num_parts - 1) * BK"
    ),
    Mutation(
        K, "a slab twice", "num_slabs * part / num_parts", "num_slabs * part / (num_parts + 1)"
    ),
    Mutation(S, "parts of two tiles overlap", "(owner + shared_tile) * PART", "owner * PART"),
    Mutation(
        S, "range of slabs begins too late", "min(sharer, sharers)", "min(sharer + 1, sharers)"
    ),
    Mutation(S, "one part fewer expected", "last_owner - owner + 1", "last_owner - owner"),
    Mutation(P, "slices not added up", "        add_slices(shared, sums);\n", ""),
    Mutation(P, "slices store rows of others", "if (place.slice != i / SHARE)", "if (false)"),
    Mutation(P, "two pieces of three", "n += LANES_B * VEC_B", "n += 2 * LANES_B * VEC_B"),
    Mutation(P, "each piece to the same place", "k * STRIDE_B + n,", "k * STRIDE_B,"),
    Mutation(P, "the first piece three times", "* ldb + n,", "* ldb,"),
    Mutation(P, "all pieces guarded as the first", "n_left - n, 0", "n_left, 0"),
)
