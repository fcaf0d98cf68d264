"""Calls of cuBLAS for a problem with an epilogue: fused by cuBLASLt, or with a kernel behind.

cuBLASLt adds a bias to each column, adds another matrix in C's place, and applies relu or the gelu
that is made of tanh. Everything else is the plain product, rounded to C's type, and one pointwise
kernel of the same expression, which reads and writes by 16 bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.formula import Apply, Node, Read
from autogemm.model.problem import Problem
from autogemm.space import EPILOGUE_PREFIX
from autogemm.targets.cuda.worker.gpu.cublas import Gemm
from autogemm.targets.cuda.worker.gpu.cublas_lt import Fusion
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, Helpers, pointer
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.reference import epilogue_inputs

VECTOR_BYTES = 16
# cublasLtEpilogue_t, without and with a bias.
_EPILOGUES = {"": (1, 4), "relu": (2, 6), "gelu_tanh": (32, 36)}


@dataclass(frozen=True, slots=True)
class Step:
    """What a call for a problem with an epilogue does besides the product."""

    queue: Callable[[Callable[[Gemm], None], Gemm, InputSet], None]


def pointwise(problem: Problem, helpers: Helpers, gpu: Gpu) -> Step:
    """The product, then a kernel. Where C is read, the product goes to memory of its own."""
    num_bytes = problem.dtype.c.size_bytes * problem.m * problem.ldc
    # It lives as long as the function below.
    spare = gpu.allocate(num_bytes) if problem.reads_c else None

    def queue(call: Callable[[Gemm], None], gemm: Gemm, inputs: InputSet) -> None:
        product = replace(gemm, alpha=1.0, beta=0.0)
        if spare is not None:
            product = replace(product, c=spare.ptr)
        call(product)
        vector = VECTOR_BYTES // problem.dtype.c.size_bytes
        is_aligned = problem.n % vector == 0 and problem.ldc % vector == 0
        helpers.run(
            "fused_pointwise",
            problem.m * (problem.n // vector if is_aligned else problem.n),
            pointer(product.c),
            np.int64(problem.ldc),
            pointer(gemm.c),
            np.int64(problem.ldc),
            np.int32(problem.m),
            np.int32(problem.n),
            np.int32(vector if is_aligned else 1),
            np.float32(inputs.alpha),
            np.float32(inputs.beta),
            *(
                np.float32(one) if isinstance(one, float) else one
                for one in epilogue_inputs(problem, inputs)
            ),
        )

    return Step(queue)


def fusion_of(epilogue: Epilogue, dtype: DType) -> Fusion | None:
    """The epilogue as cuBLASLt has it; None where it has none."""
    root: Node = epilogue.root
    activation = ""
    if isinstance(root, Apply) and root.op in _EPILOGUES:
        activation, root = root.op, root.args[0]
    reads = [one for one in _terms(root) if isinstance(one, Read)]
    if len(reads) != len(_terms(root)):
        return None
    found = {axes: [one for one in reads if one.axes == axes] for axes in ("", "n", "m, n")}
    is_sum = [one.name for one in found[""]] == ["acc"] and len(found["n"]) <= 1
    of_c = all(one.element(dtype) is dtype.c for one in epilogue.inputs)
    if not is_sum or not of_c or len(found["m, n"]) > 1 or len(reads) != len(set(reads)):
        return None
    if len(reads) != sum(map(len, found.values())):
        return None
    bias, added = (next((one.name for one in found[axes]), "") for axes in ("n", "m, n"))
    return Fusion(_EPILOGUES[activation][bool(bias)], bias, added)


def fused(fusion: Fusion) -> Step:
    """The one call of cuBLASLt."""

    def queue(call: Callable[[Gemm], None], gemm: Gemm, inputs: InputSet) -> None:
        arrays = inputs.extras
        bias = arrays[EPILOGUE_PREFIX + fusion.bias].address if fusion.bias else 0
        is_other = fusion.added not in ("", "c")
        added = arrays[EPILOGUE_PREFIX + fusion.added].address if is_other else gemm.c
        beta = 1.0 if fusion.added else 0.0
        call(replace(gemm, alpha=1.0, beta=beta, bias=bias, added=added))

    return Step(queue)


def _terms(node: Node) -> list[Node]:
    if isinstance(node, Apply) and node.op == "+":
        return [*_terms(node.args[0]), *_terms(node.args[1])]
    return [node]
