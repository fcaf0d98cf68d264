"""Clocks, power and temperature from NVML, sampled beside the timings. Optional throughout."""

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from autogemm.model.results.outcome import Telemetry

# Reasons of NVML (nvml.h, nvmlClocksThrottleReason...) by which the GPU is slowed down from
# outside: 0x8 hardware slowdown, 0x20 and 0x40 heat, 0x80 the power supply's brake. Not the power
# limit (0x4): a kernel that reaches it does so wherever it runs, and is measured with it.
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80


def is_throttled(reading: Telemetry) -> bool:
    """Whether times taken just now say more about the GPU's state than about the kernel."""
    return bool((reading.throttle_reasons or 0) & THROTTLED)


class TelemetryReader:
    """Reads one GPU by its PCI bus id. Without NVML every reading is empty."""

    def __init__(self, pci_bus_id: str) -> None:
        self._nvml: Any = None
        self.driver_version = ""
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
            version = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError:
            return
        self.driver_version = version.decode() if isinstance(version, bytes) else str(version)
        self._nvml = pynvml

    def read(self) -> Telemetry:
        """Return the driver's readings now; takes well under a millisecond on most GPUs."""
        if self._nvml is None:
            return Telemetry()
        nvml, gpu = self._nvml, self._handle
        milliwatts = self._value(lambda: nvml.nvmlDeviceGetPowerUsage(gpu))
        return Telemetry(
            sm_clock_mhz=self._value(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=self._value(
                lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)
            ),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._value(
                lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            ),
            throttle_reasons=self._value(
                lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
            ),
        )

    def energy_mj(self) -> int | None:
        """The GPU's energy counter in millijoules since the driver was loaded; Volta and later."""
        if self._nvml is None:
            return None
        return self._value(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _value(self, ask: Callable[[], Any]) -> int | None:
        """One reading; a GPU, driver or binding that cannot tell is no error."""
        try:
            return int(ask())
        except (self._nvml.NVMLError, AttributeError):
            return None


def summary(readings: Iterable[Telemetry]) -> Telemetry:
    """Medians over several readings; every throttle reason that was seen."""
    seen = list(readings)

    def median(name: str) -> float | None:
        values = [value for one in seen if (value := getattr(one, name)) is not None]
        return statistics.median(values) if values else None

    def whole(name: str) -> int | None:
        value = median(name)
        return None if value is None else round(value)

    reasons: int | None = None
    for one in seen:
        if one.throttle_reasons is not None:
            reasons = (reasons or 0) | one.throttle_reasons
    return Telemetry(
        sm_clock_mhz=whole("sm_clock_mhz"),
        memory_clock_mhz=whole("memory_clock_mhz"),
        power_w=median("power_w"),
        temperature_c=whole("temperature_c"),
        throttle_reasons=reasons,
    )
