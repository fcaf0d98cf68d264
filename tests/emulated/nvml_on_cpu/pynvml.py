"""A GPU that always draws 200 W and whose energy counter moves every 20 ms."""

import time

POWER_W = 200
PERIOD_S = 0.02


class NVMLError(Exception):
    """Raised for what this GPU does not tell, as the real one does."""


def nvmlInit() -> None:  # noqa: N802
    """Nothing to do."""


def nvmlDeviceGetHandleByPciBusId(bus_id: str) -> str:  # noqa: N802
    return bus_id


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return "580.0"


def nvmlDeviceGetTotalEnergyConsumption(gpu: str) -> int:  # noqa: N802
    periods = int(time.perf_counter() / PERIOD_S)
    return int(1000 * POWER_W * PERIOD_S * periods)


def nvmlDeviceGetPowerUsage(gpu: str) -> int:  # noqa: N802
    return 1000 * POWER_W


def __getattr__(name: str) -> object:
    if name.startswith("NVML_"):
        return 0

    def unsupported(*_: object) -> int:
        raise NVMLError(name)

    return unsupported
