"""Options and help of ``autogemm render``."""

from typing import Any

import click

from autogemm.cli.options import config_options, gpu_option, problem_options


@click.command()
@config_options
@problem_options
@gpu_option
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="Write to a file, not standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def render(**values: Any) -> None:
    """Print the CUDA source of one config: a seed of the family, or a rung, changed by --fix.

    The source depends on the problem by its layout, and by which edges and vector accesses its
    sizes and leading dimensions need. Every constraint that the config breaks is named.

    \b
    Examples:
      autogemm render --fix BM=128 --fix BN=128 --fix STAGES=2
      autogemm render --rung tiled
      autogemm render --size 1000 --layout nt --seed-index 1 -o kernel.cu
      autogemm render --family ./mine --seed-index 1
    """
    from autogemm.cli.kernels.run.render import RenderCommand, run

    run(RenderCommand(**values))
