"""The roofs of a card: what memory delivers, what arithmetic does, in theory and as measured."""

from dataclasses import dataclass

from autogemm.device import Device
from autogemm.roofline import Ceilings


@dataclass(frozen=True, slots=True)
class Slope:
    """A memory: ``tb_s`` is 1e12 bytes a second, which is TFLOP/s at one FLOP per byte."""

    name: str
    tb_s: float


@dataclass(frozen=True, slots=True)
class Ceiling:
    """An arithmetic unit at its most."""

    name: str
    tflops: float


def roofs(device: Device, measured: Ceilings | None) -> tuple[list[Slope], list[Ceiling]]:
    """Memory roofs and compute roofs, theory first; device memory is the first slope."""
    slopes = [Slope("DRAM", 1e-3 * device.peak_bandwidth_gb_s)]
    ceilings = [Ceiling("FP32, CUDA cores", device.peak_f32_tflops)]
    if measured is not None:
        slopes.append(Slope("copy as measured", 1e-3 * measured.copy_gb_s))
        ceilings.append(Ceiling("FP32 as measured", measured.fma_tflops))
    return slopes, ceilings
