"""Programmatic dependent launch: a kernel whose blocks may be there before the one before it in the
stream has ended (CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization).

The driver's cuLaunchKernelEx takes it as an attribute. It is called by ctypes: CuPy has no such
function. The numbers are those of cuda.h, whose ABI is stable.
"""

import ctypes
from dataclasses import dataclass
from functools import cache

# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
PROGRAMMATIC_STREAM_SERIALIZATION = 6
# The first driver that captures such launches into graphs: 12.3.
OLDEST_DRIVER = 12030

Extents = tuple[int, int, int]


class LaunchAttribute(ctypes.Structure):
    """``CUlaunchAttribute``: its value is a union of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class LaunchConfig(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class DependentLaunch:
    """What cuLaunchKernelEx takes for such a launch; the structures must outlive the call."""

    config: LaunchConfig
    attribute: LaunchAttribute

    @classmethod
    def of(cls, grid: Extents, threads: Extents, smem_bytes: int, stream: int) -> "DependentLaunch":
        """Return the launch of so many blocks and threads on a stream."""
        attribute = LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION, b"", 1, b"")
        config = LaunchConfig(
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*threads),
            smem_bytes,
            stream,
            ctypes.pointer(attribute),
            1,
        )
        return cls(config, attribute)


@cache
def driver_overlaps() -> bool:
    """Whether the driver of this machine launches so, in graphs too. Without, kernels follow one
    another as they always do: they are right, and only begin later.
    """
    try:
        library = driver_library()
    except OSError:
        return False
    version = ctypes.c_int()
    return not library.cuDriverGetVersion(ctypes.byref(version)) and version.value >= OLDEST_DRIVER


def driver_library() -> ctypes.CDLL:
    """Return the NVIDIA driver. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


def launch_dependent(function: int, launch: DependentLaunch, arguments: int) -> int:
    """Queue it; return the driver's status. ``arguments``: the address of an array of pointers."""
    return int(
        driver_library().cuLaunchKernelEx(
            ctypes.byref(launch.config),
            ctypes.c_void_p(function),
            ctypes.c_void_p(arguments),
            ctypes.c_void_p(),
        )
    )
