"""Options and help of ``autogemm explain``."""

from typing import Any

import click

from autogemm.cli.options import config_options, db_option, gpu_option, problem_options


@click.command()
@click.argument("kernel", required=False, metavar="[ID]")
@config_options
@problem_options
@gpu_option
@click.option(
    "--compile-neighbours",
    is_flag=True,
    help="Compile the neighbours to know their registers.",
)
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(**values: Any) -> None:
    """Say why a config is as fast or slow as it is, from static facts; nothing runs on a GPU.

    The config is a stored kernel (its ID or the beginning of its sha256), or a seed of the family
    or a rung of the ladder changed by --fix, or --config; with none of these the best kernel in the
    database. Registers and spills come from the compiler, the main loop from nvdisasm, memory
    accesses from one block run on the CPU (g++); a part whose tool is missing says so.

    \b
    Examples:
      autogemm explain
      autogemm explain 17 --compile-neighbours
      autogemm explain --rung naive_uncoalesced
      autogemm explain --fix STAGES=2 --fix BM=64 --size 1024 --gpu a100 --json
    """
    from autogemm.cli.insight.run.explain import ExplainCommand, run

    run(ExplainCommand(**values))
