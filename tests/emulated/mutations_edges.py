"""Bugs to plant where operands need care at their edges: EDGES and PACK of sgemm_simt."""

from mutations import TILE, Base, Mutation, ragged

from autogemm.model.config import Value
from autogemm.model.problem import Layout, Problem

INWARD: dict[str, Value] = TILE | {"VEC_LOAD": 1, "VEC_STORE": 1, "EDGES": "inward"}

EDGE_BASES: dict[str, Base] = {
    # One problem less than a k_tile deep.
    "inward": Base(
        INWARD | {"STAGES": 2, "REG_STAGES": 2}, (*ragged(Layout.NN, 1), Problem(33, 65, 9))
    ),
    "inward, one fragment": Base(INWARD | {"STAGES": 2, "REG_STAGES": 1}, ragged(Layout.TN, 1)),
    "inward pipeline": Base(INWARD | {"STAGES": 3, "REG_STAGES": 1}, ragged(Layout.TN, 1)),
    "inward split K": Base(
        INWARD | {"STAGES": 3, "REG_STAGES": 2, "SPLIT_K": 3}, ragged(Layout.NT, 1)
    ),
    "packed": Base(
        TILE | {"PAD_A": 0, "VEC_LOAD": 4, "VEC_STORE": 1, "STAGES": 3, "REG_STAGES": 2, "PACK": 1},
        ragged(Layout.NN, 1),
    ),
    "packed stream K": Base(
        TILE
        | {"PAD_A": 0, "VEC_LOAD": 4, "VEC_STORE": 1, "STAGES": 2, "STREAM_BLOCKS": 38, "PACK": 1},
        ragged(Layout.NT, 1),
    ),
    # One operand packed: tiles move along the edge of the other alone.
    "packed B, inward": Base(
        TILE
        | {"PAD_A": 0, "VEC_LOAD": 4, "VEC_STORE": 1, "STAGES": 2, "REG_STAGES": 2}
        | {"PACK": 1, "EDGES": "inward_m"},
        (Problem(67, 131, 75, Layout.TT), Problem(33, 65, 9, Layout.TT)),
    ),
    "packed A, inward": Base(
        TILE
        | {"PAD_A": 0, "VEC_LOAD": 4, "VEC_STORE": 1, "STAGES": 2, "REG_STAGES": 2}
        | {"PACK": 1, "EDGES": "inward_n", "STREAM_BLOCKS": 38},
        (Problem(67, 131, 75, Layout.NN), Problem(33, 65, 9, Layout.NN)),
    ),
    "inward stream K": Base(
        INWARD | {"STAGES": 2, "REG_STAGES": 2, "STREAM_BLOCKS": 38}, ragged(Layout.NN, 1)
    ),
    "inward stream K, sliced": Base(
        INWARD
        | {"BM": 32, "BN": 48, "WM": 32, "WN": 48, "TM": 4, "TN": 12, "STAGES": 2, "REG_STAGES": 2}
        | {"SLICE_K": 2, "STREAM_BLOCKS": 38},
        ragged(Layout.NN, 1),
    ),
}

EDGE_MUTATIONS: tuple[Mutation, ...] = (
    # Lanes that exchange what they have before single floats are stored.
    Mutation("inward", "no exchange", "    turn(values, own);\n", ""),
    Mutation("inward", "exchanged with another lane", "NEXT_ROW = 2;", "NEXT_ROW = 1;"),
    Mutation("inward", "the row after is the next one", "AFTER = 2 * LANES_N", "AFTER = LANES_N"),
    Mutation("inward", "only half of the exchange", "bit < TURNED; bit *= 2", "bit < 2; bit *= 2"),
    Mutation("inward", "keeps what it gave", "gives_first ? taken : values[e]", "values[e]"),
    Mutation("inward", "rows in the other order", "(e % TURNED - own)", "(own - e % TURNED)"),
    Mutation("inward", "all to the same column", "TURNED * TURNED + own", "TURNED * TURNED"),
    Mutation(
        "inward", "edge asked for the lane's own row", "has_row(tile, row)", "has_row(tile, m)"
    ),
    # One operand packed.
    Mutation("packed B, inward", "B read as it lies", "    B = workspace;\n", ""),
    Mutation("packed B, inward", "rows of B as they were", "    ldb = blocks_n * BN;\n", ""),
    Mutation(
        "packed B, inward",
        "columns moved though B has whole tiles",
        "in_group / rows * BN",
        "min(in_group / rows * BN, N - BN)",
    ),
    Mutation("packed B, inward", "rows not moved", "min(own_m0, M - BM)", "own_m0"),
    Mutation("packed A, inward", "A read as it lies", "    A = workspace;\n", ""),
    Mutation(
        "packed A, inward",
        "partial sums over the packed A",
        "    workspace += packed_k * lda;\n",
        "",
    ),
    Mutation("packed A, inward", "columns not moved", "min(own_n0, N - BN)", "own_n0"),
    # Partial sums that lie as the threads have them.
    Mutation(
        "inward stream K", "threads' floats overlap", "to[(i * TN + j) * THREADS]", "to[i * TN + j]"
    ),
    Mutation(
        "inward stream K",
        "a neighbour's floats",
        "partials += (int)threadIdx.x;",
        "partials += threadIdx.x ^ 1;",
    ),
    Mutation(
        "inward stream K",
        "added up in another's place",
        "(first + vector * VEC_N) / TN",
        "first / TN",
    ),
    Mutation(
        "inward stream K, sliced",
        "floats of the first vectors again",
        "__ldcg(source + (first + i)",
        "__ldcg(source + i",
    ),
    Mutation(
        "inward stream K, sliced",
        "slices add up the same floats",
        "first = place.slice * FLOATS; first",
        "first = 0; first",
    ),
    Mutation(
        "inward stream K, sliced",
        "floats that no slice adds up",
        "first += SLICE_K * FLOATS",
        "first += 2 * SLICE_K * FLOATS",
    ),
    Mutation(
        "inward stream K, sliced",
        "slices leave rows of others",
        "if (place.slice != i / ROWS_PER_SLICE)",
        "if (false)",
    ),
    Mutation("inward", "rows not moved", "min(own_m0, M - BM)", "own_m0"),
    Mutation("inward", "columns not moved", "min(own_n0, N - BN)", "own_n0"),
    Mutation("inward", "moved too far", "M - BM)", "M - BM - 1)"),
    Mutation("inward", "rows stored by both tiles", "return m >= tile.first_row", "return m >= 0"),
    Mutation("inward", "columns stored by both", "n >= tile.first_column", "n >= 0"),
    Mutation("inward", "a column stored by none", "n >= tile.first", "n > tile.first"),
    Mutation("inward", "first k_tile whole", "first_depth - copy_", "BK - copy_"),
    Mutation(
        "inward", "first k_tile one short", "first_depth - copy_kb", "first_depth - 1 - copy_kb"
    ),
    Mutation("inward", "second k_tile too far on", "A += first_depth;", "A += BK;"),
    Mutation("inward", "second k_tile loaded behind the last", "if (num_k_tiles > 1) {", "{"),
    Mutation("inward, one fragment", "second k_tile too far on", "k_tile > 0 ?", "k_tile >= 0 ?"),
    Mutation(
        "inward pipeline", "second k_tile too far on", "A += (long long)first_depth", "A += BK"
    ),
    Mutation("inward split K", "ranges overlap", "* BK - lacking;", "* BK;", once=True),
    Mutation(
        "inward split K", "columns added up by both", "n >= tile.first_", "n >= 0 * tile.first_"
    ),
    Mutation("packed", "edges not zero", "? matrix[", "|| true ? matrix["),
    Mutation(
        "packed", "pads left as they were", "row + i * PACK_ROWS < rows &&", "row + i < 60 &&"
    ),
    Mutation(
        "packed",
        "square read before it is there",
        "    __syncthreads();\n    #pragma",
        "    #pragma",
    ),
    Mutation("packed", "B over A", "workspace + (long long)packed_k * packed_m", "workspace"),
    Mutation("packed stream K", "counters over B", "packed_k * (lda + ldb)", "packed_k * lda"),
    Mutation("inward stream K", "a range begins too far on", "first * BK - lacking", "first * BK"),
    Mutation("inward stream K", "first range begins before A", "max(0, first", "max(-BK, first"),
)
