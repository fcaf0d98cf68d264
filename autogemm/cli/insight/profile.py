"""Options and help of ``autogemm profile``."""

from pathlib import Path
from typing import Any

import click

from autogemm.cli.options import LAYOUTS, db_option, dtype_option
from autogemm.cli.output import listing_options
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout


@click.command()
@click.argument("kernel")
@click.option("--size", default="4096", show_default=True, help="M=N=K as one number, or MxNxK.")
@click.option(
    "--layout",
    type=click.Choice(LAYOUTS),
    default=Layout.NN.value,
    show_default=True,
    help="op(A) then op(B): n as stored, t transposed.",
)
@dtype_option(default=DType.F32.label)
@click.option(
    "--from",
    "page_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Read this page (ncu --csv --page raw --print-units base) instead of profiling.",
)
@click.option("--gpu", metavar="NAME", help="With --from: the GPU that the page was made on.")
@click.option("--save", metavar="FILE", help="Keep Nsight Compute's page, as CSV.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--no-store", is_flag=True, help="Keep nothing in the database.")
@db_option
@listing_options
def profile(**values: Any) -> None:
    """Say what limits a kernel, from the hardware's counters: NVIDIA's Nsight Compute (ncu).

    KERNEL is a rung of the ladder (see `autogemm bench --list`), `winner`, or kernel:ID of the
    database. It runs alone a few times; occupancy, use of cores and memory, stall reasons, bank
    conflicts and coalescing are told in words, each with its usual cause and cure and the
    parameters to turn.
    The counters are stored with the kernel. A time under a profiler compares with no other.

    \b
    Examples:
      autogemm profile tiled --size 1024
      autogemm profile kernel:12 --save page.csv
      autogemm profile winner --size 8192 --dtype bf16
      autogemm profile tiled --size 1024 --from page.csv --gpu h100
    """
    from autogemm.cli.insight.run.profile import ProfileCommand, run

    run(ProfileCommand(**values))
