"""The part of CuPy that autogemm uses, on the CPU: device memory is host memory.

Work runs at once when it is queued, or is kept by a stream that captures. It takes the time that
it had of a core and that its kernels waited (shim.h), however busy the machine is. Machine code is
C++ source behind ``MACHINE_CODE``; its kernels take the arguments of a plain GEMM, and as many
arrays behind them as its ``num_arrays`` says, if it has one. They return 0, or anything else to
stand for an illegal address.
"""

import ctypes
import hashlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from autogemm.model.signature import PLAIN

__version__ = "0-on-cpu"

MACHINE_CODE = b"C++"
SHIM = Path(__file__).resolve().parents[1] / "shim.h"
CTYPES = {
    np.int32: ctypes.c_int32,
    np.int64: ctypes.c_int64,
    np.uint32: ctypes.c_uint32,
    np.uint64: ctypes.c_uint64,
    np.float32: ctypes.c_float,
    np.float64: ctypes.c_double,
}
int_, float_, pointer = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
GEMM_ARGUMENTS = tuple(
    pointer if argument.is_array else int_ if argument.type is None else float_
    for argument in PLAIN
)

# The seconds that pass on this GPU while its work has a second of a core. The worker loads a GPU
# for a fifth of a second before it times anything: work that appears slow gets there sooner.
SLOWER = 5.0

MAX_SMEM_BYTES = 232448
# A kernel gets this much dynamic shared memory without asking.
DEFAULT_SMEM_BYTES = 48 * 1024
MEMORY_BYTES = 2**33
# A GPU that has little L2: memory of several times its size is emptied again and again.
ATTRIBUTES = {
    1: 1024, 8: 49152, 13: 1980000, 16: 132, 36: 2619000, 37: 5120, 38: 4 * 2**20, 39: 2048,
    75: 9, 76: 0, 81: 233472, 82: 65536, 97: MAX_SMEM_BYTES, 106: 32, 111: 1024,
}  # fmt: skip


def built(source: str, name: str) -> str:
    """A shared library of that C++ source; built once per text."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    folder = Path(os.environ["CUDA_ON_CPU_FOLDER"]) / digest
    library = folder / name
    if not library.exists():
        folder.mkdir(exist_ok=True)
        # Under a name of its own first: several processes may build the same. The first one's
        # stays: the path of a loaded library whose file was replaced cannot be opened again.
        mine = folder / f"{os.getpid()}-{name}"
        # A kernel is new to each test and runs a few times, the rest is built once and runs often.
        level = "-O1" if name == "kernel.so" else "-O2"
        command = ["g++", level, "-w", "-std=c++17", "-shared", "-fPIC", "-include", str(SHIM)]
        command += ["-x", "c++", "-", "-o", str(mine)]
        subprocess.run(command, input=source, text=True, check=True)
        with suppress(FileExistsError):
            library.hardlink_to(mine)
        mine.unlink()
    return str(library)


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


captured: list[Callable[[], object]] | None = None


def queue(work: Callable[[], object]) -> None:
    if captured is None:
        work()
    else:
        captured.append(work)


def libraries() -> list[ctypes.CDLL]:
    from cupy_backends.cuda.libs.cublas import LIBRARIES

    return LIBRARIES


class RawModule:
    def __init__(self, *, code: str, options: tuple[str, ...]) -> None:
        self._library = ctypes.CDLL(built(code, "helpers.so"))

    def get_function(self, name: str) -> Callable[..., None]:
        function, set_block = getattr(self._library, name), self._library.set_block

        def launch(grid: tuple[int], block: tuple[int], arguments: tuple[Any, ...]) -> None:
            values = [CTYPES[type(argument)](argument) for argument in arguments]

            def run() -> None:
                for index in range(grid[0]):
                    set_block(index, grid[0])
                    function(*values)

            queue(run)

        return launch


class Memory:
    def __init__(self, num_bytes: int) -> None:
        self._bytes = np.full(num_bytes + 512, 0xAB, np.uint8)
        self.ptr = -(-self._bytes.ctypes.data // 512) * 512


class MemoryPool:
    def malloc(self, num_bytes: int) -> Memory:
        if num_bytes > MEMORY_BYTES:
            raise MemoryError(f"Out of memory allocating {num_bytes} bytes")
        return Memory(num_bytes)

    def free_all_blocks(self) -> None:
        pass


class Graph:
    def __init__(self, work: list[Callable[[], object]], graphs: list[int]) -> None:
        self._work, self._graphs = work, graphs

    def launch(self, stream: "Stream") -> None:
        for work in self._work:
            work()
        for library, graph in zip(libraries(), self._graphs, strict=True):
            library.replay(graph)


class Stream:
    ptr = 1

    def __init__(self, *, non_blocking: bool) -> None:
        assert non_blocking, "the default stream cannot be captured"

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        assert captured is None, "waiting for a stream that captures"

    def begin_capture(self) -> None:
        global captured  # noqa: PLW0603
        captured = []
        for library in libraries():
            library.begin_capture()

    def end_capture(self) -> Graph:
        global captured
        assert captured is not None
        graphs = [library.end_capture() for library in libraries()]
        graph, captured = Graph(captured, graphs), None
        return graph


waited_s = 0.0


def libraries_waited_s() -> float:
    return sum(ctypes.c_double.in_dll(one, "waited_s").value for one in libraries())


class Event:
    def record(self, stream: Stream) -> None:
        self.time_s = SLOWER * time.thread_time() + waited_s + libraries_waited_s()

    def synchronize(self) -> None:
        pass


asked_times = itertools.count()


def elapsed_ms(begin: Event, end: Event) -> float:
    """No two are the same, though the clock's ticks are so long that one in a hundred would be: to
    each a picosecond more is added than to the one before.
    """
    return 1e3 * (end.time_s - begin.time_s) + 1e-9 * next(asked_times)


loaded: dict[int, Any] = {}
arguments_of: dict[int, tuple[Any, ...]] = {}
waits_of: dict[int, ctypes.c_double] = {}


def module_load_data(image: bytes) -> int:
    if not image.startswith(MACHINE_CODE):
        raise CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")
    library = ctypes.CDLL(built(image[len(MACHINE_CODE) :].decode(), "kernel.so"))
    loaded[id(library)] = library
    return id(library)


def module_get_function(module: int, name: str) -> int:
    try:
        function = getattr(loaded[module], name)
    except AttributeError as error:
        raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found") from error
    loaded[id(function)] = function
    waits_of[id(function)] = ctypes.c_double.in_dll(loaded[module], "waited_s")
    has_count = hasattr(loaded[module], "num_arrays")
    count = ctypes.c_int.in_dll(loaded[module], "num_arrays").value if has_count else 0
    is_batched = hasattr(loaded[module], "is_batched")
    of_groups = [ctypes.c_int, pointer] if hasattr(loaded[module], "is_grouped") else []
    of_stacks = [*[ctypes.c_int] * 4 * is_batched, *of_groups]
    gemm_arguments = (*GEMM_ARGUMENTS, *of_stacks, *[pointer] * count)
    arguments_of[id(function)] = OTHER_ARGUMENTS.get(name, gemm_arguments)
    return id(function)


asked_smem_bytes: dict[int, int] = {}


def func_set_attribute(function: int, attribute: int, value: int) -> None:
    if value > MAX_SMEM_BYTES:
        raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    asked_smem_bytes[function] = value


def launch_kernel(function: int, *configuration: int) -> None:
    *_, bx, by, bz, smem_bytes, _stream, parameters, _extra = configuration
    granted = asked_smem_bytes.get(function, DEFAULT_SMEM_BYTES)
    if bx * by * bz > ATTRIBUTES[1] or smem_bytes > granted:
        raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    addresses = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
    # Copied now, as a launch does: the caller may change or free them.
    arguments = [
        kind(kind.from_address(addresses[place]).value)
        for place, kind in enumerate(arguments_of[function])
    ]

    waits = waits_of[function]

    def run() -> None:
        global waited_s  # noqa: PLW0603
        if loaded[function](*arguments):
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access")
        waited_s += waits.value
        waits.value = 0.0

    queue(run)


def namespace(name: str, **members: Any) -> ModuleType:
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(members)
    return module


allocated: list[Memory] = []


def malloc(num_bytes: int) -> int:
    allocated.append(Memory(num_bytes))
    return allocated[-1].ptr


runtime = namespace(
    "cupy.cuda.runtime",
    CUDARuntimeError=CUDARuntimeError,
    getDeviceCount=lambda: 1,
    setDevice=lambda index: None,
    memGetInfo=lambda: (2**32, MEMORY_BYTES),
    driverGetVersion=lambda: 13000,
    runtimeGetVersion=lambda: 12090,
    deviceGetPCIBusId=lambda index: "0000:00:00.0",
    deviceGetAttribute=lambda attribute, index: ATTRIBUTES[attribute],
    getDeviceProperties=lambda index: {"name": b"a CPU", "totalGlobalMem": MEMORY_BYTES},
    memsetAsync=lambda address, value, count, stream: queue(
        lambda: ctypes.memset(address, value, count)
    ),
    malloc=malloc,
    free=lambda address: None,
    memcpy=lambda target, source, count, kind: ctypes.memmove(target, source, count),
    deviceSynchronize=lambda: None,
    memcpyAsync=lambda target, source, count, kind, stream: ctypes.memmove(target, source, count),
)
# Arguments of the kernels in ceilings.cu.
OTHER_ARGUMENTS = {
    "fma_kernel": (ctypes.c_void_p, ctypes.c_float, ctypes.c_float, ctypes.c_int),
    "copy_kernel": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "l2_kernel": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    "smem_kernel": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    **{
        f"{level}_latency_kernel": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)
        for level in ("smem", "l1", "l2")
    },
}
driver = namespace(
    "cupy.cuda.driver",
    CUDADriverError=CUDADriverError,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
    moduleLoadData=module_load_data,
    moduleGetFunction=module_get_function,
    moduleUnload=lambda module: None,
    funcSetAttribute=func_set_attribute,
    launchKernel=launch_kernel,
)
cuda = namespace(
    "cupy.cuda",
    runtime=runtime,
    driver=driver,
    MemoryPool=MemoryPool,
    Stream=Stream,
    Event=Event,
    get_elapsed_time=elapsed_ms,
)
