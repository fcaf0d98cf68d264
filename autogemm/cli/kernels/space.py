"""Options and help of ``autogemm space``."""

from typing import Any

import click

from autogemm.cli.options import fix_option, gpu_option, problem_options
from autogemm.cli.output import listing_options


@click.command()
@click.argument("family", metavar="NAME|PATH", default="sgemm_simt")
@problem_options
@gpu_option
@fix_option
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(("t1", "yaml")),
    help="Write the space down: a family's as T1, a T1 space as the YAML of a family.",
)
@click.option(
    *("-o", "--output"), metavar="FILE", default="-", help="Where to; - is standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is no earlier output.")
@listing_options
def space(**values: Any) -> None:
    """Show a family's parameters and count its legal configs.

    PATH may also be a search space of other tuners, in the format T1; parts of it that cannot be
    expressed here are listed. Nothing in it is ever run. A T1 file that is written is for one
    problem and GPU, whose sizes and limits are put in place.

    A config is counted as removed by the first constraint that excludes it, in the order in which
    they are applied: as soon as the parameters that each reads are known.

    \b
    Examples:
      autogemm space sgemm_simt --size 4096 --gpu h100
      autogemm space ./mine --layout tt --fix BM=128,256 --fix STAGES=3
      autogemm space sgemm_simt --json
      autogemm space gemm.t1.json
      autogemm space gemm.t1.json --format yaml -o Xgemm.yaml
      autogemm space sgemm_simt --size 1024 --gpu h100 --format t1 -o sgemm_simt.t1.json
    """
    from autogemm.cli.kernels.run.space import SpaceCommand, run

    run(SpaceCommand(**values))
