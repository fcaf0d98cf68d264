"""GPUs as rows: facts, peaks and ridge points, what their source publishes, what was measured."""

from autogemm.catalogue.gpus import roof_of
from autogemm.cli.output import Row
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.support.cells import shown

# Whose roofs are shown; those of an FP32 C are the same.
ROOFED = DType.one_each()

# All, for scripts.
COLUMNS = (
    *("kind", "short_name", "name", "arch", "num_sms", "fp32_cores", "sm_clock_mhz"),
    *("memory_clock_mhz", "memory_bus_bits", "memory_gib", "bandwidth_gb_s"),
    *(f"peak_{dtype.ab}_tflops" for dtype in ROOFED),
    *(f"ridge_{dtype.ab}_flop_per_byte" for dtype in ROOFED),
    *("measured_f32_tflops", "measured_gb_s", "measured_l2_gb_s", "measured_smem_gb_s"),
    *("l2_mib", "smem_per_sm_kib", "smem_per_block_kib"),
    *("registers_per_sm", "registers_per_thread", "threads_per_sm", "threads_per_block"),
    *("source", "notes"),
)
# What fits a line.
SHOWN = (
    *("short_name", "name", "arch", "num_sms", "memory_gib", "bandwidth_gb_s", "peak_f32_tflops"),
    *("ridge_f32_flop_per_byte", "peak_f16_tflops", "l2_mib", "smem_per_block_kib"),
)


def gpu_row(
    device: Device, *, kind: str, short_name: str = "", source: str = "", notes: str = ""
) -> dict[str, object]:
    """One GPU with everything that follows from its facts."""
    row: dict[str, object] = {
        "kind": kind,
        "short_name": short_name,
        "name": device.name,
        "arch": device.sm,
        "num_sms": device.num_sms,
        "fp32_cores": device.num_sms * device.fp32_cores_per_sm,
        "sm_clock_mhz": device.sm_clock_mhz,
        "memory_clock_mhz": device.memory_clock_mhz,
        "memory_bus_bits": device.memory_bus_bits,
        "memory_gib": device.memory_bytes / 2**30,
        "bandwidth_gb_s": device.peak_bandwidth_gb_s,
        "l2_mib": device.l2_bytes / 2**20,
        "smem_per_sm_kib": device.smem_per_sm_bytes / 1024,
        "smem_per_block_kib": device.max_smem_per_block_bytes / 1024,
        "registers_per_sm": device.registers_per_sm,
        "registers_per_thread": device.max_registers_per_thread,
        "threads_per_sm": device.max_threads_per_sm,
        "threads_per_block": device.max_threads_per_block,
        "source": source,
        "notes": notes,
    }
    for dtype in ROOFED:
        roof = roof_of(device, dtype)
        if roof is not None:
            row[f"peak_{dtype.ab}_tflops"] = roof.peak_tflops
            row[f"ridge_{dtype.ab}_flop_per_byte"] = roof.ridge_flop_per_byte
    return row


def ceiling_rows(device: Device, measured: Ceilings) -> list[Row]:
    """Return rows of measured ceilings beside the theory; for L2 none is published."""
    pairs: tuple[tuple[str, float | None, float | None], ...] = (
        ("FP32 multiply-adds, TFLOP/s", measured.fma_tflops, device.peak_f32_tflops),
        ("device memory copy, GB/s", measured.copy_gb_s, device.peak_bandwidth_gb_s),
        ("L2 read, GB/s", measured.l2_gb_s, None),
        ("shared memory read, GB/s", measured.smem_gb_s, device.peak_smem_gb_s),
        (
            "ridge, FLOP per byte",
            measured.roof.ridge_flop_per_byte,
            1e3 * device.peak_f32_tflops / device.peak_bandwidth_gb_s,
        ),
    )
    return [
        {
            "ceiling": name,
            "measured": found,
            "theory": theory,
            "percent": None if theory is None else 100 * found / theory,
        }
        for name, found, theory in pairs
        if found is not None
    ]


def fact_rows(row: Row, published: dict[str, float]) -> list[Row]:
    """One GPU, a fact a line, its source's own figures beside the peaks."""
    beside = {
        "bandwidth_gb_s": published.get("gb_s"),
        **{f"peak_{dtype.ab}_tflops": published.get(f"{dtype.ab}_tflops") for dtype in ROOFED},
    }
    return [
        {"fact": name, "value": shown(row[name]), "published": beside.get(name)}
        for name in COLUMNS[1:]
        if row.get(name) not in (None, "")
    ]
