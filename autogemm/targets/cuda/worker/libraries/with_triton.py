"""A GEMM in Triton, on the worker's own stream and matrices."""

from typing import Any

import torch
import triton
import triton.language as tl

from autogemm.targets.cuda.worker.libraries.baselines import fastest_of
from autogemm.targets.cuda.worker.libraries.with_torch import tensors
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

# Kind of products, to BM, BN, BK, warps, stages. FP32 throughout; three products of TF32 on tensor
# cores; or of 16 bits, where the tiles are those of Triton's tutorial on matrix multiplication and
# one that is deeper.
TILES = {
    "ieee": (
        *((128, 128, 16, 8, 3), (128, 64, 32, 4, 3), (64, 64, 32, 4, 3)),
        *((64, 128, 16, 4, 4), (32, 64, 32, 2, 4)),
    ),
    "tf32x3": (
        *((128, 128, 32, 8, 3), (128, 128, 16, 8, 4), (128, 64, 32, 4, 3)),
        *((64, 128, 32, 4, 3), (64, 64, 32, 4, 3)),
    ),
    "16 bits": (
        *((128, 256, 64, 8, 3), (128, 128, 64, 8, 4), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4)),
        *((128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (64, 32, 32, 2, 5)),
    ),
}
# Input precision of `tl.dot` where it is not the name of the kind: 16 bits are multiplied exactly.
PRECISIONS = {"16 bits": "ieee"}
# Blocks go through this many tiles of rows before they go on along N: their B stays in L2.
GROUP_M = 8


@triton.jit  # type: ignore[untyped-decorator]
def gemm_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN201, D103, PLR0913, PLR0917
    a, b, c, M, N, K, am, ak, bk, bn, cm, alpha, beta,  # noqa: ANN001
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP_M: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # Blocks in groups of GROUP_M tiles of rows, as in Triton's tutorial.
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first_m = tl.program_id(0) // (GROUP_M * tiles_n) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    within = tl.program_id(0) % (GROUP_M * tiles_n)
    m = (first_m + within % rows) * BM + tl.arange(0, BM)
    n = within // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    # Rows and columns past the edge read others, and are not stored.
    a_tile = a + (m % M)[:, None] * am + k[None, :] * ak
    b_tile = b + k[:, None] * bk + (n % N)[None, :] * bn
    sums = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(a_tile, mask=k0 + k[None, :] < K, other=0.0)
        right = tl.load(b_tile, mask=k0 + k[:, None] < K, other=0.0)
        sums = tl.dot(left, right, sums, input_precision=PRECISION)
        a_tile += BK * ak
        b_tile += BK * bk
    c_tile = c + m[:, None] * cm + n[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    sums *= alpha
    if beta != 0:
        sums += beta * tl.load(c_tile, mask=inside)
    tl.store(c_tile, sums, mask=inside)


class TritonContestant:
    """The kernel with one tile and one input precision."""

    def __init__(
        self, prepared: PreparedProblem, tile: tuple[int, int, int, int, int], precision: str
    ) -> None:
        self._problem, self._precision = prepared.problem, precision
        self._tile = tile
        self._stream = torch.cuda.ExternalStream(prepared.gpu.stream.ptr)
        self._tensors = {inputs: tensors(prepared, inputs) for inputs in prepared.input_sets}

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""
        problem = self._problem
        BM, BN, BK, warps, stages = self._tile
        a, b, c = self._tensors[inputs]
        grid: Any = (triton.cdiv(problem.m, BM) * triton.cdiv(problem.n, BN),)
        with torch.cuda.stream(self._stream):
            gemm_kernel[grid](
                *(a, b, c, problem.m, problem.n, problem.k),
                *(*a.stride(), *b.stride(), problem.ldc, inputs.alpha, inputs.beta),
                *(BM, BN, BK, GROUP_M, self._precision),
                num_warps=warps,
                num_stages=stages,
            )


def fastest_triton(prepared: PreparedProblem, kind: str) -> tuple[TritonContestant, str]:
    """The contestant with the fastest of the kind's TILES, and that tile as text."""
    tiles, precision = TILES[kind], PRECISIONS.get(kind, kind)
    contestants = [TritonContestant(prepared, tile, precision) for tile in tiles]
    fastest = fastest_of(prepared, contestants)
    return contestants[fastest], "x".join(map(str, tiles[fastest][:3]))
