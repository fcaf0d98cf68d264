"""Bugs to plant in kernels of which groups divide K; see mutations_groups.py."""

from mutations import Base, Mutation
from mutations_groups import MMA

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.verify.edge_cases import DIVIDED_SHAPES, grouped

EDGES, WHOLE, MASKED = DIVIDED_SHAPES
TILE_MMA = (32, 32, 32)


def divided(number: int, beta: float = 0.0, masked: bool = False) -> Problem:
    shape = MASKED if masked else WHOLE if number % 2 else EDGES
    problem = shape.problem(TILE_MMA, Layout.TN, DType.BF16, (0.5, beta))
    return grouped(problem, number, TILE_MMA, masked)


DIVIDED_BASES: dict[str, Base] = {
    "groups of K by mma": Base(MMA, (divided(0, -1.5), divided(1), divided(2)), "gemm_mma"),
    "groups of K, two fragments": Base(
        MMA | {"REG_STAGES": 2, "BK": 64}, (divided(0), divided(3, 1.0)), "gemm_mma"
    ),
    "masked groups of K": Base(
        MMA, (divided(0, masked=True), divided(2, 0.5, masked=True)), "gemm_mma"
    ),
}
PLAIN, DEEP, BY_COUNTS = DIVIDED_BASES

DIVIDED_MUTATIONS: tuple[Mutation, ...] = (
    # Rows of other groups.
    Mutation(PLAIN, "rows of the next group", "K = offsets[group + 1] - first_k", "K -= first_k"),
    Mutation(
        PLAIN, "a row too many", "offsets[group + 1] - first_k", "offsets[group + 1] - first_k + 1"
    ),
    Mutation(
        PLAIN, "a row too few", "offsets[group + 1] - first_k", "offsets[group + 1] - first_k - 1"
    ),
    Mutation(PLAIN, "A of the first group", "A += (long long)first_k * lda", "A += 0"),
    Mutation(PLAIN, "B of the first group", "B += (long long)first_k * ldb", "B += 0"),
    Mutation(PLAIN, "B as far apart as A", "first_k * ldb", "first_k * lda"),
    Mutation(BY_COUNTS, "rows past the count", "K = counts[group]", "K /= groups"),
    Mutation(
        BY_COUNTS,
        "the first row of another",
        "group * (K / groups)",
        "(groups - 1 - group) * (K / groups)",
    ),
    Mutation(
        BY_COUNTS, "a count of another group", "K = counts[group]", "K = counts[groups - 1 - group]"
    ),
    # C of another group, and of those without rows.
    Mutation(PLAIN, "C of the first group", "C += (long long)group * M * ldc", "C += 0"),
    Mutation(PLAIN, "C as far apart as N", "group * M * ldc", "group * N * ldc"),
    Mutation(
        PLAIN,
        "an empty group left out",
        "if (K > 0) {",
        "if (K == 0) {\n        return;\n    } else {",
    ),
    Mutation(DEEP, "an empty group is loaded", "if (K > 0) {", "{"),
)
