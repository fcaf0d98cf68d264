"""Reads arrays of other libraries. None of them is imported here: an array brings its own."""

import ctypes
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from autogemm.model.dtypes import Element
from autogemm.runtime.driver import cuda_driver
from autogemm.support.errors import UsageError

# By the names that libraries give them.
_ELEMENTS = {one.array_name: one for one in Element if one.array_name is not None}
# Kinds of elements in ``__cuda_array_interface__``.
_KINDS = {"f": "float", "i": "int"}
# DLPack: kDLCUDA and kDLCUDAManaged; names of element types by type code and bits.
_DLPACK_CUDA = (2, 13)
_DLPACK_NAMES = {one.dlpack: name for name, one in _ELEMENTS.items()}
# The legacy default stream, as both protocols spell it.
_LEGACY_STREAM = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of an array: shape and strides in elements, the device's number, the address."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: Element
    device: int
    address: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Library:
    """A way to read one kind of arrays.

    ``key`` is all but the address that a plan depends on, cheap to compute and to compare;
    ``address`` the start in memory, ``memory`` all of it. ``stream`` is the library's current
    stream on a device; None where it has none, and arrays name theirs. ``empty`` makes an array of
    a shape like another one; None where the caller must bring it.

    Functions of the libraries stand here bare where they can: a call is to cost microseconds.
    """

    name: str
    key: Callable[[Any], Hashable]
    address: Callable[[Any], int]
    memory: Callable[[Any], Memory]
    stream: Callable[[int], int] | None = None
    empty: Callable[[tuple[int, ...], Any], Any] | None = None


# By type; `library_of` fills it.
LIBRARIES: dict[type, Library] = {}


def library_of(array: Any) -> Library:
    """Return the way to read such arrays. Raises UsageError for what is not an array on a GPU."""
    kind = type(array)
    if kind not in LIBRARIES:
        LIBRARIES[kind] = _library_of(array)
    return LIBRARIES[kind]


def _library_of(array: Any) -> Library:
    kind = type(array)
    root = kind.__module__.partition(".")[0]
    if root == "torch" and hasattr(array, "data_ptr"):
        return _torch(sys.modules["torch"])
    if root == "cupy" and hasattr(array, "__cuda_array_interface__"):
        return _cupy(sys.modules["cupy"])
    if hasattr(array, "__cuda_array_interface__"):
        return _through(kind.__name__, _of_interface)
    if hasattr(array, "__dlpack__"):
        return _through(kind.__name__, _of_dlpack)
    raise UsageError(
        f"{kind.__module__}.{kind.__name__} is not an array on a GPU: pass arrays of CuPy or "
        "torch, or any with __cuda_array_interface__ or __dlpack__"
    )


def _torch(torch: Any) -> Library:
    def key(tensor: Any) -> Hashable:
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device()

    def memory(tensor: Any) -> Memory:
        if not tensor.is_cuda:
            raise UsageError(f"a torch tensor is on {tensor.device}, not on a GPU: call .cuda()")
        return Memory(
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            element=_element(str(tensor.dtype).removeprefix("torch.")),
            device=tensor.get_device(),
            address=tensor.data_ptr(),
        )

    def stream(index: int) -> int:
        return int(torch.cuda.current_stream(index).cuda_stream)

    return Library(
        "torch",
        key=key,
        address=torch.Tensor.data_ptr,
        memory=memory,
        # The public way makes an object of the number first.
        stream=getattr(torch._C, "_cuda_getCurrentRawStream", stream),
        empty=lambda shape, like: like.new_empty(shape),
    )


def _cupy(cupy: Any) -> Library:
    def key(array: Any) -> Hashable:
        return array.shape, array.strides, array.dtype.char, array.data.device_id

    def memory(array: Any) -> Memory:
        return Memory(
            shape=tuple(array.shape),
            strides=_in_elements(array.strides, array.itemsize),
            element=_element(array.dtype.name),
            device=int(array.data.device_id),
            address=int(array.data.ptr),
        )

    get_current_stream = cupy.cuda.get_current_stream
    current_device = cupy.cuda.runtime.getDevice

    def empty(shape: tuple[int, ...], like: Any) -> Any:
        if current_device() == like.data.device_id:
            return cupy.ndarray(shape, like.dtype)
        with like.device:
            return cupy.ndarray(shape, like.dtype)

    return Library(
        "cupy",
        key=key,
        address=attrgetter("data.ptr"),
        memory=memory,
        stream=lambda index: int(get_current_stream(index).ptr),
        empty=empty,
    )


def _through(name: str, memory: Callable[[Any], Memory]) -> Library:
    """Return a library that is known by a protocol only: arrays are read anew at each call."""

    def key(array: Any) -> Hashable:
        found = memory(array)
        return found.shape, found.strides, found.element, found.device

    return Library(name, key=key, address=lambda array: memory(array).address, memory=memory)


def _of_interface(array: Any) -> Memory:
    """Read ``__cuda_array_interface__``, version 2 or later; the driver knows the device."""
    said = array.__cuda_array_interface__
    if said.get("mask") is not None:
        raise UsageError("masked arrays are not supported: pass the data without its mask")
    kind = str(said["typestr"])
    if kind[0] == ">" or kind[1] not in _KINDS:
        raise UsageError(f"gemm has no kernels for {kind}, only for {', '.join(_ELEMENTS)}")
    shape, itemsize = tuple(map(int, said["shape"])), int(kind[2:])
    address = int(said["data"][0])
    strides = said.get("strides")
    return Memory(
        shape=shape,
        strides=packed(shape) if strides is None else _in_elements(strides, itemsize),
        element=_element(f"{_KINDS[kind[1]]}{8 * itemsize}"),
        device=cuda_driver().device_of(address) if address else 0,
        address=address,
        stream=int(said.get("stream") or 0),
    )


class _DLTensor(ctypes.Structure):
    """The head of DLManagedTensor, as dlpack.h has it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _of_dlpack(array: Any) -> Memory:
    """Read ``__dlpack__``. The capsule is only looked at: it frees its tensor when it goes."""
    kind, _ = array.__dlpack_device__()
    if int(kind) not in _DLPACK_CUDA:
        raise UsageError(
            f"{type(array).__name__} is not on a GPU (DLPack device type {int(kind)}): copy it to "
            "one"
        )
    capsule = array.__dlpack__(stream=_LEGACY_STREAM)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DLTensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    name = _DLPACK_NAMES.get((tensor.code, tensor.bits), f"type {tensor.code}/{tensor.bits} bits")
    return Memory(
        shape=shape,
        strides=tuple(tensor.strides[axis] for axis in range(tensor.ndim))
        if tensor.strides
        else packed(shape),
        element=_element(name),
        device=int(tensor.device_id),
        address=(tensor.data or 0) + int(tensor.byte_offset),
    )


def _element(name: str) -> Element:
    if name not in _ELEMENTS:
        raise UsageError(f"gemm has no kernels for {name}, only for {', '.join(_ELEMENTS)}")
    return _ELEMENTS[name]


def _in_elements(strides: Any, itemsize: int) -> tuple[int, ...]:
    if any(stride % itemsize for stride in strides):
        raise UsageError(f"strides of {list(strides)} bytes are not multiples of {itemsize}")
    return tuple(int(stride) // itemsize for stride in strides)


def packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array whose elements lie side by side, the last dimension fastest."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
