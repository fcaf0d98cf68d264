"""A card, reached through a worker process; the only place that imports cupy.

The parent (:class:`CudaTarget`) asks, the worker (``worker.py`` with ``backend.py``) owns the
card: it may hang, crash or have its context poisoned by a candidate, and is then replaced.
"""

from autogemm.targets.cuda.arguments import CValue, argument_values, pointers_to
from autogemm.targets.cuda.ceilings import ceilings_source
from autogemm.targets.cuda.devices import attached_devices, why_no_device
from autogemm.targets.cuda.probe import device_facts
from autogemm.targets.cuda.target import CudaTarget
from autogemm.targets.cuda.tensor_maps import RawMap, encode

__all__ = [
    "CValue",
    "CudaTarget",
    "RawMap",
    "argument_values",
    "attached_devices",
    "ceilings_source",
    "device_facts",
    "encode",
    "pointers_to",
    "why_no_device",
]
