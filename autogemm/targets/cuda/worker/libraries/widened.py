"""Operands of 8 bits as 16, for products that cuBLAS has of those alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from autogemm.model.dtypes import Element
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


def widened(gpu: Gpu, inputs: InputSet, element: Element) -> Callable[[Gemm], Gemm]:
    """A function that converts A and B, which are E5M2 and as large as these inputs, and returns
    the GEMM of the converted ones. It queues two kernels at each call, because operands that come
    in 8 bits are converted for each product. Raises DeviceError without memory for them.
    """
    of_a, of_b = (_Widened(gpu, one, element) for one in (inputs.a, inputs.b))

    def of(gemm: Gemm) -> Gemm:
        return replace(gemm, a=of_a.convert(gemm.a), b=of_b.convert(gemm.b))

    return of


class _Widened:
    """A matrix, or those of a batch, with all between its rows."""

    def __init__(self, gpu: Gpu, matrix: Matrix, element: Element) -> None:
        self._gpu, self._element = gpu, element
        self._count = matrix.num_elements
        self._buffer = gpu.allocate(element.size_bytes * self._count + 2 * ALIGNMENT_BYTES)
        self._address = aligned_address(int(self._buffer.ptr), element)

    def convert(self, address: int) -> int:
        """Queue the conversion of the matrix there; the address of what comes out."""
        self._gpu.run_helper(
            "widen_e5m2",
            -(-self._count // VECTOR),
            pointer(address),
            pointer(self._address),
            np.int64(self._count),
            np.int32(self._element is Element.BF16),
        )
        return self._address
