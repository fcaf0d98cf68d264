"""The roofs of a card: what memory delivers, what arithmetic does, in theory and as measured."""

from dataclasses import dataclass

from autogemm.catalogue.gpus import roof_of
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Ceilings, Device

# One for each kind of products; what C is made of makes no difference.
TENSOR_DTYPES = tuple(one for one in DType.one_each() if not one.has_fp32_products)


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
    """Memory roofs and compute roofs, theory first; device memory is the first slope.

    The roof of L2 is that of matrices which stay there; what shared memory delivers bounds no
    kernel by the bytes that must move. Both are empty for a card of which no more than the name is
    known.
    """
    theory = roof_of(device)
    if theory is None:
        return [], []
    slopes = [Slope("DRAM", 1e-3 * theory.bandwidth_gb_s)]
    ceilings = [Ceiling("FP32, CUDA cores", theory.peak_tflops)]
    if measured is not None:
        slopes.append(Slope("copy as measured", 1e-3 * measured.copy_gb_s))
        ceilings.append(Ceiling("FP32 as measured", measured.fma_tflops))
        if measured.l2_gb_s is not None:
            slopes.append(Slope("L2 as measured", 1e-3 * measured.l2_gb_s))
    return slopes, ceilings + _tensor_cores(device)


def _tensor_cores(device: Device) -> list[Ceiling]:
    """Those that are known; dtypes that are as fast as each other share one."""
    names: dict[float, list[str]] = {}
    for dtype in TENSOR_DTYPES:
        roof = roof_of(device, dtype)
        if roof is not None:
            names.setdefault(roof.peak_tflops, []).append(dtype.ab.label.upper())
    return [
        Ceiling(f"{' and '.join(labels)}, tensor cores", peak) for peak, labels in names.items()
    ]
