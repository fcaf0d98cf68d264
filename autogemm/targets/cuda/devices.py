"""Which GPUs are attached, asked in a child process and remembered."""

import functools
import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass

from autogemm.model.hardware.device import Device
from autogemm.support.child_process import child_environment

PROBE_DEADLINE_S = 120.0
INSTALL_CUPY = "CuPy is not installed: pip install 'autogemm[cuda12]'"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The attached GPUs; without any, why."""

    devices: tuple[Device, ...]
    reason: str = ""


def attached_devices() -> list[Device]:
    """The attached GPUs in CUDA's order; empty without driver, GPU or CuPy. Never raises."""
    return list(probed().devices)


def why_no_device() -> str:
    """One line that says why there is no usable GPU; empty when there is one."""
    return probed().reason


@functools.cache
def probed() -> ProbeResult:
    """Ask once per process."""
    if importlib.util.find_spec("cupy") is None:
        return ProbeResult((), INSTALL_CUPY)
    command = [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker.probe"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE_S,
            env=child_environment(),
            check=False,
        )
        answer = json.loads(done.stdout)
        devices = tuple(Device(**facts) for facts in answer["devices"])
        return ProbeResult(devices, answer["reason"])
    except subprocess.TimeoutExpired:
        return ProbeResult((), f"the driver did not answer within {PROBE_DEADLINE_S:g} s")
    except (OSError, ValueError, TypeError, KeyError) as error:
        return ProbeResult((), f"asking the driver failed: {error}")
