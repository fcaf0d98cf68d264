"""Operands of 8 bits as 16, for products that cuBLAS has of those alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autogemm.model.dtypes import Element
from autogemm.model.formula import BLOCK
from autogemm.model.problem import Problem
from autogemm.space import EPILOGUE_PREFIX
from autogemm.targets.cuda.worker.gpu.cublas import Gemm
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, pointer
from autogemm.targets.cuda.worker.problem.inputs import (
    ALIGNMENT_BYTES,
    InputSet,
    Matrix,
    aligned_address,
)

# Elements that a thread takes at once, 16 bytes.
VECTOR = 16

Widen = Callable[[Gemm, InputSet], Gemm]
"""Queues the conversion of a GEMM's operands, and returns the GEMM of the converted ones."""


def widened(gpu: Gpu, problem: Problem, like: InputSet) -> Widen:
    """The conversion of A and B, as large as those of ``like``, to 16 bits, in which cuBLAS
    multiplies them: of E5M2, or of any 8-bit floats with scales of blocks, times these and rounded.

    It queues two kernels at each call, because operands that come in 8 bits are converted for each
    product. Raises DeviceError without memory for them.
    """
    element = problem.dtype.converted.ab
    of_a, of_b = (_Widened(gpu, one, element) for one in (like.a, like.b))
    if not problem.epilogue.scales:
        return lambda gemm, _: replace(gemm, a=of_a.convert(gemm.a), b=of_b.convert(gemm.b))
    names = [EPILOGUE_PREFIX + one.name for one in problem.epilogue.scales]
    blocks_of_k = -(-problem.k // BLOCK)

    def scaled(gemm: Gemm, inputs: InputSet) -> Gemm:
        scales_a, scales_b = (inputs.extras[name].address for name in names)
        a = of_a.scale(gemm.a, scales_a, 1, 1, problem.m)
        b = of_b.scale(gemm.b, scales_b, BLOCK, blocks_of_k, 1)
        return replace(gemm, a=a, b=b)

    return scaled


class _Widened:
    """A matrix, or those of a batch, with all between its rows."""

    def __init__(self, gpu: Gpu, matrix: Matrix, element: Element) -> None:
        self._gpu, self._like, self._element = gpu, matrix, element
        self._buffer = gpu.allocate(element.size_bytes * matrix.num_elements + 2 * ALIGNMENT_BYTES)
        self._address = aligned_address(int(self._buffer.ptr), element)

    def convert(self, address: int) -> int:
        """Queue the conversion of the matrix there; the address of what comes out."""
        count = self._like.num_elements
        self._gpu.run_helper(
            "widen_e5m2",
            -(-count // VECTOR),
            pointer(address),
            pointer(self._address),
            np.int64(count),
            np.int32(self._element is Element.BF16),
        )
        return self._address

    def scale(self, address: int, scales: int, rows_of_block: int, *steps: int) -> int:
        """As `convert`, with scales of blocks of so many rows and 128 elements along k; ``steps``
        are to the scale of the next block of rows, and along k; those of the next matrix lie
        behind all of these.
        """
        rows, cols = self._like.rows, self._like.cols
        scales_of_one = -(-rows // rows_of_block) * steps[0] * Element.F32.size_bytes
        for number in range(self._like.count):
            before = self._like.address_of(number) - self._like.address
            to = self._address + before // self._like.element.size_bytes * self._element.size_bytes
            self._gpu.run_helper(
                "widen_scaled",
                rows * -(-cols // VECTOR),
                pointer(address + before),
                np.int32(self._like.element.format_code),
                pointer(to),
                *map(np.int64, (rows, cols, self._like.ld)),
                pointer(scales + number * scales_of_one),
                *map(np.int64, (rows_of_block, *steps)),
                np.int32(self._element is Element.BF16),
            )
        return self._address
