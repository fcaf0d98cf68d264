"""PyTorch, Triton and CUTLASS on a simulated GPU: NumPy on its memory, a library built by g++.

They do what the originals do where it matters here: PyTorch rounds to TF32 where that is allowed,
works on the stream of the moment, and adds C only where it is asked to; Triton runs a kernel one
program after the other and reads nothing outside its tensors.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from simulated_gpu import SimulatedGpu, memory

from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, rounded, stored, stored_type

TORCH_US = 40.0
# What PyTorch may do for speed, and with 16 bits does unless it is told not to.
ALLOWANCES = (
    *("allow_tf32", "allow_bf16_reduced_precision_reduction"),
    "allow_fp16_reduced_precision_reduction",
)


class Tensor:
    """A view of memory of the GPU; integers until `view` says of what they are the bits."""

    def __init__(self, values: npt.NDArray[Any], element: Element | None = None) -> None:
        self.values, self._element = values, element

    @property
    def T(self) -> "Tensor":  # noqa: N802
        return Tensor(self.values.T, self._element)

    @property
    def element(self) -> Element:
        assert self._element is not None, "integers"
        return self._element

    def view(self, element: Element) -> "Tensor":
        assert self.values.dtype == f"i{element.size_bytes}"
        return Tensor(self.values.view(stored_type(element)), element)

    def stride(self) -> tuple[int, ...]:
        return tuple(one // self.values.itemsize for one in self.values.strides)


class FakeTorch(ModuleType):
    """The module ``torch``. ``streams`` are those on which it worked."""

    __version__ = "2.9"

    def __init__(self, gpu: SimulatedGpu) -> None:
        super().__init__("torch")
        self._gpu = gpu
        self._current = "the default stream"
        self.streams: list[Any] = []
        self.added: list[bool] = []
        self.version = SimpleNamespace(cuda="13.0")
        self.float32, self.float16, self.bfloat16 = Element.F32, Element.F16, Element.BF16
        self.float8_e4m3fn = Element.E4M3
        # Whether 8-bit floats are added with fast accumulation, by launch, and the time of each.
        self.adds_fast: list[bool] = []
        self.scaled_us = {False: TORCH_US, True: TORCH_US / 2}
        allowed = dict.fromkeys(ALLOWANCES, True)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(**allowed)))
        self.cuda = SimpleNamespace(
            ExternalStream=lambda address: f"stream {address}", stream=self._on
        )

    @contextmanager
    def _on(self, stream: str) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    def as_tensor(self, other: Any, device: str) -> Tensor:
        assert device == "cuda"
        there = other.__cuda_array_interface__
        size = int(there["typestr"].lstrip("<|").removeprefix("i"))
        assert (there["version"], there["stream"]) == (3, None)
        (rows, cols), (of_row, of_col), (address, is_read_only) = (
            there["shape"],
            there["strides"],
            there["data"],
        )
        assert of_col == size
        assert of_row % size == 0
        assert not is_read_only
        return Tensor(memory(address, rows, cols, of_row // size, f"i{size}"))

    def mm(self, a: Tensor, b: Tensor, out: Tensor) -> None:
        self._multiply(1.0, a, b, 0.0, out, out)

    def addmm(
        self, c: Tensor, a: Tensor, b: Tensor, *, beta: float, alpha: float, out: Tensor
    ) -> None:
        self._multiply(alpha, a, b, beta, c, out)

    def full(self, shape: tuple[()], value: float, *, dtype: Element, device: str) -> Tensor:
        assert (dtype, device) == (Element.F32, "cuda")
        assert self._current != "the default stream"
        return Tensor(np.full(shape, value, np.float32), dtype)

    def _scaled_mm(
        self,
        a: Tensor,
        b: Tensor,
        scale_a: Tensor,
        scale_b: Tensor,
        *,
        out_dtype: Element,
        use_fast_accum: bool,
        out: Tensor,
    ) -> None:
        """Rows of A and columns of B lie without gaps between elements, and C has the type asked
        for.
        """
        assert (a.stride()[1], b.stride()[0]) == (1, 1)
        assert out_dtype is out.element
        self.adds_fast.append(use_fast_accum)
        self.streams.append(self._current)
        self._gpu.now_us += self.scaled_us[use_fast_accum]
        operands = [loaded(one.values, one.element).astype(np.float64) for one in (a, b)]
        total = float(scale_a.values) * float(scale_b.values) * (operands[0] @ operands[1])
        out.values[:] = stored(total, out.element)

    def _multiply(  # noqa: PLR0917
        self, alpha: float, a: Tensor, b: Tensor, beta: float, c: Tensor, out: Tensor
    ) -> None:
        self.worked(TORCH_US)
        operands = [loaded(one.values, one.element) for one in (a, b)]
        matmul = self.backends.cuda.matmul
        if a.element is Element.F32 and matmul.allow_tf32:
            operands = [rounded(one, DType.TF32.ab) for one in operands]
        name = {Element.BF16: "bf16", Element.F16: "fp16"}.get(a.element)
        product = operands[0].astype(np.float64) @ operands[1].astype(np.float64)
        if name and getattr(matmul, f"allow_{name}_reduced_precision_reduction"):
            # Some splits of K, whose sums lose what a few bits do not hold.
            product = rounded(product, Element.E5M2).astype(np.float64)
        total = alpha * product + (beta * loaded(c.values, c.element) if beta else 0.0)
        out.values[:] = stored(total, out.element)

    def worked(self, time_us: float) -> None:
        """Note the stream of the moment; the clock goes on."""
        self.streams.append(self._current)
        self._gpu.now_us += time_us


class Pointers:
    """Addresses of elements of a tensor, a block of them."""

    def __init__(self, tensor: Tensor, at: Any = 0) -> None:
        self.tensor, self.at = tensor, np.asarray(at)
        self.first = tensor.values.ctypes.data

    def __add__(self, by: Any) -> "Pointers":
        return Pointers(self.tensor, self.at + by)

    def elements(self, inside: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[Any], Any]:
        """All elements from the tensor's first to its last, and which of them are meant."""
        rows, cols = self.tensor.values.shape
        of_row, of_col = self.tensor.stride()
        last = (rows - 1) * of_row + (cols - 1) * of_col
        at = np.broadcast_to(self.at, inside.shape)[inside]
        row, col = (at // of_row, at % of_row) if of_row >= of_col else (at % of_col, at // of_col)
        assert ((row >= 0) & (row < rows) & (col >= 0) & (col < cols)).all(), "outside its tensor"
        return memory(self.first, 1, last + 1, last + 1, stored_type(self.tensor.element))[0], at


class Language(ModuleType):
    """The module ``triton.language``, for one program at a time."""

    constexpr = object
    float32 = np.float32

    def __init__(self) -> None:
        super().__init__("triton.language")
        self.program = 0
        self.arange = np.arange
        self.zeros = np.zeros
        self.precisions: set[str] = set()

    def program_id(self, axis: int) -> int:
        assert axis == 0
        return self.program

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)

    @staticmethod
    def load(at: Pointers, mask: npt.NDArray[np.bool_], other: float = np.nan) -> Any:
        mask = np.broadcast_to(mask, at.at.shape)
        found = np.full(mask.shape, other, np.float32)
        elements, places = at.elements(mask)
        found[mask] = loaded(elements[places], at.tensor.element)
        return found

    @staticmethod
    def store(at: Pointers, values: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> None:
        elements, places = at.elements(mask)
        elements[places] = stored(values[mask], at.tensor.element)

    def dot(self, a: Any, b: Any, sums: Any, input_precision: str) -> Any:
        self.precisions.add(input_precision)
        return sums + a.astype(np.float64) @ b.astype(np.float64)


class Jit:
    """A kernel of Triton: ``kernel[grid](arguments)`` runs its programs in turn.

    ``launched`` are the tiles; a launch takes what ``time_us`` says of one.
    """

    def __init__(self, fakes: "FakeTriton", body: Callable[..., None]) -> None:
        self._fakes, self._body = fakes, body

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        return functools.partial(self._launch, grid)

    def _launch(self, grid: tuple[int], *arguments: Any, num_warps: int, num_stages: int) -> None:
        pointers = [Pointers(one) if isinstance(one, Tensor) else one for one in arguments]
        for self._fakes.language.program in range(grid[0]):
            self._body(*pointers)
        tile = (*arguments[-5:-2], num_warps, num_stages)
        self._fakes.launched.append((grid[0], tile))
        self._fakes.torch.worked(self._fakes.times_us.get(tile, 1000.0))


class FakeTriton(ModuleType):
    """The module ``triton``. ``times_us`` are those of a launch, by tile, warps and stages."""

    __version__ = "3.5"

    def __init__(self, torch: FakeTorch) -> None:
        super().__init__("triton")
        self.torch, self.language = torch, Language()
        self.cdiv = Language.cdiv
        self.times_us: dict[tuple[int, ...], float] = {}
        self.launched: list[tuple[int, tuple[int, ...]]] = []

    def jit(self, body: Callable[..., None]) -> Jit:
        return Jit(self, body)


# In place of CUTLASS: three tiles, of which the second is the fastest. It refuses an N of 11,
# and all of them refuse a K of 7.
CUTLASS = """
extern "C" {
double now_us = 0;
void *seen_stream = nullptr;
int autogemm_num_tiles() { return 3; }
const char *autogemm_tile_name(int tile) {
    const char *const names[] = {"8x8 2 stages", "16x8 4 stages", "9x9 9 stages"};
    return names[tile];
}
int autogemm_gemm(int tile, int M, int N, int K, float alpha, const float *A, int lda,
                  const float *B, int ldb, float beta, float *C, int ldc, void *stream) {
    seen_stream = stream;
    if (K == 7 || (N == 11 && tile == 1)) return 3;
    now_us += tile == 1 ? 20 : 50;
    for (int m = 0; m < M; ++m) {
        for (int n = 0; n < N; ++n) {
            double sum = 0;
            for (int k = 0; k < K; ++k) sum += (double)A[m * lda + k] * B[k * ldb + n];
            float &c = C[m * ldc + n];
            c = (float)(alpha * sum + (beta != 0 ? (double)beta * c : 0));
        }
    }
    return 0;
}
}
"""
# In place of nvcc: g++ on the text above, if the command is one that nvcc would understand.
NVCC = """#!/bin/sh
[ "$1" = --version ] && echo "Cuda compilation tools, release 12.9, V12.9.86" && exit 0
echo "$@" >> FOLDER/commands
case "$*" in *fail*) echo "warning: a"; echo "x.cu(1): error: no b" >&2; exit 2;; esac
while [ "$1" != -o ]; do shift; done
exec g++ -O1 -shared -fPIC -x c++ FOLDER/library.cpp -o "$2"
"""
