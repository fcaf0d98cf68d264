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
    click.option("--gpu", metavar="NAME", help="The GPU it was tuned on: any part of its name."),
    click.option("--size", metavar="SIZE", help="The size it was tuned for: 4096 or MxNxK."),
    click.option(
        "--layout",
        type=click.Choice(LAYOUTS),
        help="The layout it was tuned for: op(A) then op(B), n as stored, t transposed.",
    ),
    dtype_option(),
    click.option(
        *("--epilogue", "epilogues"),
        metavar="EXPRESSION",
        multiple=True,
        help="Tuned with this epilogue; none: plain products. Repeatable with --library.",
    ),
    click.option("--batch", metavar="COUNT", help="Tuned for this number of products; 1: one."),
    click.option(
        "--groups", metavar="COUNT", help="Tuned for this number of groups of rows; none: without."
    ),
    click.option(
        *("--family", "family_key"),
        metavar="NAME|PATH",
        help="Kernel family, or the path of your own.",
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
    help="cuda: source with a self-test; cubin, ptx: compiled; json: everything in the database "
    "about it; torch: with --library, also a Python module with a custom operator.",
)
@click.option(
    "--library",
    "folder",
    metavar="DIR",
    help="Write a C and C++ library that chooses among all kernels tuned on the GPU by size, those "
    "for batches and groups too: header, a source for each element type, self-tests, benchmarks, "
    "CMakeLists.txt.",
)
@click.option(
    "--prefix",
    metavar="NAME",
    help="Function, namespaces and kernels begin with NAME instead of autogemm, so that several "
    "exported kernels can be in one program; main then needs -DNAME_MAIN.",
)
@click.option("--force", is_flag=True, help="Overwrite files even if autogemm did not write them.")
@click.option("--no-verify", is_flag=True, help="Do not run a recorded kernel on the CPU first.")
@db_option
def export(**values: Any) -> None:
    """Write the best kernel to FILE (- is standard output).

    Without options this is the newest result in the database; measured results have priority over
    recorded ones. For a size that the database has no result of, it is the winner of the catalogue
    that ships, if there is one (autogemm db best --catalogue). The CUDA file contains the kernel
    exactly as it was timed, a launcher with a C signature, and a main function that verifies every
    element and times the kernel against cuBLAS; compile with -DAUTOGEMM_LIBRARY to leave main out.
    A header of the same name declares the function. A kernel whose time is recorded has not run on
    this machine, so the emulator runs it first if g++ is installed.

    \b
    Examples:
      autogemm export best.cu
      nvcc -O3 -arch=sm_90 best.cu -o best && ./best
      autogemm export --gpu h100 --size 1024 small.cu
      autogemm export --gpu h200 --size 512x7168x16384 --dtype bf16 shipped.cu
      autogemm export --prefix mine mine.cu
      autogemm export --epilogue "gelu(acc + bias[n])" fused.cu
      autogemm export --kernel 17 --format ptx kernel.ptx
      autogemm export --library out/ --gpu h100
      autogemm export --library out/ --format torch
      autogemm export --library out/ --epilogue "relu(acc)" --epilogue "gelu(acc)"
    """
    from autogemm.cli.export.run import ExportCommand, run

    run(ExportCommand(**values))
