"""``autogemm gpus``: what cards there are, here and in the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autogemm.cli.output import Row, listing_options, print_rows, print_table

if TYPE_CHECKING:
    from autogemm.device import Device

COLUMNS = (
    "short_name",
    "name",
    "arch",
    "num_sms",
    "memory_gib",
    "bandwidth_gb_s",
    "peak_f32_tflops",
    "l2_mib",
    "smem_per_block_kib",
)
RECORDING_COLUMNS = ("device", "problem", "num_configs", "date", "path")


@click.command()
@listing_options
def gpus(as_json: bool, as_csv: bool) -> None:
    """List the attached GPUs, the GPUs of the catalogue and the recordings.

    A GPU of the catalogue can be named where a command takes a GPU, without being attached. A
    recording holds the measured times of one GPU and problem. --json and --csv print the GPUs
    alone, in one list whose column `kind` is `attached` or `known`.

    \b
    Examples:
      autogemm gpus
      autogemm gpus --json
    """
    from autogemm.device_catalogue import known_devices
    from autogemm.targets import cuda

    attached = [_row("attached", "", device) for device in cuda.attached_devices()]
    known = [_row("known", short_name, device) for short_name, device in known_devices().items()]
    if not attached:
        click.echo(f"No attached GPU: {cuda.why_no_device()}", err=True)
    if as_json or as_csv:
        print_rows(attached + known, ("kind", *COLUMNS), as_json=as_json, as_csv=as_csv)
        return
    if attached:
        print_table(attached, COLUMNS[1:], title="Attached GPUs")
        click.echo()
    print_table(known, COLUMNS, title="Known GPUs")
    recordings = _recording_rows()
    if recordings:
        click.echo()
        print_table(recordings, RECORDING_COLUMNS, title="Recordings")


def _row(kind: str, short_name: str, device: Device) -> Row:
    return {
        "kind": kind,
        "short_name": short_name,
        "name": device.name,
        "arch": device.sm,
        "num_sms": device.num_sms,
        "memory_gib": device.memory_bytes / 2**30,
        "bandwidth_gb_s": device.peak_bandwidth_gb_s,
        "peak_f32_tflops": device.peak_f32_tflops,
        "l2_mib": device.l2_bytes / 2**20,
        "smem_per_block_kib": device.max_smem_per_block_bytes / 1024,
    }


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
