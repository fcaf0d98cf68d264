"""Options and help of ``autogemm verify``."""

from typing import Any

import click

from autogemm.cli.options import (
    db_option,
    dtype_option,
    family_option,
    fix_option,
    gpu_option,
    rung_option,
)
from autogemm.cli.output import listing_options


@click.command()
@family_option
@rung_option
@fix_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="N legal configs at random; without it the family's seeds, changed by --fix.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random sample.")
@dtype_option()
@click.option("--kernel", "kernel_key", metavar="ID", help="The config of this stored kernel.")
@click.option(
    "--on",
    "places",
    type=click.Choice(["cpu", "gpu", "both"]),
    default="cpu",
    show_default=True,
    help="Where kernels run.",
)
@click.option(
    "--mode",
    type=click.Choice(["check", "fast"]),
    default="check",
    show_default=True,
    help="On the CPU: check every access, or only results.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Check --kernel as a winner is checked, on the attached GPU, and store the certificate.",
)
@gpu_option
@db_option
@listing_options
def verify(**values: Any) -> None:
    """Run kernels on edge cases: all layouts, edges, padded rows, short K, beta.

    On the CPU every access of the emitted source is checked: data races, reads of uninitialised
    memory, out of bounds, misaligned vectors, divergent barriers, use of data in flight. Not seen:
    scalars never written, the memory model beyond barriers; nothing is ever timed there. Without
    --dtype each element type that the family has kernels for is verified. A config that is not
    legal for a problem is replaced by its nearest legal neighbour with the same tiles, counted as
    adapted (a stored kernel: skipped). Exit code 1 when a case fails.

    \b
    Examples:
      autogemm verify
      autogemm verify --rung tiled
      autogemm verify --sample 20 --seed 1 --fix STAGES=3,4
      autogemm verify --kernel 17 --on both
      autogemm verify --kernel 17 --certify
    """
    from autogemm.cli.kernels.run.verify import VerifyCommand, run

    run(VerifyCommand(**values))
