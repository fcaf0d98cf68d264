"""``autogemm gpus``: what cards there are, here and in the catalogue, and what they can do."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from autogemm.cli.gpu_rows import COLUMNS, SHOWN, ceiling_rows, fact_rows, gpu_row
from autogemm.cli.options import db_option
from autogemm.cli.output import Row, listing_options, print_rows, print_table
from autogemm.support.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from autogemm.model.hardware.device import Device
    from autogemm.model.hardware.roofline import Ceilings

RECORDING_COLUMNS = ("device", "problem", "num_configs", "date", "path")


@click.command()
@click.argument("name", required=False)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure what the attached GPU reaches: multiply-adds alone, each memory alone.",
)
@db_option
@listing_options
def gpus(name: str | None, measure: bool, db: str | None, as_json: bool, as_csv: bool) -> None:
    """List the attached GPUs, the GPUs of the catalogue and the recordings; all facts of one, NAME.

    A GPU of the catalogue can be named where a command takes a GPU, without being attached. Peaks
    are cores x clock x 2, of tensor cores without sparsity and with sums in FP32, at the highest
    clock; the ridge is peak / bandwidth. --measure keeps what it finds in the database, for
    pictures. --json and --csv print the GPUs alone, in one list with all facts, whose column
    `kind` is `attached` or `known`.

    \b
    Examples:
      autogemm gpus
      autogemm gpus h100
      autogemm gpus --measure
      autogemm gpus --csv
    """
    from autogemm.targets import attached_gpus, why_no_gpu

    if measure and name:
        raise UsageError("--measure is of the attached GPU: leave the name out")
    if measure:
        _measure(db, as_json=as_json, as_csv=as_csv)
        return
    if name:
        _show_one(name, as_json=as_json, as_csv=as_csv)
        return
    attached = [
        gpu_row(device, kind="attached") for device in (one.device for one in attached_gpus())
    ]
    known = _known_rows()
    if not attached:
        click.echo(f"No attached GPU: {why_no_gpu()}", err=True)
    if as_json or as_csv:
        print_rows(attached + known, COLUMNS, as_json=as_json, as_csv=as_csv)
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
    from autogemm.catalogue.gpus import known_cards

    return [
        gpu_row(
            card.device,
            kind="known",
            short_name=card.short_name,
            source=card.source,
            notes=card.notes,
        )
        for card in known_cards()
    ]


def _show_one(name: str, *, as_json: bool, as_csv: bool) -> None:
    from autogemm.catalogue.gpus import find_card

    card = find_card(name)
    row = next(row for row in _known_rows() if row["short_name"] == card.short_name)
    if as_json or as_csv:
        print_rows([row], COLUMNS, as_json=as_json, as_csv=as_csv)
        return
    print_table(fact_rows(row, dict(card.published)), ("fact", "value", "published"))


def _measure(db: str | None, *, as_json: bool, as_csv: bool) -> None:
    """Raises DeviceError without a GPU."""
    device, measured = _measured(db)
    if as_json or as_csv:
        row = gpu_row(device, kind="attached")
        row["measured_f32_tflops"] = measured.fma_tflops
        row["measured_gb_s"] = measured.copy_gb_s
        row["measured_l2_gb_s"] = measured.l2_gb_s
        row["measured_smem_gb_s"] = measured.smem_gb_s
        print_rows([row], COLUMNS, as_json=as_json, as_csv=as_csv)
        return
    clock = f", SM clock {measured.sm_clock_mhz} MHz meanwhile" if measured.sm_clock_mhz else ""
    print_table(
        ceiling_rows(device, measured),
        ("ceiling", "measured", "theory", "percent"),
        title=f"{device.name}{clock}",
    )


def _measured(db: str | None) -> tuple[Device, Ceilings]:
    from dataclasses import replace

    from autogemm.store import open_store
    from autogemm.targets import open_gpu, why_no_gpu

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
    from autogemm.targets import recorded

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
