"""Options and help of the commands that explain: explain, profile, report, plot, roofline."""

from pathlib import Path
from typing import Any

import click

from autogemm.cli.options import (
    Command,
    bench_option,
    config_options,
    db_option,
    dtype_option,
    filter_options,
    gpu_option,
    layout_option,
    problem_options,
    query_options,
    stored_options,
)
from autogemm.model.dtypes import DType


@click.command()
@click.argument("kernel", required=False, metavar="[ID]")
@config_options
@problem_options
@gpu_option
@click.option(
    "--compile-neighbours", is_flag=True, help="Compile the neighbours to know their registers."
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


@click.command()
@click.argument("kernel")
@click.option("--size", default="4096", show_default=True, help="M=N=K as one number, or MxNxK.")
@layout_option
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
@stored_options
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


@click.command()
@click.argument("file")
@bench_option("--bench", help="A benchmark, instead of a run.")
@click.option("--all", "of_all", is_flag=True, help="The winners of all runs that match.")
@click.option("--no-explain", is_flag=True, help="Leave out why the winner is as fast as it is.")
@click.option("--force", is_flag=True, help="Replace a file that is no earlier report.")
@filter_options
@db_option
def report(**values: Any) -> None:
    """Write one HTML FILE that explains a run: words, tables, plots, source; it loads nothing.

    The run is the newest that matches, or the one that --run names. With --bench the report is on
    a benchmark instead, with --all on the best kernels of all runs that match. Why the winner is as
    fast as it is comes from `autogemm explain` and takes some seconds.

    \b
    Examples:
      autogemm report report.html
      autogemm report run3.html --run 3
      autogemm report ladder.html --bench last
      autogemm report winners.html --all --gpu h100
    """
    from autogemm.cli.insight.run.report import ReportCommand, run

    run(ReportCommand(**values))


KINDS = ("history", "distribution", "importance", "heatmap", "sizes", "ladder")


def comparison_options(command: Command) -> Command:
    """Add ``--bench ID --winners``, for `autogemm.insight.analysis.compare`."""
    command = click.option(
        "--winners", is_flag=True, help="The best kernels of the database instead of a benchmark."
    )(command)
    return bench_option(
        "--bench", "bench_id", help="A benchmark of the database; default: the newest."
    )(command)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file")
@click.option("--x", metavar="NAME", help="heatmap: the parameter along the bottom.")
@click.option("--y", metavar="NAME", help="heatmap: the parameter up the side.")
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@filter_options
@db_option
def plot(**values: Any) -> None:
    """Draw a picture of a run or of a benchmark into a .png, .svg or .pdf FILE.

    \b
    Pictures of a run, the newest that matches or the one that --run names:
      history       the best so far, against trials and against seconds
      distribution  how many of all configs are how fast
      importance    which parameters set the fastest tenth apart (PED-ANOVA)
      heatmap       the best config for each pair of values of two parameters;
                    without --x and --y the two that matter most

    \b
    Pictures of a benchmark, or of the best kernels in the database where there is none:
      sizes         GFLOP/s and percent of cuBLAS against size
      ladder        a bar a kernel, on the size that --size names or the largest

    `autogemm roofline` draws the roofline.

    \b
    Examples:
      autogemm plot history history.svg
      autogemm plot heatmap tiles.png --run 3 --x BM --y BN
      autogemm plot ladder ladder.svg --bench 2 --size 4096
    """
    from autogemm.cli.insight.run.pictures import PlotCommand, run_plot

    run_plot(PlotCommand(**values))


@click.command()
@click.argument("file", required=False)
@comparison_options
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@query_options
def roofline(**values: Any) -> None:
    """Show how close kernels come to what their GPU can do, and draw it into FILE.

    FILE is a .png, .svg or .pdf; without it only the table is printed. The kernels are those of the
    newest benchmark, or the best in the database where there is none. The roof of a kernel is the
    smaller of the GPU's peak for its dtype and the memory bandwidth times the FLOP per byte that
    must move.

    \b
    Examples:
      autogemm roofline
      autogemm roofline roofline.svg --bench 2
      autogemm roofline winners.png --winners --gpu h100
    """
    from autogemm.cli.insight.run.pictures import RooflineCommand, run_roofline

    run_roofline(RooflineCommand(**values))
