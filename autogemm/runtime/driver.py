"""The CUDA driver, called directly: kernels run in the caller's context, on the caller's stream.

No CUDA library for Python is needed, so that any one's arrays will do, and a launch costs what the
driver takes and a microsecond. Functions and attributes are those of cuda.h, whose ABI is stable.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import DEFAULT_SMEM_BYTES, Launch
from autogemm.support.errors import DeviceError
from autogemm.targets.cuda import DependentLaunch, device_facts, driver_overlaps

# Driver numbers: CUfunction_attribute, CUpointer_attribute, CUstream_flags, CUstreamCaptureMode.
MAX_DYNAMIC_SMEM = 8
DEVICE_ORDINAL = 9
NON_BLOCKING = 1
RELAXED = 2

# The driver's function, and what it takes.
LaunchCall = tuple[Callable[..., int], tuple[Any, ...]]


class CudaDriver:
    """The driver of this machine; handles and addresses are integers.

    The function of a `call` returns 0, or why the driver refused; every method raises DeviceError
    then.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._cuda = library
        self._call("cuInit", 0)

    def device(self, index: int) -> Device:
        """Return the facts of a GPU."""
        name, memory_bytes = ctypes.create_string_buffer(256), ctypes.c_size_t()
        self._call("cuDeviceGetName", name, len(name), index)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory_bytes), index)

        def attribute(number: int) -> int:
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), number, index)
            return value.value

        return device_facts(name.value.decode(), memory_bytes.value, attribute)

    def device_of(self, address: int) -> int:
        """Return the number of the GPU that an address is on."""
        ordinal = ctypes.c_int()
        self._call(
            "cuPointerGetAttribute", ctypes.byref(ordinal), DEVICE_ORDINAL, ctypes.c_uint64(address)
        )
        return ordinal.value

    def context(self, index: int) -> int:
        """Return the GPU's primary context: what torch, CuPy and the CUDA runtime use."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), index)
        return _number(context)

    def load(self, context: int, cubin: bytes) -> int:
        """Load machine code; return the module."""
        module = ctypes.c_void_p()
        with self._in(context):
            self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        return _number(module)

    def function(self, context: int, module: int, name: str, smem_bytes: int) -> int:
        """Return a kernel of a module, allowed that much dynamic shared memory."""
        function = ctypes.c_void_p()
        handle = ctypes.c_void_p(module)
        with self._in(context):
            self._call("cuModuleGetFunction", ctypes.byref(function), handle, name.encode())
            if smem_bytes > DEFAULT_SMEM_BYTES:
                self._call("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM, smem_bytes)
        return _number(function)

    def zeros(self, context: int, num_bytes: int) -> int:
        """Allocate memory that is zero, also while a stream of this thread is captured."""
        return self._filled(context, num_bytes, "cuMemsetD8Async", ctypes.c_ubyte(0))

    def copy(self, context: int, content: bytes) -> int:
        """Allocate memory with these bytes, also while a stream of this thread is captured."""
        return self._filled(context, len(content), "cuMemcpyHtoDAsync_v2", content)

    def _filled(self, context: int, num_bytes: int, function: str, content: object) -> int:
        address, stream = ctypes.c_uint64(), ctypes.c_void_p()
        count = ctypes.c_size_t(num_bytes)
        with self._in(context), self._beside_captures():
            self._call("cuMemAlloc_v2", ctypes.byref(address), count)
            self._call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
            self._call(function, address, content, count, stream)
            self._call("cuStreamSynchronize", stream)
            self._call("cuStreamDestroy_v2", stream)
        return address.value

    def free(self, context: int, address: int) -> None:
        """Give memory back; waits for what uses it."""
        with self._in(context):
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def call(self, function: int, launch: Launch, stream: int, arguments: int) -> LaunchCall:
        """Return a launch ready for the driver: its bare function, since a method around it would
        cost as much as the call, and what it takes, converted for ctypes, which costs three
        microseconds.

        ``arguments`` is the address of an array of pointers.
        """
        at, none = ctypes.c_void_p(arguments), ctypes.c_void_p()
        kernel = ctypes.c_void_p(function)
        extents = (launch.grid, launch.threads, launch.smem_bytes)
        if launch.overlaps and driver_overlaps():
            dependent = DependentLaunch.of(*extents, stream)
            return self._cuda.cuLaunchKernelEx, (ctypes.byref(dependent.config), kernel, at, none)
        grid, threads, smem_bytes = extents
        others = (smem_bytes, ctypes.c_void_p(stream), at, none)
        return self._cuda.cuLaunchKernel, (kernel, *grid, *threads, *others)

    def relaunch(self, context: int, call: LaunchCall) -> None:
        """Launch with that context current, whichever the thread has."""
        function, arguments = call
        with self._in(context):
            status = function(*arguments)
        if status:
            raise DeviceError(f"the kernel does not start: {self._message(status)}")

    @contextmanager
    def _in(self, context: int) -> Iterator[None]:
        """Make the context current in this thread meanwhile."""
        self._call("cuCtxPushCurrent_v2", ctypes.c_void_p(context))
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def _beside_captures(self) -> Iterator[None]:
        """Allow calls that are no part of a captured graph."""
        mode = ctypes.c_int(RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self._cuda, function)(*arguments)
        if status:
            raise DeviceError(f"{function}: {self._message(status)}")

    def _message(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"unknown error %d" % status).decode()


@cache
def cuda_driver() -> CudaDriver:
    """The driver, once per process. Raises DeviceError without one."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver is installed: {error}") from error
    return CudaDriver(library)


def _number(handle: ctypes.c_void_p) -> int:
    assert handle.value is not None, "the driver gave a handle"
    return handle.value
