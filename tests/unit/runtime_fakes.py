"""A driver that runs kernels in NumPy, by what their text says they compute, and arrays for it."""

import ctypes
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.model.signature import PLAIN
from autogemm.runtime import plans

c_int, c_float, c_pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
ARGUMENTS = [
    c_pointer if argument.is_array else c_int if argument.type is None else c_float
    for argument in PLAIN
]


class HostArray:
    """An array of NumPy that says it is on GPU 0, by the CUDA array interface."""

    stream: int | None = None

    def __init__(self, data: Any) -> None:
        self.data = data

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        said = dict(self.data.__array_interface__, version=3)
        return said if self.stream is None else {**said, "stream": self.stream}

    def __setitem__(self, where: Any, value: Any) -> None:
        self.data[where] = value.data if isinstance(value, HostArray) else value

    def __imul__(self, factor: float) -> "HostArray":
        self.data *= factor
        return self


class OtherArray(HostArray):
    """The same of another library."""


class FakeCompiler:
    """Machine code is the text itself."""

    compiled: list[str] = []  # noqa: RUF012  # emptied by the fixture

    def __init__(self, threads: int) -> None:
        pass

    def compile(self, source: KernelSource, arch: str) -> CompiledKernel:
        self.compiled.append(source.sha256)
        code = source.text.encode()
        return CompiledKernel(source.sha256, arch, code, (), "", "", (), 0.0)

    def close(self) -> None:
        pass


@dataclass
class FakeDriver:
    """Holds each launch to what the kernel's head says that it is valid for."""

    launches: list[tuple[int, int]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)
    refuses: bool = False
    gpu: str = "h100"

    def device(self, index: int) -> Device:
        return find_device(self.gpu)

    def device_of(self, address: int) -> int:
        return 0

    def context(self, index: int) -> int:
        return 100 + index

    def load(self, context: int, cubin: bytes) -> int:
        self.texts.append(cubin.decode())
        return len(self.texts) - 1

    def function(self, context: int, module: int, name: str, smem_bytes: int) -> int:
        return module

    def zeros(self, context: int, num_bytes: int) -> int:
        kept = np.zeros(num_bytes, np.uint8)
        self.memory[kept.ctypes.data] = kept
        return int(kept.ctypes.data)

    def copy(self, context: int, content: bytes) -> int:
        address = self.zeros(context, len(content))
        ctypes.memmove(address, content, len(content))
        return address

    def free(self, context: int, address: int) -> None:
        del self.memory[address]

    def call(self, *call: Any) -> tuple[Any, ...]:
        return self.launch, call

    def launch(self, *call: Any) -> int:
        if self.refuses:
            return 201
        function, _, stream, arguments = call
        pointers = (ctypes.c_void_p * len(ARGUMENTS)).from_address(arguments)
        values = [
            kind.from_address(pointers[place] or 0).value for place, kind in enumerate(ARGUMENTS)
        ]
        self.launches.append((function, stream))
        _compute(self.texts[function], values)
        return 0

    def relaunch(self, context: int, call: tuple[Any, ...]) -> None:
        self.refuses = False
        self.contexts.append(context)
        launch, arguments = call
        assert launch(*arguments) == 0


def _compute(text: str, values: list[Any]) -> None:
    m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = values
    _require_valid(text, {"M": m, "N": n, "K": k}, {"A": (a, lda), "B": (b, ldb), "C": (c, ldc)})
    layout = re.search(r"[Ll]ayout (..):", text)
    assert layout is not None, "a kernel says its layout"
    left = _matrix(a, k, m, lda).T if layout[1][0] == "t" else _matrix(a, m, k, lda)
    right = _matrix(b, n, k, ldb).T if layout[1][1] == "t" else _matrix(b, k, n, ldb)
    result = _matrix(c, m, n, ldc)
    old = beta * result if beta else 0.0
    result[...] = alpha * (left.astype(np.float64) @ right) + old


def _require_valid(
    text: str, extents: dict[str, int], matrices: dict[str, tuple[int, int]]
) -> None:
    """The lines below "Valid for:" in the text."""
    tile = dict(re.findall(r"constexpr int (B[MNK]) = (\d+);", text))
    for name, extent in extents.items():
        if f"{name}: multiples of B{name}" in text:
            assert extent % int(tile[f"B{name}"]) == 0, f"{name} = {extent} has an edge"
    for name, (address, stride) in matrices.items():
        said = re.search(
            rf"{name}: aligned to (\d+) bytes, ld{name.lower()} a multiple of (\d)", text
        )
        if said is not None:
            assert address % int(said[1]) == 0 and stride % int(said[2]) == 0, said[0]


def _matrix(address: int, rows: int, columns: int, stride: int) -> Any:
    floats = (ctypes.c_float * ((rows - 1) * stride + columns)).from_address(address)
    flat = np.ctypeslib.as_array(floats)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4 * stride, 4))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> FakeDriver:
    """A GPU without results in its database."""
    from autogemm import forget
    from autogemm.runtime import arrays

    fake = FakeDriver()
    monkeypatch.setattr(plans, "cuda_driver", lambda: fake)
    monkeypatch.setattr(arrays, "cuda_driver", lambda: fake)
    monkeypatch.setattr(plans, "Compiler", FakeCompiler)
    monkeypatch.setattr(FakeCompiler, "compiled", [])
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "none.db"))
    forget()
    yield fake
    forget()
