"""A batch, or groups, as a loop of calls for one product each, in a CUDA graph: what a user does
without a call for batches, and with groups whose rows the host knows.
"""

from collections.abc import Callable
from typing import Any

from autogemm.model.dtypes import DType
from autogemm.targets.cuda.worker.gpu.cublas import Gemm
from autogemm.targets.cuda.worker.gpu.gpu import Gpu

Call = Callable[[Gemm], None]
# Graphs that are kept: those of the sets of inputs that are verified, and of some that are timed.
MOST_GRAPHS = 16


def looped(gpu: Gpu, call: Call, dtype: DType) -> Call:
    """A call that queues ``call`` for each product of a batch, or each group.

    The host would be slower than the GPU: the calls for given matrices are captured as a graph
    once. Within a capture they are queued as they are.
    """
    graphs: dict[Gemm, Any] = {}

    def queue_all(gemm: Gemm) -> None:
        for product in gemm.products(dtype):
            call(product)

    def queue(gemm: Gemm) -> None:
        if gpu.is_capturing:
            queue_all(gemm)
            return
        if gemm not in graphs:
            if len(graphs) == MOST_GRAPHS:
                graphs.pop(next(iter(graphs)))
            graphs[gemm] = gpu.capture(lambda: queue_all(gemm))
        graphs[gemm].launch(gpu.stream)

    return queue
