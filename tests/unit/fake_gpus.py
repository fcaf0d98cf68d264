"""The GPUs that a test wants to be attached to this machine."""

import pytest

from autogemm.model.hardware.device import Device
from autogemm.targets import choose, cuda


def attach(
    monkeypatch: pytest.MonkeyPatch, *devices: Device, why: str = "no driver is loaded"
) -> None:
    """Attach these to CUDA and none to any other target; ``why`` says why there is none."""
    monkeypatch.setattr(choose, "GPU_TARGETS", {"cuda": choose.GPU_TARGETS["cuda"]})
    monkeypatch.setattr(cuda, "attached_devices", lambda: list(devices))
    monkeypatch.setattr(cuda, "why_no_device", lambda: "" if devices else why)
