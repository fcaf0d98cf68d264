"""A GPU, reached through a worker process; the only place that imports cupy.

The parent (:class:`CudaTarget`) asks, the worker (``worker.py`` with ``backend.py``) owns the
GPU: it may hang, crash or have its context poisoned by a candidate, and is then replaced.
"""

from autogemm.targets.cuda.devices import attached_devices, why_no_device
from autogemm.targets.cuda.facts import device_facts
from autogemm.targets.cuda.target import CudaTarget
from autogemm.targets.cuda.tensor_maps import RawMap, encode, room_for_map

__all__ = [
    "CudaTarget",
    "RawMap",
    "attached_devices",
    "device_facts",
    "encode",
    "room_for_map",
    "why_no_device",
]
