"""``autogemm export --library``: many kernels and a rule as a folder."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from autogemm.cli.database import open_database
from autogemm.cli.files import require_replaceable, write_output
from autogemm.codegen.export import BEGINNINGS, export_library
from autogemm.dispatch import assembled
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import Provenance
from autogemm.space import default_families, load_family
from autogemm.store import BestQuery, DecidedRow
from autogemm.support.errors import ExportError, NotFoundError, UsageError

C_SUFFIXES = (".h", ".cu", ".cpp")


def write_library(  # noqa: PLR0913  # the command's options
    folder: str,
    gpu: str | None,
    layout: str | None,
    family: str | None,
    db: str | None,
    *,
    force: bool,
    torch: bool,
) -> None:
    """Write the library of one GPU's results, and say what it holds and what its rule loses.

    Raises NotFoundError without results, UsageError where no files can or should be written.
    """
    with open_database(db) as store:
        runs = store.decided(BestQuery(gpu=gpu))
    families = [load_family(family)] if family else default_families()
    layouts = [Layout(layout)] if layout else None
    library = assembled(runs, families, _device(runs), layouts)
    files = export_library(library, datetime.now(UTC).date(), torch=torch)
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise UsageError(f"{folder} is a file: give a folder")
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"cannot make the folder {folder}: {error.strerror}") from error
    ours = {
        name: BEGINNINGS["cuda"] if Path(name).suffix in C_SUFFIXES else "# Written by autogemm "
        for name in files
    }
    # All or none of them.
    for name in files:
        require_replaceable(str(place / name), force=force, ours=ours[name])
    for name, text in files.items():
        write_output(str(place / name), text.encode(), force=force, ours=ours[name])
    click.echo(
        f"{folder}: {len(library.variants)} kernels of {len(library.configs)} configs; rule: "
        f"{library.rule}"
    )
    for finding in library.findings:
        click.echo(finding)
    click.echo(f"next: cmake -S {folder} -B build && cmake --build build -j && build/selftest")


def _device(runs: Sequence[DecidedRow]) -> Device:
    """Return the GPU of the newest result, measured before recorded.

    Raises NotFoundError without any.
    """
    if not runs:
        raise NotFoundError(
            "no result matches: autogemm tune --preset mixed --cross makes what a library needs"
        )
    newest = max(
        runs, key=lambda run: (run.spec.provenance is Provenance.MEASURED, run.measured_at)
    )
    return newest.spec.device
