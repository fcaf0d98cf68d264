"""The worker's hold on its GPU: memory, stream, events, graphs and the helper kernels."""

import contextlib
import gc
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autogemm.model.hardware.device import Device
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda.devices import NO_DRIVER, device_facts, no_cupy
from autogemm.targets.cuda.worker.gpu.telemetry import TelemetryReader

HELPER_THREADS = 256
MAX_HELPER_BLOCKS = 4096
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
# What the driver says of a stream whose capture something else has ended.
INVALIDATED = "captureinvalidated"


class Gpu:
    """One GPU with one stream, on which everything of the worker runs.

    Addresses are device pointers as int; a buffer lives as long as the object that
    :meth:`allocate` returned. Raises DeviceError where CuPy, driver or memory are missing.
    """

    def __init__(self, device_index: int) -> None:
        try:
            import cupy
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
                raise DeviceError(no_cupy()) from error
            raise DeviceError(f"CuPy cannot be loaded: {error}") from error
        self.cupy = cupy
        self.runtime = cupy.cuda.runtime
        self.driver = cupy.cuda.driver
        self.cuda_errors = (self.runtime.CUDARuntimeError, self.driver.CUDADriverError)
        try:
            if self.runtime.driverGetVersion() == 0:
                raise DeviceError(NO_DRIVER)
            num_devices = self.runtime.getDeviceCount()
            if device_index >= num_devices:
                raise DeviceError(f"there is no GPU {device_index}: {num_devices} attached")
            self.runtime.setDevice(device_index)
            self.runtime.memGetInfo()  # makes the context
        except self.cuda_errors as error:
            raise DeviceError(f"the GPU cannot be used: {error}") from error
        self.device = runtime_facts(self.runtime, device_index)
        self.telemetry = TelemetryReader(self.runtime.deviceGetPCIBusId(device_index))
        self._pool = cupy.cuda.MemoryPool()
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._source = files("autogemm.targets.cuda.worker.gpu").joinpath("verify.cu").read_text()
        self._helpers = cupy.RawModule(code=self._source, options=("--std=c++17",))
        self._kernels: dict[str, Any] = {}
        self.is_capturing = False

    def allocate(self, num_bytes: int) -> Any:
        """Device memory; its address is ``.ptr``, aligned to 512 bytes."""
        try:
            return self._pool.malloc(num_bytes)
        except MemoryError as error:
            raise DeviceError(f"the GPU is out of memory: {error}") from error

    def free_bytes(self) -> int:
        """Free device memory, after unused blocks went back to the driver."""
        self._pool.free_all_blocks()
        free, _ = self.runtime.memGetInfo()
        return int(free)

    def run_helper(self, name: str, count: int, *arguments: np.generic) -> None:
        """Queue a kernel of verify.cu over ``count`` elements."""
        blocks = min(MAX_HELPER_BLOCKS, -(-count // HELPER_THREADS))
        self.run_helper_blocks(name, blocks, *arguments)

    def run_helper_blocks(self, name: str, blocks: int, *arguments: np.generic) -> None:
        """Queue a kernel of verify.cu as that many blocks."""
        if name not in self._kernels:
            self._kernels[name] = self._helpers.get_function(name)
        self._kernels[name]((blocks,), (HELPER_THREADS,), arguments)

    def helpers_with(self, text: str) -> "Helpers":
        """The kernels of a text that stands behind verify.cu."""
        module = self.cupy.RawModule(code=f"{self._source}\n{text}", options=("--std=c++17",))
        return Helpers(module)

    def read(self, address: int, into: NDArray[Any]) -> None:
        """Wait for the stream, then copy device memory into the array."""
        self.runtime.memcpyAsync(
            into.ctypes.data, address, into.nbytes, DEVICE_TO_HOST, self.stream.ptr
        )
        self.stream.synchronize()

    def write(self, address: int, values: NDArray[Any], *, waits: bool = True) -> None:
        """Copy the array to device memory, behind what is queued, and wait for it.

        The caller keeps an array for which it does not wait.
        """
        self.runtime.memcpyAsync(
            address, values.ctypes.data, values.nbytes, HOST_TO_DEVICE, self.stream.ptr
        )
        if waits:
            self.stream.synchronize()

    def event(self) -> Any:
        """A new event, recorded on the stream now."""
        event = self.cupy.cuda.Event()
        event.record(self.stream)
        return event

    def microseconds(self, begin: Any, end: Any) -> float:
        """Time between two events; waits for the second."""
        end.synchronize()
        return 1e3 * float(self.cupy.cuda.get_elapsed_time(begin, end))

    def capture(self, work: Callable[[], None]) -> Any:
        """Return a CUDA graph of what ``work`` queues.

        A capture that something else ends is begun once more: modules of libraries that are
        unloaded meanwhile do so.
        """
        try:
            return self._captured(work)
        except Exception as error:
            if INVALIDATED not in str(error).replace("_", "").lower():
                raise
        return self._captured(work)

    def _captured(self, work: Callable[[], None]) -> Any:
        collects = gc.isenabled()
        # What is collected may be a module.
        gc.disable()
        self.stream.begin_capture()
        self.is_capturing = True
        try:
            work()
        except BaseException:
            # The stream must leave capture mode whatever became of the work.
            with contextlib.suppress(*self.cuda_errors):
                self.stream.end_capture()
            raise
        finally:
            self.is_capturing = False
            if collects:
                gc.enable()
        return self.stream.end_capture()


class Helpers:
    """Kernels of a text of a problem's own."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._kernels: dict[str, Any] = {}

    def run(self, name: str, count: int, *arguments: np.generic) -> None:
        """Queue a kernel with a thread for each of ``count`` elements."""
        if name not in self._kernels:
            self._kernels[name] = self._module.get_function(name)
        self._kernels[name]((-(-count // HELPER_THREADS),), (HELPER_THREADS,), arguments)


def pointer(address: int) -> np.uint64:
    """A device pointer as a kernel argument."""
    return np.uint64(address)


def runtime_facts(runtime: Any, index: int) -> Device:
    """The facts of GPU ``index``; ``runtime`` is ``cupy.cuda.runtime``."""
    properties = runtime.getDeviceProperties(index)
    return device_facts(
        properties["name"].decode(),
        int(properties["totalGlobalMem"]),
        lambda number: int(runtime.deviceGetAttribute(number, index)),
    )
