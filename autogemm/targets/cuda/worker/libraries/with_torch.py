"""PyTorch on the worker's own stream and matrices."""

from typing import Any

import torch

from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem


class _Memory:
    """A matrix of floats on the GPU, as libraries exchange them."""

    def __init__(self, address: int, shape: tuple[int, int], ld: int) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "strides": (4 * ld, 4),
            "data": (address, False),
            "stream": None,
        }


def tensors(prepared: PreparedProblem, inputs: InputSet) -> tuple[Any, Any, Any]:
    """op(A), op(B) and C as tensors over the same memory."""
    problem = prepared.problem
    a = torch.as_tensor(_Memory(inputs.a.address, problem.a_shape, problem.lda), device="cuda")
    b = torch.as_tensor(_Memory(inputs.b.address, problem.b_shape, problem.ldb), device="cuda")
    c_address = inputs.own_c or prepared.result.address
    c = torch.as_tensor(_Memory(c_address, (problem.m, problem.n), problem.ldc), device="cuda")
    return (a.T if problem.layout.trans_a else a), (b.T if problem.layout.trans_b else b), c


class TorchContestant:
    """``torch.addmm`` in FP32, TF32 off."""

    def __init__(self, prepared: PreparedProblem) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self._stream = torch.cuda.ExternalStream(prepared.gpu.stream.ptr)
        self._tensors = {inputs: tensors(prepared, inputs) for inputs in prepared.input_sets}

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""
        a, b, c = self._tensors[inputs]
        with torch.cuda.stream(self._stream):
            if inputs.beta == 0 and inputs.alpha == 1:
                torch.mm(a, b, out=c)
            else:
                torch.addmm(c, a, b, beta=inputs.beta, alpha=inputs.alpha, out=c)
