"""``autogemm gpus``: the GPUs here and in the catalogue, and what they can do."""

from contextlib import closing
from dataclasses import replace

import click

from autogemm.catalogue.gpus import find_gpu, known_gpus
from autogemm.cli.gpu_rows import COLUMNS, SHOWN, ceiling_rows, fact_rows, gpu_row
from autogemm.cli.output import Form, Row, print_rows, print_table
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.store import open_store
from autogemm.support.errors import DeviceError
from autogemm.targets import attached_gpus, open_gpu, recorded, why_no_gpu

RECORDING_COLUMNS = ("device", "problem", "num_configs", "date", "path")


def show_all(form: Form) -> None:
    """Print the attached GPUs, those of the catalogue and, in a table, the recordings."""
    attached = [gpu_row(one.device, kind="attached") for one in attached_gpus()]
    known = _known_rows()
    if not attached:
        click.echo(f"No attached GPU: {why_no_gpu()}", err=True)
    if form is not Form.TABLE:
        print_rows(attached + known, COLUMNS, form)
        return
    if attached:
        print_table(attached, SHOWN[1:], title="Attached GPUs")
        click.echo()
    print_table(known, SHOWN, title="Known GPUs")
    recordings = _recording_rows()
    if recordings:
        click.echo()
        print_table(recordings, RECORDING_COLUMNS, title="Recordings")


def _known_rows() -> list[dict[str, object]]:
    return [
        gpu_row(
            known.device,
            kind="known",
            short_name=known.short_name,
            source=known.source,
            notes=known.notes,
        )
        for known in known_gpus()
    ]


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
        row = gpu_row(device, kind="attached")
        row["measured_f32_tflops"] = measured.fma_tflops
        row["measured_gb_s"] = measured.copy_gb_s
        row["measured_l2_gb_s"] = measured.l2_gb_s
        row["measured_smem_gb_s"] = measured.smem_gb_s
        print_rows([row], COLUMNS, form)
        return
    clock = f", SM clock {measured.sm_clock_mhz} MHz meanwhile" if measured.sm_clock_mhz else ""
    print_table(
        ceiling_rows(device, measured),
        ("ceiling", "measured", "theory", "percent"),
        title=f"{device.name}{clock}",
    )


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


def _recording_rows() -> list[Row]:
    return [
        {
            "device": recording.device_name,
            "problem": recording.problem_label,
            "num_configs": recording.num_configs,
            "date": recording.date,
            "path": str(recording.path),
        }
        for recording in recorded.list_recordings()
    ]
