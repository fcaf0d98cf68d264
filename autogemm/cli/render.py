"""``autogemm render``: the CUDA source of one config."""

from __future__ import annotations

from typing import Any

import click

from autogemm.cli.configs import config_from, config_options
from autogemm.cli.files import write_output
from autogemm.cli.options import device_facts, gpu_option, problem_from, problem_options
from autogemm.support.errors import UsageError


@click.command()
@config_options
@problem_options
@gpu_option
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="Write to a file, not standard output."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def render(  # noqa: PLR0913, PLR0917  # one parameter for each option
    family: str,
    rung: str | None,
    fix: tuple[str, ...],
    seed_index: int | None,
    config_json: str | None,
    gpu: str,
    output: str,
    force: bool,
    **problem_values: Any,
) -> None:
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
    from autogemm.codegen import render as render_source
    from autogemm.space import broken_constraints

    problem = problem_from(**problem_values)
    loaded, config = config_from(family, rung, fix, seed_index, config_json)
    broken = broken_constraints(loaded, config, problem, device_facts(gpu))
    if broken:
        raise UsageError(f"the config is not legal, it breaks: {'; '.join(broken)}")
    source = render_source(loaded, config, problem)
    write_output(output, source.text.encode(), force=force)
