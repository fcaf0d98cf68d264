"""Options and help of ``autogemm export``."""

from typing import Any

import click

from autogemm.cli.options import LAYOUTS, db_option, dtype_option, grouped
from autogemm.store import BestQuery

FORMATS = ("cuda", "cubin", "ptx", "json", "torch")


@click.command()
@click.argument("path", metavar="[FILE]", required=False)
@grouped(
    "query",
    BestQuery,
    click.option("--gpu", metavar="NAME", help="Tuned on: any part of the GPU's name."),
    click.option("--size", metavar="SIZE", help="Tuned for: 4096 or MxNxK."),
    click.option(
        "--layout",
        type=click.Choice(LAYOUTS),
        help="Tuned for: op(A) then op(B), n as stored, t transposed.",
    ),
    dtype_option(),
    click.option(
        *("--family", "family_key"),
        metavar="NAME|PATH",
        help="Kernel family; a path for one of your own.",
    ),
    click.option(
        "--run", "run_id", type=click.IntRange(min=1), help="The best kernel of this run."
    ),
)
@click.option("--kernel", "kernel_key", metavar="ID", help="This kernel: its number or sha256.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
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
@click.option("--no-verify", is_flag=True, help="Do not run a recorded kernel on the CPU first.")
@db_option
def export(**values: Any) -> None:
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
    from autogemm.cli.export.run import ExportCommand, run

    run(ExportCommand(**values))
