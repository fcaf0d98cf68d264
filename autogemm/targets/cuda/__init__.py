"""A GPU, reached through a worker process; only the worker imports CuPy.

The parent (:class:`CudaTarget`) asks, the worker (``worker/``) owns the GPU: it may hang, crash or
have its context poisoned by a candidate, and is then replaced.
"""

from autogemm.targets.cuda.arguments import CValue, RawMap, argument_values, encode, pointers_to
from autogemm.targets.cuda.dependent_launch import DependentLaunch, driver_overlaps
from autogemm.targets.cuda.devices import attached_devices, device_facts, why_no_device
from autogemm.targets.cuda.target import CudaTarget

__all__ = [
    "CValue",
    "CudaTarget",
    "DependentLaunch",
    "RawMap",
    "argument_values",
    "attached_devices",
    "device_facts",
    "driver_overlaps",
    "encode",
    "pointers_to",
    "why_no_device",
]
