"""A card, reached through a worker process; the only place that imports cupy.

The parent (:class:`CudaTarget`) asks, the worker (``worker.py`` with ``backend.py``) owns the
card: it may hang, crash or have its context poisoned by a candidate, and is then replaced.
"""

from autogemm.targets.cuda.devices import attached_devices, why_no_device
from autogemm.targets.cuda.target import CudaTarget

__all__ = ["CudaTarget", "attached_devices", "why_no_device"]
