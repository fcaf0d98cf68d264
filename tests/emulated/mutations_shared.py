"""Bugs to plant where several blocks share a tile of C: SPLIT_K and STREAM_BLOCKS of sgemm_simt."""

from mutations import TILE, Base, Mutation, ragged

from autogemm.problem import Layout

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


def both(name: str, old: str, new: str) -> tuple[Mutation, Mutation]:
    """The same slip in both ways of sharing."""
    return Mutation(K, name, old, new), Mutation(S, name, old, new)


SHARED_MUTATIONS: tuple[Mutation, ...] = (
    # Handing over.
    *both("arrival orders nothing", ARRIVE, "atomicAdd(arrived, 1u)"),
    *both(
        "arrived before all have stored",
        "    __syncthreads();\n    bool is_last",
        "    bool is_last",
    ),
    *both("arrival is no atomic", ARRIVE, "(*arrived)++"),
    *both("nobody waits to be the last", LEAVE, "    if (part > 0) {"),
    *both("all add up", LEAVE, "    if (false) {"),
    *both("one arrival too few", "(unsigned)num_parts - 1", "(unsigned)num_parts - 2"),
    *both("one arrival too many", "(unsigned)num_parts - 1", "(unsigned)num_parts"),
    *both(
        "only the thread that counted adds up",
        LEAVE,
        "    if (!is_last) {",
    ),
    # Counters.
    *both("counter not set back", RESET, ""),
    *both("counter set back to one", RESET, RESET.replace("0;", "1;")),
    *both(
        "every block sets the counter back",
        LEAVE,
        f"    *arrived = 0;\n{LEAVE}",
    ),
    *both("counters overlap the parts", "(num_tiles + 3) / 4 * 4", "(num_tiles + 3) / 8 * 4"),
    Mutation(K, "one counter for all tiles", "arrived + index", "arrived"),
    Mutation(S, "one counter for all tiles", "arrived + shared_tile", "arrived"),
    # Parts.
    *both("first part left out", "for (int from = 0; from", "for (int from = 1; from"),
    *both("last part left out", "from < num_parts", "from < num_parts - 1"),
    *both(
        "parts begin at the wrong place",
        "(long long)from * PART + first",
        "(long long)from * STEP + first",
    ),
    *both("alpha in each part", "(own, BN, 1.0f, 0.0f", "(own, BN, alpha, 0.0f"),
    *both("C in each part", "(own, BN, 1.0f, 0.0f", "(own, BN, 1.0f, beta"),
    *both("rows beyond M stored", "if (m >= tile.rows)", "if (m > tile.rows)"),
    *both("part stored like the edge of C", "    own.rows = BM;\n", ""),
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
