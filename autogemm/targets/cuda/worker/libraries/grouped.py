"""Groups by one call, `cublasGemmGroupedBatchedEx`: the host knows the rows of each."""

from collections.abc import Callable

import numpy as np

from autogemm.model.dtypes import DType
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, Gemm
from autogemm.targets.cuda.worker.gpu.gpu import Gpu

# Places of matrices that are kept for graphs, which hold their addresses.
MOST_PLACES = 64


def grouped(gpu: Gpu, cublas: Cublas, dtype: DType, num_groups: int) -> Callable[[Gemm], None]:
    """A call that queues the products of all groups that have rows.

    The library takes addresses of matrices from the GPU's memory. They are written there once for
    each place of the matrices, before a capture or in it. Raises DeviceError for more than
    `MOST_PLACES` of them.
    """
    bytes_each = 3 * 8 * num_groups
    memory = gpu.allocate(MOST_PLACES * bytes_each)
    known: dict[Gemm, tuple[int, np.ndarray[tuple[int, int], np.dtype[np.uint64]]]] = {}

    def queue(gemm: Gemm) -> None:
        products = list(gemm.products(dtype))
        if gemm not in known:
            if len(known) == MOST_PLACES:
                raise DeviceError(f"more than {MOST_PLACES} places of the matrices of groups")
            places = np.array([[one.b, one.a, one.c] for one in products], np.uint64).T.copy()
            known[gemm] = (memory.ptr + len(known) * bytes_each, places)
            gpu.write(known[gemm][0], places, waits=not gpu.is_capturing)
        address, _ = known[gemm]
        cublas.grouped_batched_ex(products, address, dtype)

    return queue
