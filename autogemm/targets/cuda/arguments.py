"""Arguments of a GEMM's kernels as values of C, and the tensor maps among them.

The driver's cuTensorMapEncodeTiled makes the maps. It is called by ctypes: CuPy has no such
function, and the driver is there wherever there is a GPU. The numbers are those of cuda.h, whose
ABI is stable.
"""

import ctypes
from functools import cache
from typing import Any

from autogemm.model.kernel import LaunchPlan, TensorMap
from autogemm.model.problem import Problem
from autogemm.model.signature import Argument, ArgumentKind, extents, factors
from autogemm.support.errors import DeviceError

# A CUtensorMap: 128 bytes, aligned to 64.
_WORDS = ctypes.c_uint64 * 16
MAP_BYTES = ctypes.sizeof(_WORDS)
MAP_ALIGNMENT = 64
RawMap = ctypes.Array[ctypes.c_uint64]

# CUtensorMapSwizzle by its bytes, and CUtensorMapL2promotion: one line of L2, or two.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
ONE_LINE, TWO_LINES, LINE_BYTES = 2, 3, 128
# CUtensorMapInterleave and CUtensorMapFloatOOBfill are none: what lies outside reads as zero.
NONE = 0

CValue = ctypes.c_int | ctypes.c_float | ctypes.c_void_p | RawMap


def argument_values(plan: LaunchPlan, problem: Problem) -> dict[str, CValue]:
    """A value for each argument of the plan's kernels, by name and in order.

    Sizes, leading dimensions and factors are those of the problem, a family's own numbers neutral.
    Addresses are 0 and tensor maps empty: the caller fills them in.
    """
    given: dict[str, int | float] = {**extents(problem), **factors(problem)}
    given |= {extra.argument.name: extra.neutral for extra in plan.extras}

    def value(argument: Argument) -> CValue:
        if argument.kind is ArgumentKind.TENSOR_MAP:
            return room_for_map()
        if argument.is_array:
            return ctypes.c_void_p()
        if argument.type is None:
            return ctypes.c_int(int(given[argument.name]))
        return ctypes.c_float(given[argument.name])

    return {argument.name: value(argument) for argument in plan.signature}


def pointers_to(values: dict[str, CValue]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of the values, as a launch takes them. The values must outlive it."""
    return (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values.values()))


def room_for_map() -> RawMap:
    """Memory for one map, at an address as the driver wants it."""
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    return _WORDS.from_buffer(room, -ctypes.addressof(room) % MAP_ALIGNMENT)


def l2_promotion(ld_bytes: int) -> int:
    """How much L2 fetches at a time for TMA: two lines, or one where rows do not begin on lines.

    Of these a box has two lines a row, of which L2 would fetch four.
    """
    return TWO_LINES if ld_bytes % LINE_BYTES == 0 else ONE_LINE


def encode(tensor_map: TensorMap, address: int, into: RawMap) -> None:
    """Write the map of a matrix that begins at that address: what kernels take as argument.

    Raises DeviceError where the driver refuses.
    """
    element = tensor_map.element
    extent, pitches, box = tensor_map.dimensions()
    rank, ld_bytes = len(extent), pitches[0]
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(ctypes.addressof(into)),
        element.tensor_map_number,
        rank,
        ctypes.c_void_p(address + tensor_map.offset_bytes),
        (ctypes.c_uint64 * rank)(*extent),
        (ctypes.c_uint64 * (rank - 1))(*pitches),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        NONE,
        SWIZZLES[tensor_map.swizzle_bytes],
        l2_promotion(ld_bytes),
        NONE,
    )
    if status:
        columns, rows = tensor_map.extent
        shown = "x".join(map(str, reversed(tensor_map.box)))
        raise DeviceError(
            f"the driver makes no tensor map of {tensor_map.matrix} (CUDA error {status}): "
            f"{element} {rows}x{columns}, {ld_bytes} bytes from row to row, box {shown}, swizzle "
            f"{tensor_map.swizzle_bytes}"
        )


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"no NVIDIA driver is installed: {error}") from error
