"""Tensor maps for the GPU, made by the driver's cuTensorMapEncodeTiled.

Called by ctypes: CuPy has no such function, and the driver is there wherever there is a GPU. The
numbers are those of cuda.h, whose ABI is stable.
"""

import ctypes
from functools import cache
from typing import Any

from autogemm.model.kernel import TensorMap
from autogemm.support.errors import DeviceError

# A CUtensorMap: 128 bytes, aligned to 64.
_WORDS = ctypes.c_uint64 * 16
MAP_BYTES = ctypes.sizeof(_WORDS)
MAP_ALIGNMENT = 64
RawMap = ctypes.Array[ctypes.c_uint64]

# CUtensorMapSwizzle, CUtensorMapL2promotion: 256 bytes.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
L2_PROMOTION = 3
# Of CUtensorMapInterleave and CUtensorMapFloatOOBfill: none; what lies outside reads as zero.
NONE = 0


def room_for_map() -> RawMap:
    """Memory for one map, at an address as the driver wants it."""
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    return _WORDS.from_buffer(room, -ctypes.addressof(room) % MAP_ALIGNMENT)


def encode(tensor_map: TensorMap, address: int, into: RawMap) -> None:
    """Write the map of a matrix that begins at that address: what kernels take as argument.

    Raises DeviceError where the driver refuses.
    """
    element = tensor_map.element
    ld_bytes = element.size_bytes * tensor_map.ld
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(into)),
        element.tensor_map_number,
        2,
        ctypes.c_void_p(address + tensor_map.offset_bytes),
        (ctypes.c_uint64 * 2)(*tensor_map.extent),
        (ctypes.c_uint64 * 1)(ld_bytes),
        (ctypes.c_uint32 * 2)(*tensor_map.box),
        (ctypes.c_uint32 * 2)(1, 1),
        NONE,
        SWIZZLES[tensor_map.swizzle_bytes],
        L2_PROMOTION,
        NONE,
    )
    if status:
        columns, rows = tensor_map.extent
        box = "x".join(map(str, reversed(tensor_map.box)))
        raise DeviceError(
            f"the driver makes no tensor map of {tensor_map.matrix} (CUDA error {status}): "
            f"{element} {rows}x{columns}, {ld_bytes} bytes from row to row, box {box}, swizzle "
            f"{tensor_map.swizzle_bytes}"
        )


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver is installed: {error}") from error
