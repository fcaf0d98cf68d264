"""PyTorch on the worker's own stream and matrices."""

from typing import Any

import torch

from autogemm.model.dtypes import Element
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

# How arrays of CUDA name integers of as many bytes; bf16 and 8-bit floats have no name there.
INTEGERS = {1: "|i1", 2: "<i2", 4: "<i4"}


class _Memory:
    """A matrix on the GPU as libraries exchange them, its elements taken for integers."""

    def __init__(self, address: int, shape: tuple[int, int], ld: int, element: Element) -> None:
        size = element.size_bytes
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": INTEGERS[size],
            "shape": shape,
            "strides": (size * ld, size),
            "data": (address, False),
            "stream": None,
        }


def _tensor(address: int, shape: tuple[int, int], ld: int, element: Element) -> Any:
    bits = torch.as_tensor(_Memory(address, shape, ld, element), device="cuda")
    return bits.view(getattr(torch, str(element.array_name)))


def tensors(prepared: PreparedProblem, inputs: InputSet) -> tuple[Any, Any, Any]:
    """op(A), op(B) and C as tensors over the same memory."""
    problem, dtype = prepared.problem, prepared.problem.dtype
    a = _tensor(inputs.a.address, problem.a_shape, problem.lda, dtype.ab)
    b = _tensor(inputs.b.address, problem.b_shape, problem.ldb, dtype.b)
    c_address = inputs.own_c or prepared.result.address
    c = _tensor(c_address, (problem.m, problem.n), problem.ldc, dtype.c)
    return (a.T if problem.layout.trans_a else a), (b.T if problem.layout.trans_b else b), c


class TorchContestant:
    """``torch.mm`` or ``addmm``: FP32 without TF32, 16 bits with all sums in FP32."""

    def __init__(self, prepared: PreparedProblem) -> None:
        matmul = torch.backends.cuda.matmul
        matmul.allow_tf32 = False
        matmul.allow_bf16_reduced_precision_reduction = False
        matmul.allow_fp16_reduced_precision_reduction = False
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


class ScaledTorchContestant:
    """``torch._scaled_mm`` of 8-bit floats: its two scales are alpha and one; beta must be 0.

    ``adds_fast``: sums stay in the tensor cores, which keep fewer bits.
    """

    def __init__(self, prepared: PreparedProblem, *, adds_fast: bool) -> None:
        self._adds_fast = adds_fast
        self._stream = torch.cuda.ExternalStream(prepared.gpu.stream.ptr)
        self._tensors = {inputs: tensors(prepared, inputs) for inputs in prepared.input_sets}
        self._out_type = getattr(torch, str(prepared.problem.dtype.c.array_name))
        with torch.cuda.stream(self._stream):
            self._one = _scale(1.0)
            self._alpha = {inputs: _scale(inputs.alpha) for inputs in prepared.input_sets}

    def queue(self, inputs: InputSet) -> None:
        """Put one GEMM on the stream."""
        a, b, c = self._tensors[inputs]
        with torch.cuda.stream(self._stream):
            torch._scaled_mm(
                *(a, b, self._alpha[inputs], self._one),
                out_dtype=self._out_type,
                use_fast_accum=self._adds_fast,
                out=c,
            )


def _scale(value: float) -> Any:
    return torch.full((), value, dtype=torch.float32, device="cuda")
