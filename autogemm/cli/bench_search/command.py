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
@count_option("--seeds", 25, "Searches of each strategy on each recording.")
@count_option("--evaluations", 200, "Configs that a search may try.")
@click.option(
    "--batch",
    "batches",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1,),
    show_default=True,
    help="Configs asked for before the first is told; repeatable.",
)
@click.option("--processes", type=click.IntRange(min=1), help="Default: one for each core.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw into this PNG, SVG or PDF.")
@click.option("--save", type=click.Path(), help="Write the whole curves into this JSON file.")
@click.option("--force", is_flag=True, help="Replace a file that this command did not write.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
@listing_options
def bench_search(**values: Any) -> None:
    """Compare search strategies on recorded spaces.

    Replays every strategy on every recording with every seed, in parallel processes, and prints how
    much of the optimum (best time of the space / best time found) was reached after how many
    evaluations: the median over the seeds, then over the recordings. No strategy is told which
    configs are known to be good. Kernel Tuner's strategies run in its own simulation mode on the
    same spaces. Nothing is measured: every time is a recorded one.

    \b
    Examples:
      autogemm bench-search --strategies surrogate,random,tpe
      autogemm bench-search --strategies surrogate --batch 1 --batch 8 --recordings a.json b.json.gz
      autogemm bench-search --strategies surrogate,kernel_tuner:hybrid_vndx --plot curves.svg
    """
    from autogemm.cli.bench_search.run import BenchSearchCommand, run

    run(BenchSearchCommand(**values))
