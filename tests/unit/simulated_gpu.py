"""A GPU in this process: memory of the host, verify.cu compiled by g++, cuBLAS in NumPy, a clock
that goes on by what is launched.
"""

import ctypes
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from autogemm.emulator.toolchain import find_toolchain
from autogemm.model.dtypes import Element
from autogemm.model.elements import loaded, stored, stored_type
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Telemetry
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.worker.gpu.cublas import Cublas
from autogemm.targets.cuda.worker.problem.inputs import InputSet
from autogemm.targets.cuda.worker.problem.prepared import PreparedProblem

L2_BYTES = 4096
# The part of CUDA that verify.cu uses; one thread is a block.
ON_CPU = """
#include <math.h>
#include <string.h>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
struct Index { unsigned x; };
static Index threadIdx = {0}, blockDim = {1}, blockIdx = {0}, gridDim = {1};
extern "C" void set_block(unsigned block, unsigned blocks) {
    blockIdx.x = block;
    gridDim.x = blocks;
}
static void __syncthreads() {}
template <typename T> static void atomicAdd(T* sum, T value) { *sum += value; }
template <typename To, typename From> static To same_bits(From from) {
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}
static float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static unsigned __float_as_uint(float value) { return same_bits<unsigned>(value); }
#define AUTOGEMM_EMULATOR
static float fast_exp2(float x) { return exp2f(x); }
static float fast_reciprocal(float x) { return 1.0f / x; }
static double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
"""


def compiled_helpers(folder: Path, more: str = "") -> ctypes.CDLL:
    """The kernels of verify.cu and of a text behind it, each a function that runs one block."""
    text = files("autogemm.targets.cuda.worker.gpu").joinpath("verify.cu").read_text("utf-8") + more
    source, library = folder / "verify.cpp", folder / "verify.so"
    source.write_text(ON_CPU + text, "utf-8")
    command = [find_toolchain().gxx, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class Buffer:
    """Memory that is freed with the object."""

    def __init__(self, num_bytes: int) -> None:
        self._memory = np.full(num_bytes + 512, 0x5A, np.uint8)
        self.ptr = -(-self._memory.ctypes.data // 512) * 512


class SimulatedGpu:
    """A stand-in for `autogemm.targets.cuda.worker.gpu.gpu.Gpu` in problems and timing."""

    cuda_errors = (RuntimeError,)

    def __init__(self, helpers: ctypes.CDLL) -> None:
        self._helpers = helpers
        self.now_us = 0.0
        self.allocated: list[int] = []
        self.device = SimpleNamespace(l2_bytes=L2_BYTES)
        self.is_capturing = False
        self.stream = SimpleNamespace(ptr=0, synchronize=lambda: None)
        self.runtime = SimpleNamespace(
            memsetAsync=lambda at, value, num_bytes, _: ctypes.memset(at, value, num_bytes)
        )
        self.telemetry = SimpleNamespace(read=Telemetry, energy_mj=lambda: int(self.now_us))

    def allocate(self, num_bytes: int) -> Buffer:
        self.allocated.append(num_bytes)
        return Buffer(num_bytes)

    def free_bytes(self) -> int:
        return 2**30

    def run_helper(self, name: str, count: int, *arguments: np.generic) -> None:
        assert count > 0
        self.run_helper_blocks(name, 3, *arguments)

    def helpers_with(self, text: str) -> "SimulatedGpu":
        """The kernels of a text that stands behind verify.cu."""
        with TemporaryDirectory() as folder:
            return SimulatedGpu(compiled_helpers(Path(folder), text))

    def run(self, name: str, count: int, *arguments: np.generic) -> None:
        """As `run_helper`, of a text of a problem's own."""
        self.run_helper(name, count, *arguments)

    def run_helper_blocks(self, name: str, blocks: int, *arguments: np.generic) -> None:
        values = [np.ctypeslib.as_ctypes_type(one.dtype)(one.item()) for one in arguments]
        for block in range(blocks):
            self._helpers.set_block(block, blocks)
            getattr(self._helpers, name)(*values)

    def read(self, address: int, into: npt.NDArray[Any]) -> None:
        ctypes.memmove(into.ctypes.data, int(address), into.nbytes)

    def write(self, address: int, values: npt.NDArray[Any]) -> None:
        ctypes.memmove(int(address), values.ctypes.data, values.nbytes)

    def event(self) -> float:
        return self.now_us

    def microseconds(self, begin: float, end: float) -> float:
        return end - begin

    def capture(self, work: Callable[[], None]) -> Any:
        return SimpleNamespace(launch=lambda stream: work())


def memory(address: int, rows: int, cols: int, ld: int, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """A row-major matrix where it lies; writes go there."""
    size = np.dtype(kind).itemsize
    num_bytes = size * ((rows - 1) * ld + cols)
    raw = (ctypes.c_ubyte * num_bytes).from_address(address)
    flat = np.frombuffer(raw, kind)
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), (ld * size, size))


def element_of(cuda_data_type: int) -> Element:
    """The element type of that cudaDataType_t."""
    return next(one for one in Element if one.cuda_data_type == cuda_data_type)


NOT_SUPPORTED = 15
# A few of those that cublasGemmEx has: operands, and C.
GEMM_EX_TYPES = {
    *((one, one) for one in (Element.F16, Element.BF16)),
    *((Element.BF16, Element.F32), (Element.I8, Element.I32)),
}


class CublasLibrary:
    """libcublas.so in NumPy: column-major, scalars by address. ``modes`` are the math modes."""

    def __init__(self) -> None:
        self.modes: list[int] = []
        self.versions = (12, 9, 1)

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in {"cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2"}:
            raise AttributeError(name)
        return lambda *arguments: 0

    def cublasSetMathMode(self, handle: Any, mode: ctypes.c_int) -> int:  # noqa: N802
        self.modes.append(mode.value)
        return 0

    def cublasGetProperty(self, part: ctypes.c_int, value: Any) -> int:  # noqa: N802
        value._obj.value = self.versions[part.value]
        return 0

    def cublasDgemm_v2(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._gemm(np.float64, *arguments)

    def cublasSgemm_v2(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        return self._gemm(np.float32, *arguments)

    def cublasGemmEx(self, handle: Any, *arguments: Any) -> int:  # noqa: N802
        """Of the types that it has; sums in float64, or of integers."""
        trans_a, trans_b, m, n, k = (one.value for one in arguments[:5])
        alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, *_ = arguments[5:]
        of_ab, of_c = (element_of(one.value) for one in (type_a, type_c))
        if (of_ab, of_c) not in GEMM_EX_TYPES or type_b.value != type_a.value:
            return NOT_SUPPORTED
        stored_a, stored_b = (
            loaded(np.array(memory(at.value, *shape, ld.value, stored_type(of_ab))), of_ab)
            for at, shape, ld in (
                (a, (m, k) if trans_a else (k, m), lda),
                (b, (k, n) if trans_b else (n, k), ldb),
            )
        )
        op_a, op_b = (
            one if is_transposed else one.T
            for one, is_transposed in ((stored_a, trans_a), (stored_b, trans_b))
        )
        total = alpha._obj.value * (op_a.astype(np.float64) @ op_b.astype(np.float64)).T
        result = memory(c.value, n, m, ldc.value, stored_type(of_c))
        if beta._obj.value:
            total = total + beta._obj.value * loaded(np.array(result), of_c)
        result[:] = stored(total, of_c)
        return 0

    @staticmethod
    def _gemm(kind: type[np.floating], *arguments: Any) -> int:
        trans_a, trans_b, m, n, k = (one.value for one in arguments[:5])
        alpha, a, lda, b, ldb, beta, c, ldc = arguments[5:]
        # Each is stored as the rows of its transpose.
        stored_a = memory(a.value, *((m, k) if trans_a else (k, m)), lda.value, kind)
        stored_b = memory(b.value, *((k, n) if trans_b else (n, k)), ldb.value, kind)
        result = memory(c.value, n, m, ldc.value, kind)
        op_a = stored_a if trans_a else stored_a.T
        op_b = stored_b if trans_b else stored_b.T
        product = kind(alpha._obj.value) * (op_a @ op_b).T
        before = kind(beta._obj.value) * result if beta._obj.value else kind(0)
        result[:] = product + before
        return 0


class Kernel:
    """A contestant: the right product in float64, then what ``spoil`` makes of it."""

    name = "a kernel"

    def __init__(
        self,
        prepared: PreparedProblem,
        time_us: float = 10.0,
        spoil: Callable[[npt.NDArray[Any]], None] = lambda c: None,
    ) -> None:
        self.prepared, self.time_us, self.spoil = prepared, time_us, spoil
        self.num_launches = 0
        self.is_loaded = True
        # As the calls of a library that has only this one.
        self.near, self.left_out = (self,), ()

    def unload(self) -> None:
        self.is_loaded = False

    def queue(self, inputs: InputSet) -> None:
        assert self.is_loaded
        self.num_launches += 1
        gpu: Any = self.prepared.gpu
        gpu.now_us += self.time_us
        problem = self.prepared.problem
        element, kind = problem.dtype.c, stored_type(problem.dtype.c)
        address = inputs.own_c or self.prepared.result.address
        c = memory(address, problem.m, problem.n, problem.ldc, kind)
        exact = inputs.alpha * product(problem, inputs)
        if inputs.beta:
            exact = exact + inputs.beta * loaded(np.ascontiguousarray(c), element)
        values = np.asarray(exact, np.float64)
        self.spoil(values)
        c[:] = stored(values, element)


def operands(problem: Problem, inputs: InputSet) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """op(A) and op(B) in float64."""
    found = []
    for matrix, trans in ((inputs.a, problem.layout.trans_a), (inputs.b, problem.layout.trans_b)):
        element = matrix.element
        bits = memory(matrix.address, matrix.rows, matrix.cols, matrix.ld, stored_type(element))
        values = loaded(np.ascontiguousarray(bits), element).astype(np.float64)
        found.append(values.T if trans else values)
    return found[0], found[1]


def product(problem: Problem, inputs: InputSet) -> npt.NDArray[Any]:
    """op(A) op(B) in float64."""
    a, b = operands(problem, inputs)
    return a @ b


def prepared_problem(
    gpu: SimulatedGpu, problem: Problem, baseline_us: float = 10.0, **options: Any
) -> PreparedProblem:
    """The problem on that GPU, a right kernel its baseline; cuBLAS must be a `CublasLibrary`."""
    simulated: Any = gpu
    chosen = MeasureOptions(**options)
    return PreparedProblem(
        simulated, Cublas(simulated), problem, chosen, lambda one, _: Kernel(one, baseline_us)
    )
