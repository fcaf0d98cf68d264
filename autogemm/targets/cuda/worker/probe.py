"""Facts of the attached GPUs. ``python -m autogemm.targets.cuda.worker.probe`` prints them as JSON.

Run in a process of its own by :mod:`autogemm.targets.cuda.devices`, because even asking for the
number of GPUs initialises the driver.
"""

import json
from dataclasses import asdict
from typing import Any

from autogemm.targets.cuda.devices import NO_DRIVER
from autogemm.targets.cuda.worker.gpu.gpu import runtime_facts


def probe() -> dict[str, Any]:
    """``devices`` as a list of field values, and ``reason`` why it is empty."""
    try:
        from cupy.cuda import runtime

        if runtime.driverGetVersion() == 0:
            return {"devices": [], "reason": NO_DRIVER}
        num_devices = runtime.getDeviceCount()
        devices = [asdict(runtime_facts(runtime, index)) for index in range(num_devices)]
    except Exception as error:
        return {"devices": [], "reason": f"CUDA does not start: {' '.join(str(error).split())}"}
    return {"devices": devices, "reason": "" if devices else "the driver shows no GPU"}


if __name__ == "__main__":
    print(json.dumps(probe()))
