"""Bugs to plant in kernels that make all products of a batch; see mutations.py.

The problems are edge cases as `autogemm verify` makes them: what is caught here is caught there.
"""

from dataclasses import replace

from mutations import TILE as SIMT_TILE
from mutations import Base, Mutation
from packed_cases import BOTH, TILE

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.verify.edge_cases import BATCH_SHAPES, stacked

EDGES, WHOLE = BATCH_SHAPES


def gaps(problem: Problem) -> Problem:
    """Three products, with gaps of one, two and three rows."""
    return stacked(problem, 0)


SIMT = SIMT_TILE | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4}
SIMT_EDGES = EDGES.problem((32, 64, 16), Layout.NN, DType.F32)
UNALIGNED = EDGES.problem((32, 64, 16), Layout.NN, DType.F32, (0.5, -1.5))
WIDE = Problem(136, 136, 136, Layout.NT, DType.BF16)
SPLIT_BASE = SIMT | {"SPLIT_K": 2}

BATCH_BASES: dict[str, Base] = {
    "batch of one tile a block": Base(
        {"BM": 16, "BN": 16, "TN": 2},
        (gaps(Problem(19, 24, 9)), stacked(Problem(19, 24, 9), 1)),
        "naive",
    ),
    "batch split": Base(SPLIT_BASE, (gaps(SIMT_EDGES), stacked(UNALIGNED, 2))),
    "batch streamed": Base(SIMT | {"STREAM_BLOCKS": 132}, (gaps(SIMT_EDGES),)),
    "batch by TMA": Base(
        TILE | {"STAGES": 3, "STORE_C": "tma", "PACK": "none", "BLOCKS": 132},
        (gaps(WIDE), stacked(replace(WIDE, beta=0.5), 1)),
        "gemm_wgmma",
    ),
    "batch of one loading warp": Base(
        TILE | {"STORE_C": "tma", "PACK": "none", "BLOCKS": 0, "LOAD_WARPS": 1},
        (gaps(WIDE), stacked(replace(WIDE, beta=0.5), 1)),
        "gemm_wgmma",
    ),
    "batch packed": Base(
        TILE | BOTH | {"STAGES": 3},
        (gaps(Problem(67, 141, 74, Layout.NN, DType.BF16, lda=75, ldc=143)),),
        "gemm_wgmma",
    ),
}
ONE, SPLIT, STREAM, TMA, ONE_LOADS, PACKED = BATCH_BASES

BATCH_MUTATIONS: tuple[Mutation, ...] = (
    # The product's number ignored, of each matrix.
    Mutation(ONE, "A of the first product", "A += (long long)product *", "A += 0 *"),
    Mutation(ONE, "B of the first product", "B += (long long)product *", "B += 0 *"),
    Mutation(ONE, "C of the first product", "C += (long long)product *", "C += 0 *"),
    # The distance of another matrix, or without the gap; of a matrix that is shared.
    Mutation(ONE, "C as far apart as A", "batch_rows_c * ldc", "batch_rows_a * ldc"),
    Mutation(
        ONE, "a shared A taken as its own", "batch_rows_a * lda", "max(batch_rows_a, M) * lda"
    ),
    # The last tile of a product, past its rows: they are a gap, or the next product's.
    Mutation(ONE, "rows past a product's", "m >= M ||", "m > M ||"),
    # Schedules and workspaces of all products.
    Mutation(SPLIT, "the last product left out", "blocks_n * batch", "blocks_n * (batch - 1)"),
    Mutation(SPLIT, "a workspace for one product", "arrived + index", "arrived + in_product"),
    Mutation(
        SPLIT,
        "partial sums of all products in one place",
        "(long long)index * SPLIT_K",
        "(long long)in_product * SPLIT_K",
    ),
    Mutation(STREAM, "the last product left out", "blocks_n * batch", "blocks_n * (batch - 1)"),
    # Tensor maps, and the schedule of persistent blocks.
    Mutation(TMA, "A of the first product", "{&map_a, matrix_a}", "{&map_a, 0}"),
    Mutation(TMA, "B of A's product", "{&map_b, matrix_b}", "{&map_b, matrix_a}"),
    Mutation(TMA, "C of the first product", "{&map_c, place.product}", "{&map_c, 0}"),
    Mutation(TMA, "a shared A by the product", "batch_rows_a == 0 ? 0 : ", ""),
    Mutation(TMA, "the last product left out", "rows * columns * products", "rows * columns * 2"),
    Mutation(
        TMA, "old values of the first product", "(long long)place.product * batch_rows_c", "0"
    ),
    Mutation(ONE_LOADS, "a warp loads that there is not", "warp % 4 == 0 &&", "warp % 4 == 1 &&"),
    Mutation(ONE_LOADS, "C of the first product", "{&map_c, place.product}", "{&map_c, 0}"),
    Mutation(
        ONE_LOADS,
        "a stage is empty for four warps more",
        "pipeline.empty + stage, 4 * CONSUMERS",
        "pipeline.empty + stage, 4 * CONSUMERS + 1",
    ),
    # Packed operands.
    Mutation(PACKED, "B packed over A", "batch * packed_size(M, K)", "packed_size(M, K)"),
    Mutation(PACKED, "one B for all", "product * packed_size(K, N)", "0"),
)
