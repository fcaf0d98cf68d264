"""GPUs known without having one: enough to build a search space and compile for them."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from autogemm.device import Device
from autogemm.errors import NotFoundError

CATALOGUE_PATH = Path(__file__).with_suffix(".yaml")

# The same for every compute capability that autogemm supports.
_MAX_THREADS_PER_BLOCK = 1024
_MAX_REGISTERS_PER_THREAD = 255
_REGISTERS_PER_SM = 65536


def known_devices() -> dict[str, Device]:
    """Short name (``h100``) to device, in the order of the catalogue."""
    return dict(_catalogue())


def find_device(name: str) -> Device:
    """By short name (``h100``) or full name (``NVIDIA H100 80GB HBM3``).

    Case, spaces and punctuation do not matter. Raises NotFoundError, which lists the short names.
    """
    wanted = _letters(name)
    for short_name, device in _catalogue():
        if wanted in (_letters(short_name), _letters(device.name)):
            return device
    known = ", ".join(known_devices())
    raise NotFoundError(f"no GPU named {name!r} in the catalogue; known are {known}")


@cache
def _catalogue() -> tuple[tuple[str, Device], ...]:
    catalogue = yaml.safe_load(CATALOGUE_PATH.read_text(encoding="utf-8"))
    return tuple(
        (short_name, _device(card, catalogue["architectures"][card["arch"]]))
        for short_name, card in catalogue["cards"].items()
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
