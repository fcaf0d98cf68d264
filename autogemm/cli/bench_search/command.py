"""Options and help of ``autogemm bench-search``."""

from pathlib import Path
from typing import Any

import click

from autogemm.cli.options import count_option
from autogemm.cli.output import listing_options


@click.command("bench-search", short_help="Compare search strategies on recorded spaces.")
@click.option(
    "--strategies",
    metavar="NAME,NAME",
    help="Samplers of `autogemm tune`, and kernel_tuner:NAME. Default: all samplers, and some of "
    "Kernel Tuner's strategies where it is installed.",
)
@click.option(
    "--recordings",
    "recordings",
    metavar="FILE...",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Recordings, T4 files, or cache files of Kernel Tuner. Default: the recordings that ship.",
)
@click.argument("more", metavar="[FILE]...", type=click.Path(path_type=Path), nargs=-1)
@count_option("--seeds", 25, "Number of searches of each strategy on each recording.")
@count_option("--evaluations", 200, "Number of configs that a search may try.")
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1,),
    show_default=True,
    help="Number of configs that are proposed before the first result is known; repeatable.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="Number of processes.  [default: one per core]"
)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Plot into this PNG, SVG or PDF file."
)
@click.option("--save", type=click.Path(), help="Write the complete curves into this JSON file.")
@click.option(
    "--force", is_flag=True, help="Overwrite a file even if this command did not write it."
)
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the result.")
@listing_options
def bench_search(**values: Any) -> None:
    """Compare search strategies on recorded spaces.

    Every strategy is replayed on every recording with every seed, in parallel processes. The table
    shows the fraction of the optimum (best time of the space / best time found) after so many
    evaluations: the median over the seeds, then over the recordings. No strategy is told which
    configs are known to be good. Strategies of Kernel Tuner run in its own simulation mode on the
    same spaces. Nothing is measured: all times are recorded.

    \b
    Examples:
      autogemm bench-search --strategies surrogate,random,tpe
      autogemm bench-search --strategies surrogate --batch 1 --batch 8
      autogemm bench-search db/recordings/sgemm_simt_h200_1024_nn.json.gz
      autogemm bench-search --strategies surrogate,kernel_tuner:hybrid_vndx
      autogemm bench-search --seeds 5 --plot curves.svg
    """
    from autogemm.cli.bench_search.run import BenchSearchCommand, run

    run(BenchSearchCommand(**values))
