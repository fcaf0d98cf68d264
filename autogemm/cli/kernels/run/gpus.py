"""``autogemm gpus``: the GPUs here and in the catalogue, and what they can do."""

from contextlib import closing
from dataclasses import replace
from typing import Any

from autogemm.catalogue.gpus import find_gpu, known_gpus, roof_of
from autogemm.cli.output import Form, print_rows
from autogemm.cli.prose import say
from autogemm.cli.table import Row, print_table
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Ceilings, Device, short_gpu_name
from autogemm.model.results.columns import Paths, row_of, under
from autogemm.store import open_store
from autogemm.support.cells import shown
from autogemm.support.errors import DeviceError
from autogemm.targets import attached_gpus, open_gpu, recorded, why_no_gpu

RECORDING_COLUMNS = ("gpu", "problem", "num_configs", "date", "file", "folder")
# Without --wide.
RECORDING_SHORT = ("gpu", "problem", "num_configs", "file")
_RECORDING: Paths = {
    **under("", ("num_configs", "date")),
    **{"problem": "problem_label", "file": "path.name", "folder": "path.parent"},
}

# Element types whose roofs are shown; those of an FP32 C are the same.
ROOFED = DType.one_each()

# All, for scripts.
COLUMNS = (
    *("kind", "short_name", "name", "arch", "num_sms", "fp32_cores", "sm_clock_mhz"),
    *("memory_clock_mhz", "memory_bus_bits", "memory_gib", "bandwidth_gb_s"),
    *(f"peak_{dtype.ab}_tflops" for dtype in ROOFED),
    *(f"ridge_{dtype.ab}_flop_per_byte" for dtype in ROOFED),
    *("measured_f32_tflops", "measured_gb_s", "measured_l2_gb_s", "measured_smem_gb_s"),
    *("smem_latency_cycles", "l1_latency_cycles", "l2_latency_cycles", "memory_latency_cycles"),
    "measured_sm_clock_mhz",
    *("l2_mib", "smem_per_sm_kib", "smem_per_block_kib"),
    *("registers_per_sm", "registers_per_thread", "threads_per_sm", "threads_per_block"),
    *("source", "notes"),
)
# Those of a table; without --wide SHORT, of attached GPUs SHORT_ATTACHED.
SHOWN = (
    *("short_name", "name", "arch", "num_sms", "memory_gib", "bandwidth_gb_s", "peak_f32_tflops"),
    *("ridge_f32_flop_per_byte", "peak_f16_tflops", "l2_mib", "smem_per_block_kib"),
)
SHORT = ("short_name", "arch", "num_sms", "memory_gib", "bandwidth_gb_s", "peak_f32_tflops")
SHORT_ATTACHED = ("name", *SHORT[1:])
# What a load comes from, as tables name it, by the field of Ceilings.
LATENCIES = {
    "smem_latency_cycles": "shared memory",
    "l1_latency_cycles": "L1",
    "l2_latency_cycles": "L2",
    "memory_latency_cycles": "device memory",
}
_DEVICE: Paths = {
    **under("", ("name", "num_sms", "sm_clock_mhz", "memory_clock_mhz", "memory_bus_bits")),
    **{"arch": "sm", "bandwidth_gb_s": "peak_bandwidth_gb_s"},
    **{"registers_per_sm": "registers_per_sm", "registers_per_thread": "max_registers_per_thread"},
    **{"threads_per_sm": "max_threads_per_sm", "threads_per_block": "max_threads_per_block"},
}
_MEASURED: Paths = {
    **{"measured_f32_tflops": "fma_tflops", "measured_gb_s": "copy_gb_s"},
    **{"measured_l2_gb_s": "l2_gb_s", "measured_smem_gb_s": "smem_gb_s"},
    "measured_sm_clock_mhz": "sm_clock_mhz",
    **under("", tuple(LATENCIES)),
}


def show_all(form: Form) -> None:
    """Print the attached GPUs, those of the catalogue and, in a table, the recordings."""
    attached = [gpu_row(one.device, kind="attached") for one in attached_gpus()]
    known = _known_rows()
    if not attached:
        say(f"No attached GPU: {why_no_gpu()}", err=True)
    if form is not Form.TABLE:
        print_rows(attached + known, COLUMNS, form)
        return
    if attached:
        print_table(attached, SHOWN[1:], title="Attached GPUs", short=SHORT_ATTACHED)
        say()
    print_table(known, SHOWN, title="Known GPUs", short=SHORT)
    recordings = [
        {**row_of(one, _RECORDING), "gpu": short_gpu_name(one.device_name)}
        for one in recorded.list_recordings()
    ]
    if recordings:
        say()
        print_table(recordings, RECORDING_COLUMNS, title="Recordings", short=RECORDING_SHORT)


def _known_rows() -> list[Row]:
    own = under("", ("short_name", "source", "notes"))
    return [gpu_row(known.device, kind="known") | row_of(known, own) for known in known_gpus()]


def show_one(name: str, form: Form) -> None:
    """Print all facts of one GPU. Raises NotFoundError for an unknown name."""
    known = find_gpu(name)
    row = next(row for row in _known_rows() if row["short_name"] == known.short_name)
    if form is not Form.TABLE:
        print_rows([row], COLUMNS, form)
        return
    print_table(fact_rows(row, dict(known.published)), ("fact", "value", "published"))


def measure(db: str | None, form: Form) -> None:
    """Measure and print what the GPU reaches. Raises DeviceError without one."""
    device, measured = _measured(db)
    if form is not Form.TABLE:
        row = gpu_row(device, kind="attached") | row_of(measured, _MEASURED)
        print_rows([row], COLUMNS, form)
        return
    clock = f", at an SM clock of {measured.sm_clock_mhz} MHz" if measured.sm_clock_mhz else ""
    print_table(
        ceiling_rows(device, measured),
        ("ceiling", "measured", "theory", "percent"),
        title=f"{device.name}{clock}",
    )
    latencies = latency_rows(measured)
    if latencies:
        say()
        print_table(latencies, ("load from", "cycles", "ns"), title="Latency of one load")


def _measured(db: str | None) -> tuple[Device, Ceilings]:
    if why := why_no_gpu():
        raise DeviceError(f"measuring needs a GPU: {why}")
    with (
        closing(open_gpu()) as target,
        closing(target.compiler()) as compiler,
        open_store(db) as store,
    ):
        measured = target.ceilings(compiler)
        environment = replace(target.environment, compiler=compiler.version)
        store.record_ceilings(target.device, environment, measured)
        return target.device, measured


def gpu_row(device: Device, *, kind: str) -> dict[str, Any]:
    """Return one GPU with everything that follows from its facts."""
    row = {
        **row_of(device, _DEVICE),
        **{"kind": kind, "short_name": "", "source": "", "notes": ""},
        "fp32_cores": device.num_sms * device.fp32_cores_per_sm,
        "memory_gib": device.memory_bytes / 2**30,
        "l2_mib": device.l2_bytes / 2**20,
        "smem_per_sm_kib": device.smem_per_sm_bytes / 1024,
        "smem_per_block_kib": device.max_smem_per_block_bytes / 1024,
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


def latency_rows(measured: Ceilings) -> list[Row]:
    """Return a row for each level of memory whose latency was measured; ns need the clock."""
    rows: list[Row] = []
    for name, level in LATENCIES.items():
        cycles: float | None = getattr(measured, name)
        if cycles is not None:
            clock = measured.sm_clock_mhz
            ns = 1e3 * cycles / clock if clock else None
            rows.append({"load from": level, "cycles": cycles, "ns": ns})
    return rows


def fact_rows(row: Row, published: dict[str, float]) -> list[Row]:
    """Return one GPU with one fact per line, and published figures beside the peaks."""
    beside = {
        "bandwidth_gb_s": published.get("gb_s"),
        **{f"peak_{dtype.ab}_tflops": published.get(f"{dtype.ab}_tflops") for dtype in ROOFED},
    }
    return [
        {"fact": name, "value": shown(row[name]), "published": beside.get(name)}
        for name in COLUMNS[1:]
        if row.get(name) not in (None, "")
    ]
