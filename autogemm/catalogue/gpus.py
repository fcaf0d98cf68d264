"""GPUs known without having one: enough to build a space for, to compile for, to draw roofs."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.hardware.roofline import Roof
from autogemm.model.splitting import splitting_of
from autogemm.support.errors import NotFoundError
from autogemm.support.naming import did_you_mean

CATALOGUE_PATH = Path(__file__).with_suffix(".yaml")

# The same for every compute capability that autogemm supports.
_MAX_THREADS_PER_BLOCK = 1024
_MAX_REGISTERS_PER_THREAD = 255
_REGISTERS_PER_SM = 65536


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of the catalogue. ``published`` are peaks as ``source`` gives them, units in names."""

    short_name: str
    device: Device
    published: tuple[tuple[str, float], ...]
    source: str
    notes: str = ""


def known_cards() -> tuple[Card, ...]:
    """In the order of the catalogue."""
    return _catalogue()


def known_devices() -> dict[str, Device]:
    """Short name (``h100``) to device, in the order of the catalogue."""
    return {card.short_name: card.device for card in _catalogue()}


def find_card(name: str) -> Card:
    """By short name (``h100``) or full name (``NVIDIA H100 80GB HBM3``).

    Case, spaces and punctuation do not matter. Raises NotFoundError, which lists the short names.
    """
    wanted = _letters(name)
    for card in _catalogue():
        if wanted in (_letters(card.short_name), _letters(card.device.name)):
            return card
    known = known_devices()
    raise NotFoundError(
        f"no GPU named {name!r} in the catalogue{did_you_mean(name, known)}; known are "
        f"{', '.join(known)}"
    )


def find_device(name: str) -> Device:
    """The device of `find_card`."""
    return find_card(name).device


def roof_of(device: Device, dtype: DType = DType.F32, config: Config | None = None) -> Roof | None:
    """The card's theory for a dtype: CUDA cores for FP32, tensor cores for the others.

    Where a ``config`` splits FP32 it comes from tensor cores, by several products for each.
    Clocks are the maxima. None where the card has no tensor cores for it, or none are known, or
    nothing is known of the card but its name: times that others recorded come with no more.
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


@cache
def _catalogue() -> tuple[Card, ...]:
    architectures = _content()["architectures"]
    return tuple(
        Card(
            short_name=short_name,
            device=_device(card, architectures[card["arch"]]),
            published=tuple(card["published"].items()),
            source=card["source"],
            notes=card.get("notes", ""),
        )
        for short_name, card in _content()["cards"].items()
    )


def _device(card: dict[str, Any], architecture: dict[str, int]) -> Device:
    return Device(
        name=card["name"],
        arch=card["arch"],
        num_sms=card["num_sms"],
        max_threads_per_block=_MAX_THREADS_PER_BLOCK,
        max_threads_per_sm=architecture["max_threads_per_sm"],
        max_blocks_per_sm=architecture["max_blocks_per_sm"],
        max_registers_per_thread=_MAX_REGISTERS_PER_THREAD,
        registers_per_sm=_REGISTERS_PER_SM,
        max_smem_per_block_bytes=architecture["max_smem_per_block_kib"] * 1024,
        smem_per_sm_bytes=architecture["smem_per_sm_kib"] * 1024,
        reserved_smem_per_block_bytes=architecture["reserved_smem_per_block_bytes"],
        l2_bytes=card["l2_mib"] * 2**20,
        memory_bytes=card["memory_gib"] * 2**30,
        sm_clock_mhz=card["sm_clock_mhz"],
        memory_clock_mhz=card["memory_clock_mhz"],
        memory_bus_bits=card["memory_bus_bits"],
        fp32_cores_per_sm=architecture["fp32_cores_per_sm"],
    )


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()
