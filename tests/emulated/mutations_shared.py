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

ARRIVE, LOOK = "atomic_add_acq_rel(counter, 1)", "load_acquire(counter)"
LEAVE = "atomicCAS(counter, seen, (seen + DEPARTED) | LEFT) == seen"
RESET = "atomicExch(counter, 0);"


def both(name: str, old: str, new: str) -> tuple[Mutation, Mutation]:
    """The same slip in both ways of sharing."""
    return Mutation(K, name, old, new), Mutation(S, name, old, new)


SHARED_MUTATIONS: tuple[Mutation, ...] = (
    # Handing over.
    *both("arrival orders nothing", ARRIVE, "atomicAdd(counter, 1u)"),
    *both("arrival is no atomic", ARRIVE, "(*counter)++"),
    *both("arrival is not ahead of the look", f"seen = {ARRIVE} + 1", f"seen = {ARRIVE}"),
    *both("look orders nothing", LOOK, "*(volatile unsigned*)counter"),
    *both(
        "arrived before all have stored",
        "    __syncthreads();\n    Duty* const duty",
        "    Duty* const duty",
    ),
    *both(
        "duty read before it is known",
        "    __syncthreads();\n    if (*duty == NOTHING)",
        "    if (*duty == NOTHING)",
    ),
    *both("one arrival too few", "(unsigned)num_parts", "(unsigned)num_parts - 1"),
    *both("one arrival too many", "(unsigned)num_parts", "(unsigned)num_parts + 1"),
    # Waiting no longer.
    *both("left without a word", "(seen + DEPARTED) | LEFT", "seen + DEPARTED"),
    *both("left though a part arrived", LEAVE, f"({LEAVE} || true)"),
    *both("all that waited add up all", "is_last ? ALL : NOTHING", "ALL"),
    *both("nobody adds up all", "is_last ? ALL : NOTHING", "NOTHING"),
    Mutation(
        S, "all add up all", "const bool shares = *duty == SHARE;", "const bool shares = false;"
    ),
    # Counters.
    *both("counter not set back", RESET, ""),
    *both("counter set back to one", RESET, RESET.replace("0)", "1)")),
    *both("counter set back by the first", "num_waiting - 1;", "0;"),
    *both("counters overlap the parts", "(num_tiles + 3) / 4 * 4", "(num_tiles + 3) / 8 * 4"),
    Mutation(K, "one counter for all tiles", "counters + index", "counters"),
    Mutation(S, "one counter for all tiles", "counters + shared_tile", "counters"),
    # Parts and shares.
    *both("first part left out", "for (int part = 0; part", "for (int part = 1; part"),
    *both("last part left out", "part + p < num_parts", "part + p < num_parts - 1"),
    *both(
        "only as many parts as at once",
        "part < num_parts; part += PARTS",
        "part < PARTS; part += PARTS",
    ),
    *both("parts begin at the wrong place", "(part + p) * PART", "(part + p) * THREADS"),
    Mutation(
        S,
        "shares overlap",
        "ALL_FOURS * part / num_waiting",
        "ALL_FOURS * (part - 1) / num_waiting",
    ),
    Mutation(
        S, "a row of a share left out", "(part + 1) / num_waiting", "(part + 1) / num_waiting - 1"
    ),
    *both("alpha forgotten", "begin, end, alpha, beta", "begin, end, 1.0f, beta"),
    *both("C forgotten", "begin, end, alpha, beta", "begin, end, alpha, 0.0f"),
    *both("rows beyond M stored", "|| m >= tile.rows", "|| m > tile.rows"),
    *both("rows of a part overlap", "part + m * BN + n", "part + m * (BN - 4) + n"),
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
    Mutation(P, "all slices store", "if (place.slice > 0)", "if (place.slice > 1)"),
    Mutation(P, "two pieces of three", "n += LANES_B * VEC_B", "n += 2 * LANES_B * VEC_B"),
    Mutation(P, "each piece to the same place", "k * STRIDE_B + n,", "k * STRIDE_B,"),
    Mutation(P, "the first piece three times", "* ldb + n,", "* ldb,"),
    Mutation(P, "all pieces guarded as the first", "n_left - n, 0", "n_left, 0"),
)
