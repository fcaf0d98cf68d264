"""GPUs that are known without being attached, with the facts that spaces, compiling and roofs
need."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import FACTS, Device, Roof
from autogemm.model.splitting import splitting_of
from autogemm.support.errors import NotFoundError
from autogemm.support.naming import did_you_mean

CATALOGUE_PATH = Path(__file__).with_suffix(".yaml")

# The same for every compute capability that autogemm supports.
_COMMON = {
    "max_threads_per_block": 1024,
    "max_registers_per_thread": 255,
    "registers_per_sm": 65536,
}
_UNITS = {"_kib": 2**10, "_mib": 2**20, "_gib": 2**30}


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """A GPU of the catalogue. ``published`` are peaks as ``source`` gives them, units in names."""

    short_name: str
    device: Device
    published: tuple[tuple[str, float], ...]
    source: str
    notes: str = ""


@cache
def known_gpus() -> tuple[KnownGpu, ...]:
    """All GPUs, in the order of the catalogue."""
    content = _content()
    return tuple(
        KnownGpu(
            short_name=short_name,
            device=_device(gpu | content["architectures"][gpu["arch"]] | _COMMON),
            published=tuple(gpu["published"].items()),
            source=gpu["source"],
            notes=gpu.get("notes", ""),
        )
        for short_name, gpu in content["gpus"].items()
    )


def known_devices() -> dict[str, Device]:
    """Short name (``h100``) to device, in the order of the catalogue."""
    return {gpu.short_name: gpu.device for gpu in known_gpus()}


def find_gpu(name: str) -> KnownGpu:
    """The GPU of a short name (``h100``) or a full name (``NVIDIA H100 80GB HBM3``).

    Case, spaces and punctuation do not matter. Raises NotFoundError, which lists the short names.
    """
    wanted = _letters(name)
    for gpu in known_gpus():
        if wanted in (_letters(gpu.short_name), _letters(gpu.device.name)):
            return gpu
    known = known_devices()
    raise NotFoundError(
        f"no GPU named {name!r} in the catalogue{did_you_mean(name, known)}; known are "
        f"{', '.join(known)}"
    )


def find_device(name: str) -> Device:
    """The device of `find_gpu`."""
    return find_gpu(name).device


def roof_of(device: Device, dtype: DType = DType.F32, config: Config | None = None) -> Roof | None:
    """The GPU's theory for a dtype: CUDA cores for FP32, tensor cores for the others.

    Where a ``config`` splits FP32, the peak is that of tensor cores divided by the number of
    products. Clocks are the maxima. None where the GPU has no tensor cores for it, or none are
    known, or only the name of the GPU is known, as with times that others recorded.
    """
    if not (device.peak_f32_tflops and device.peak_bandwidth_gb_s):
        return None
    splitting = splitting_of(config)
    if splitting is None and dtype.has_fp32_products:
        return Roof(device.peak_f32_tflops, device.peak_bandwidth_gb_s)
    element, num_products = dtype.ab, 1
    if splitting is not None:
        element, num_products = splitting.element, splitting.num_products
    content = _content()
    of_arch = content["tensor_flops_per_sm_clock"].get(device.arch, {})
    rates = content["tensor_rates"].items()
    rate = next((rate for words, rate in rates if words in device.name), 1.0)
    flops_per_clock = rate * of_arch.get(element.label, 0) / num_products
    if not flops_per_clock:
        return None
    peak_tflops = device.num_sms * device.sm_clock_mhz * flops_per_clock * 1e-6
    return Roof(peak_tflops, device.peak_bandwidth_gb_s)


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(CATALOGUE_PATH.read_text(encoding="utf-8"))
    return content


def _device(facts: dict[str, Any]) -> Device:
    """The device with these facts; ``l2_mib`` and the like become ``l2_bytes``."""
    in_bytes = {
        f"{name.removesuffix(unit)}_bytes": facts[name] * size
        for unit, size in _UNITS.items()
        for name in facts
        if name.endswith(unit)
    }
    known = facts | in_bytes
    return Device(name=facts["name"], **{name: known[name] for name in FACTS})


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()
