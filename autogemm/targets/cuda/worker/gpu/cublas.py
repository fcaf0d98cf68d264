"""cuBLAS through its C interface: the baseline, and float64 products for references.

CuPy's wrapper sets the stream before each call, which puts the handle back to the default
workspace; inside a graph that records an allocation around each GEMM and cuBLAS looks slower
than it is. So the library that CuPy loaded is called directly, with a workspace of its own.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autogemm.model.dtypes import DType
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.worker.gpu.gpu import Gpu

OP_N, OP_T = 0, 1
DEFAULT_MATH = 0
# The size that cuBLAS recommends for Hopper and Blackwell; more than enough for older GPUs.
WORKSPACE_BYTES = 32 * 2**20

GEMM_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class Gemm:
    """C = alpha op(A) op(B) + beta C, row-major; a, b and c are device addresses.

    In fused calls ``bias`` is the address of an element for each column, and ``added`` that of the
    matrix that replaces the old C; 0 where there is none. So are ``scale_a`` and ``scale_b``, those
    of scales of blocks, and ``scale_c``, that of the one scale of C. A batch has ``count``
    products; strides are in elements from one matrix to the next. With groups, ``ranges`` has the
    first row of each and the one behind its last: rows of A and C, each group with the next B, or
    where ``divides_k`` rows of A and B as stored, each with the next C. Where each has scales of
    blocks, ``scales_of_groups`` has the addresses of A's and B's.
    """

    m: int
    n: int
    k: int
    trans_a: bool
    trans_b: bool
    alpha: float
    a: int
    lda: int
    b: int
    ldb: int
    beta: float
    c: int
    ldc: int
    bias: int = 0
    added: int = 0
    scale_a: int = 0
    scale_b: int = 0
    scale_c: int = 0
    count: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    scales_of_groups: tuple[tuple[int, int], ...] = ()
    divides_k: bool = False

    def products(self, dtype: DType) -> Iterator["Gemm"]:
        """Each of its products as a GEMM of its own; of groups those that have a C."""
        of_ab, of_c = dtype.ab.size_bytes, dtype.c.size_bytes
        for number, (first, end) in enumerate(self.ranges):
            if self.divides_k:
                yield replace(
                    self,
                    k=end - first,
                    a=self.a + first * self.lda * of_ab,
                    b=self.b + first * self.ldb * of_ab,
                    c=self.c + number * self.stride_c * of_c,
                    ranges=(),
                )
            elif first < end:
                scales = self.scales_of_groups[number : number + 1]
                scale_a, scale_b = scales[0] if scales else (0, 0)
                yield replace(
                    self,
                    m=end - first,
                    a=self.a + first * self.lda * of_ab,
                    b=self.b + number * self.stride_b * of_ab,
                    c=self.c + first * self.ldc * of_c,
                    ranges=(),
                    scale_a=scale_a,
                    scale_b=scale_b,
                    scales_of_groups=(),
                )
        if self.ranges:
            return
        for number in range(self.count):
            yield replace(
                self,
                a=self.a + number * self.stride_a * of_ab,
                b=self.b + number * self.stride_b * of_ab,
                c=self.c + number * self.stride_c * of_c,
                count=1,
            )


def forget_overrides() -> None:
    """Before the library is loaded: whatever the user's shell says, a GEMM is computed as it is
    asked for, FP32 in FP32 and TF32 in TF32.
    """
    os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    os.environ["CUBLAS_EMULATE_SINGLE_PRECISION"] = "0"


class Cublas:
    """One handle on the GPU's stream. FP32 means FP32: no TF32, no emulation.

    Raises DeviceError when cuBLAS is missing or a call fails.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._library = load_library()
        self._workspace = gpu.allocate(WORKSPACE_BYTES)
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(gpu.stream.ptr))
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(DEFAULT_MATH))
        self._call(
            "cublasSetWorkspace_v2",
            self._handle,
            ctypes.c_void_p(self._workspace.ptr),
            ctypes.c_size_t(WORKSPACE_BYTES),
        )

    @property
    def version(self) -> str:
        """``13.0.0``."""
        parts = []
        for part in range(3):
            value = ctypes.c_int()
            self._call("cublasGetProperty", ctypes.c_int(part), ctypes.byref(value))
            parts.append(str(value.value))
        return ".".join(parts)

    def sgemm(self, gemm: Gemm) -> None:
        """Queue it in FP32."""
        self._gemm("cublasSgemm_v2", ctypes.c_float, gemm)

    def dgemm(self, gemm: Gemm) -> None:
        """Queue it in float64."""
        self._gemm("cublasDgemm_v2", ctypes.c_double, gemm)

    def gemm_ex(self, gemm: Gemm, dtype: DType) -> None:
        """Queue it by GemmEx: products of the dtype's own kind, sums in FP32, or in integers."""
        operand, result = (ctypes.c_int(one.cuda_data_type) for one in (dtype.ab, dtype.c))
        alpha, beta = scalars(gemm, dtype)
        self._call(
            "cublasGemmEx",
            self._handle,
            ctypes.c_int(OP_T if gemm.trans_b else OP_N),
            ctypes.c_int(OP_T if gemm.trans_a else OP_N),
            *(ctypes.c_int(extent) for extent in (gemm.n, gemm.m, gemm.k)),
            ctypes.byref(alpha),
            *(ctypes.c_void_p(gemm.b), operand, ctypes.c_int(gemm.ldb)),
            *(ctypes.c_void_p(gemm.a), operand, ctypes.c_int(gemm.lda)),
            ctypes.byref(beta),
            *(ctypes.c_void_p(gemm.c), result, ctypes.c_int(gemm.ldc)),
            ctypes.c_int(dtype.cublas_compute_type),
            ctypes.c_int(GEMM_DEFAULT),
        )

    def strided_batched_ex(self, gemm: Gemm, dtype: DType) -> None:
        """Queue all products by GemmStridedBatchedEx, otherwise as `gemm_ex` does."""
        operand, result = (ctypes.c_int(one.cuda_data_type) for one in (dtype.ab, dtype.c))
        alpha, beta = scalars(gemm, dtype)
        b_stride, a_stride, c_stride = (
            ctypes.c_longlong(one) for one in (gemm.stride_b, gemm.stride_a, gemm.stride_c)
        )
        self._call(
            "cublasGemmStridedBatchedEx",
            self._handle,
            ctypes.c_int(OP_T if gemm.trans_b else OP_N),
            ctypes.c_int(OP_T if gemm.trans_a else OP_N),
            *(ctypes.c_int(extent) for extent in (gemm.n, gemm.m, gemm.k)),
            ctypes.byref(alpha),
            *(ctypes.c_void_p(gemm.b), operand, ctypes.c_int(gemm.ldb), b_stride),
            *(ctypes.c_void_p(gemm.a), operand, ctypes.c_int(gemm.lda), a_stride),
            ctypes.byref(beta),
            *(ctypes.c_void_p(gemm.c), result, ctypes.c_int(gemm.ldc), c_stride),
            ctypes.c_int(gemm.count),
            ctypes.c_int(dtype.cublas_compute_type),
            ctypes.c_int(GEMM_DEFAULT),
        )

    def grouped_batched_ex(self, products: Sequence[Gemm], places: int, dtype: DType) -> None:
        """Queue GEMMs of any sizes by GemmGroupedBatchedEx, each a group of its own.

        ``places`` is the address on the GPU of those of all B, then all A, then all C.
        """
        operand, result = (ctypes.c_int(one.cuda_data_type) for one in (dtype.ab, dtype.c))
        count = len(products)

        def ints(*values: int) -> Any:
            return (ctypes.c_int * count)(*values)

        def floats(*values: float) -> Any:
            return (ctypes.c_float * count)(*values)

        b, a, c = (ctypes.c_void_p(places + 8 * count * place) for place in range(3))
        self._call(
            "cublasGemmGroupedBatchedEx",
            self._handle,
            ints(*(OP_T if one.trans_b else OP_N for one in products)),
            ints(*(OP_T if one.trans_a else OP_N for one in products)),
            ints(*(one.n for one in products)),
            ints(*(one.m for one in products)),
            ints(*(one.k for one in products)),
            floats(*(one.alpha for one in products)),
            *(b, operand, ints(*(one.ldb for one in products))),
            *(a, operand, ints(*(one.lda for one in products))),
            floats(*(one.beta for one in products)),
            *(c, result, ints(*(one.ldc for one in products))),
            ctypes.c_int(count),
            ints(*(1 for _ in products)),
            ctypes.c_int(dtype.ab.cublas_compute_type),
        )

    def _gemm(
        self, function: str, scalar: type[ctypes.c_float] | type[ctypes.c_double], gemm: Gemm
    ) -> None:
        # cuBLAS is column-major: the same memory read its way is the transposed problem,
        # C^T[N,M] = op(B)^T op(A)^T.
        self._call(
            function,
            self._handle,
            ctypes.c_int(OP_T if gemm.trans_b else OP_N),
            ctypes.c_int(OP_T if gemm.trans_a else OP_N),
            *(ctypes.c_int(extent) for extent in (gemm.n, gemm.m, gemm.k)),
            ctypes.byref(scalar(gemm.alpha)),
            *(ctypes.c_void_p(gemm.b), ctypes.c_int(gemm.ldb)),
            *(ctypes.c_void_p(gemm.a), ctypes.c_int(gemm.lda)),
            ctypes.byref(scalar(gemm.beta)),
            *(ctypes.c_void_p(gemm.c), ctypes.c_int(gemm.ldc)),
        )

    def _call(self, function: str, *arguments: object) -> None:
        # An older library lacks newer functions.
        called = getattr(self._library, function, None)
        if called is None:
            raise DeviceError(f"this cuBLAS has no {function}")
        status = called(*arguments)
        if status != 0:
            raise DeviceError(f"{function} failed with cuBLAS status {status}")


def scalars(gemm: Gemm, dtype: DType) -> tuple[ctypes.c_float | ctypes.c_int32, ...]:
    """Alpha and beta as cuBLAS takes them: integers where C has sums of integers, else floats."""
    factors = (gemm.alpha, gemm.beta)
    if dtype.has_exact_sums:
        return tuple(ctypes.c_int32(int(one)) for one in factors)
    return tuple(ctypes.c_float(one) for one in factors)


def load_library() -> ctypes.CDLL:
    """The cuBLAS that CuPy uses, found the way CuPy finds it."""
    try:
        from cupy_backends.cuda.libs import cublas as _loaded  # noqa: F401  # loads the library
    except ImportError as error:
        raise DeviceError(
            "cuBLAS is not found, the baseline needs it: install the CUDA toolkit, or the wheel "
            f"nvidia-cublas-cu12 (CUDA 12) or nvidia-cublas (CUDA 13): {error}"
        ) from error
    path = loaded_library("libcublas.so")
    if path is None:
        raise DeviceError("CuPy loaded no libcublas.so: reinstall CuPy and the CUDA toolkit")
    return ctypes.CDLL(path)


def loaded_library(name: str) -> str | None:
    """The path of a library of that name that this process has loaded; None if it has not."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(name):
            return path
    return None
