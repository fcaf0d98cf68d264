"""``autogemm export``: the best kernel as one file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli.files import require_output, write_output
from autogemm.cli.options import db_option, dtype_option
from autogemm.model.outcome import Provenance
from autogemm.model.problem import Layout
from autogemm.model.splitting import splitting_of
from autogemm.support.errors import CompilerMissingError, ExportError, NotFoundError, UsageError

if TYPE_CHECKING:
    from datetime import date

    from autogemm.model.stored_kernel import StoredKernel
    from autogemm.space import Family

FORMATS = ("cuda", "cubin", "ptx", "json")
LIBRARY_FORMATS = ("cuda", "torch")


@click.command()
@click.argument("path", metavar="[FILE]", required=False)
@click.option("--gpu", metavar="NAME", help="Tuned on: any part of the GPU's name.")
@click.option("--size", metavar="SIZE", help="Tuned for: 4096 or MxNxK.")
@click.option(
    "--layout",
    type=click.Choice([layout.value for layout in Layout]),
    help="Tuned for: op(A) then op(B), n as stored, t transposed.",
)
@dtype_option()
@click.option("--family", metavar="NAME|PATH", help="Kernel family; a path for one of your own.")
@click.option("--run", "run_id", type=click.IntRange(min=1), help="The best kernel of this run.")
@click.option("--kernel", "kernel_key", metavar="ID", help="This kernel: its number or sha256.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice([*FORMATS, "torch"]),
    default="cuda",
    show_default=True,
    help="cuda: source that tests itself; cubin, ptx: compiled; json: all that is known of it; "
    "torch: with --library, a module with a custom operator too.",
)
@click.option(
    "--library",
    "folder",
    metavar="DIR",
    help="A C++ library that picks the kernel by size, from all that is tuned on the GPU: header, "
    "source, self-test, benchmark, CMakeLists.txt.",
)
@click.option("--force", is_flag=True, help="Replace a file that autogemm did not write.")
@click.option("--no-verify", is_flag=True, help="Do not run a recorded kernel on the CPU before.")
@db_option
def export(  # noqa: PLR0913, PLR0917  # one parameter for each option
    path: str | None,
    gpu: str | None,
    size: str | None,
    layout: str | None,
    dtype: str | None,
    family: str | None,
    run_id: int | None,
    kernel_key: str | None,
    file_format: str,
    folder: str | None,
    force: bool,
    no_verify: bool,
    db: str | None,
) -> None:
    """Write the best kernel to FILE (- is standard output).

    Without options: the newest result in the database, a measured one before a recorded one. The
    CUDA file holds the kernel byte for byte as it was timed, a launcher with a C signature, and a
    main that verifies every element and times the kernel against cuBLAS; -DAUTOGEMM_LIBRARY
    leaves main out. A kernel whose time was recorded was not run here: the emulator runs it first,
    where g++ is installed.

    \b
    Examples:
      autogemm export best.cu
      nvcc -O3 -arch=sm_90 best.cu -o best && ./best
      autogemm export --gpu h100 --size 1024 small.cu
      autogemm export --kernel 17 --format ptx kernel.ptx
      autogemm export --library out/ --gpu h100
      autogemm export --library out/ --format torch
    """
    if folder is not None:
        others = {"FILE": path, "--size": size, "--dtype": dtype, "--run": run_id}
        others["--kernel"] = kernel_key
        given = [name for name, value in others.items() if value is not None]
        if given or file_format not in LIBRARY_FORMATS:
            left_out = " ".join(given or [f"--format {file_format}"])
            raise UsageError(f"--library holds all sizes of f32: leave out {left_out}")
        from autogemm.cli.export.library import write_library

        torch = file_format == "torch"
        write_library(folder, gpu, layout, family, db, force=force, torch=torch)
        return
    if path is None or file_format == "torch":
        raise UsageError("name the FILE to write, or --library DIR (--format torch needs that)")
    from autogemm.codegen.export import BEGINNINGS
    from autogemm.space import load_family
    from autogemm.store import BestQuery, open_store

    filters = {"gpu": gpu, "size": size, "layout": layout, "dtype": dtype, "run_id": run_id}
    if kernel_key is not None and any(value is not None for value in filters.values()):
        raise UsageError(
            "--kernel names one kernel: leave out --gpu, --size, --layout, --dtype and --run"
        )
    loaded = load_family(family) if family else None
    family_name = loaded.name if loaded else None
    query = BestQuery(gpu, size, layout, dtype, family=family_name, run_id=run_id)
    with open_store(db, create=False) as store:
        kernel = store.stored_kernel(query if kernel_key is None else kernel_key)
    loaded = loaded or family_of(kernel)
    # A cubin cannot be told from any other program.
    ours = BEGINNINGS.get(file_format)
    require_output(path, force=force, ours=ours)
    content = exported(kernel, loaded, file_format, Path(path).name)
    if kernel.provenance is Provenance.RECORDED:
        click.echo("RECORDED: this kernel's time was not measured on this machine", err=True)
        if not no_verify:
            click.echo(verified_on_cpu(kernel, loaded), err=True)
    write_output(path, content, force=force, ours=ours)
    if path != "-":
        click.echo(f"{path}: {summary(kernel)}")


def exported(kernel: StoredKernel, family: Family, file_format: str, file_name: str) -> bytes:
    """The file's content."""
    from autogemm.codegen.export import export_cuda, export_json, export_ptx
    from autogemm.compile import Compiler, ptx

    today: date = datetime.now(UTC).date()
    if file_format == "cubin":
        compiler = Compiler(threads=1)
        try:
            return compiler.compile(kernel.source, kernel.device.sm).cubin
        finally:
            compiler.close()
    if file_format == "ptx":
        return export_ptx(kernel, ptx(kernel.source, kernel.device.sm), today).encode()
    if file_format == "json":
        return export_json(kernel, today).encode()
    return export_cuda(kernel, family, file_name, today).encode()


def family_of(kernel: StoredKernel) -> Family:
    """The shipped family that the kernel is of. Raises NotFoundError for one of the user's own."""
    from autogemm.space import load_family

    try:
        return load_family(kernel.source.family)
    except NotFoundError as error:
        raise NotFoundError(
            f"kernel {kernel.kernel_id} is of the family {kernel.source.family}, which does not "
            "ship: give its folder with --family PATH"
        ) from error


def verified_on_cpu(kernel: StoredKernel, family: Family) -> str:
    """Runs the kernel on the emulator, on small problems that need this very source; says so.

    Without g++ it says that instead. Raises ExportError when the kernel does anything wrong.
    """
    from autogemm.codegen import render
    from autogemm.emulator import Emulator, Mode
    from autogemm.verify import cases_of, on_cpu

    source = kernel.source
    tuned_for = (kernel.problem,)
    every = cases_of(
        family,
        source.config,
        kernel.device,
        adapt=False,
        dtype=kernel.problem.dtype,
        tuned_for=tuned_for,
    ).cases
    cases = [one for one in every if render(family, one.config, one.problem).code == source.code]
    if not cases:
        return "not verified on the CPU: no small problem needs exactly this kernel"
    try:
        check = on_cpu(family, Emulator(), Mode.CHECK)
    except CompilerMissingError as error:
        return f"not verified on the CPU: {error}"
    for case in cases:
        result = check(case)
        if not result.ok:
            raise ExportError(
                f"kernel {kernel.kernel_id} is wrong on the CPU, at {case.problem.label}: "
                f"{result.message}"
            )
    return f"verified on the CPU, every access checked: {len(cases)} small problems"


def summary(kernel: StoredKernel) -> str:
    """What was exported, in one line."""
    parts = [f"kernel {kernel.kernel_id} for {kernel.problem.label} on {kernel.device.name}"]
    if kernel.time_us is not None:
        parts.append(f"{kernel.problem.tflops(kernel.time_us):.1f} TFLOP/s")
    if kernel.ratio is not None:
        parts.append(f"{kernel.ratio:.3f} times the speed of cuBLAS")
    if (splitting := splitting_of(kernel.source.config)) is not None:
        parts.append(splitting.words)
    return ", ".join(parts)
