"""Options and help of the commands that explain: explain, profile, report, plot, roofline."""

from pathlib import Path
from typing import Any

import click

from autogemm.cli.garbage import collect_rarely
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
    "--compile-neighbours",
    is_flag=True,
    help="Also compile the neighbouring configs, to show their registers.",
)
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(**values: Any) -> None:
    """Explain why a config is fast or slow, from static facts; nothing runs on a GPU.

    ID names a stored kernel: its number or the beginning of its sha256. Without it, --rung,
    --seed-index or --config name a config, which --fix changes; without any of these the best
    kernel in the database is explained. Registers and spills come from the compiler, the main loop
    from nvdisasm, and memory accesses from one block that runs on the CPU (g++). If a tool is
    missing, its part of the explanation says so.

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
    help="Read this output of `ncu --csv --page raw --print-units base` instead of profiling.",
)
@click.option("--gpu", metavar="NAME", help="With --from: the GPU on which the output was made.")
@click.option("--save", metavar="FILE", help="Also write the raw output of Nsight Compute, as CSV.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--no-store", is_flag=True, help="Store nothing in the database.")
@stored_options
def profile(**values: Any) -> None:
    """Explain what limits a kernel, from the hardware counters of Nsight Compute (ncu).

    KERNEL is a rung of the ladder (see `autogemm bench --list`), `winner`, or kernel:ID of the
    database. It runs alone a few times. Occupancy, use of cores and memory, stall reasons, bank
    conflicts and coalescing are described in words, each with its usual cause, a remedy, and the
    parameters to change. The counters are stored with the kernel. Times under a profiler cannot be
    compared with other times.

    \b
    Examples:
      autogemm profile tiled --size 1024
      autogemm profile kernel:12 --save page.csv
      autogemm profile winner --size 8192 --dtype bf16
      autogemm profile tiled --from page.csv --size 1024 --gpu h100
    """
    from autogemm.cli.insight.run.profile import ProfileCommand, run

    run(ProfileCommand(**values))


@click.command()
@click.argument("file")
@bench_option(
    "--bench",
    help="A benchmark instead of a run: one of the database, or a file written by `bench --json`.",
)
@click.option("--all", "of_all", is_flag=True, help="Report on the winners of all runs that match.")
@click.option("--no-explain", is_flag=True, help="Leave out the explanation of the winner.")
@click.option("--force", is_flag=True, help="Overwrite a file even if it is not an earlier report.")
@filter_options
@db_option
def report(**values: Any) -> None:
    """Write one self-contained HTML FILE that explains a run: text, tables, plots, source.

    The run is the newest one that matches, or the one that --run names. With --bench the report
    describes a benchmark instead, with --all the best kernels of all runs that match. The
    explanation of the winner is that of `autogemm explain` and takes some seconds.

    \b
    Examples:
      autogemm report report.html
      autogemm report run3.html --run 3
      autogemm report ladder.html --bench last
      autogemm report ladder.html --bench benchmarks/results/ladder_h100.json
      autogemm report winners.html --all --gpu h100
    """
    collect_rarely()
    from autogemm.cli.insight.run.report import ReportCommand, run

    run(ReportCommand(**values))


KINDS = ("history", "distribution", "importance", "heatmap", "sizes", "ladder")


def comparison_options(command: Command) -> Command:
    """Add ``--bench ID --winners``, for `autogemm.insight.analysis.compare`."""
    command = click.option(
        "--winners",
        is_flag=True,
        help="Show the best kernels of the database instead of a benchmark.",
    )(command)
    return bench_option(
        "--bench",
        "bench_id",
        help="A benchmark of the database (default: the newest), or a file that `bench --json` "
        "made.",
    )(command)


# The names of autogemm.catalogue.palette.THEMES.
theme_option = click.option(
    "--theme",
    type=click.Choice(("light", "dark")),
    default="light",
    show_default=True,
    help="The background for which the plot is drawn.",
)


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file")
@click.option("--x", metavar="NAME", help="heatmap: the parameter on the x axis.")
@click.option("--y", metavar="NAME", help="heatmap: the parameter on the y axis.")
@comparison_options
@theme_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@filter_options
@db_option
def plot(**values: Any) -> None:
    """Plot a run or a benchmark into a .png, .svg or .pdf FILE.

    \b
    Plots of a run, the newest one that matches or the one that --run names:
      history       the best so far, over trials and over seconds
      distribution  how the times of all configs are distributed
      importance    which parameters distinguish the fastest tenth (PED-ANOVA)
      heatmap       the best config for each pair of values of two parameters;
                    without --x and --y the two that matter most

    \b
    Plots of a benchmark, or of the best kernels in the database if there is none:
      sizes         percent of the roof over size, a panel for each kernel
      ladder        one bar per kernel, at the size of --size or the largest

    `autogemm roofline` draws the roofline.

    \b
    Examples:
      autogemm plot history history.svg
      autogemm plot heatmap tiles.png --run 3 --x BM --y BN
      autogemm plot ladder ladder.svg --bench 2 --size 4096 --theme dark
      autogemm plot ladder ladder.svg --bench benchmarks/results/ladder_h100.json
    """
    from autogemm.cli.insight.run.pictures import PlotCommand, run_plot

    run_plot(PlotCommand(**values))


@click.command()
@click.argument("file", required=False)
@comparison_options
@theme_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@query_options
def roofline(**values: Any) -> None:
    """Show how close kernels come to the roofs of their GPU, as a table and a plot.

    FILE is a .png, .svg or .pdf; without it only the table is printed. The kernels are those of the
    newest benchmark, or the best in the database if there is none. The roof of a kernel is the
    smaller of two numbers: the peak of the GPU for its dtype, and the memory bandwidth times the
    FLOP per byte that the kernel must move at least.

    \b
    Examples:
      autogemm roofline
      autogemm roofline roofline.svg --bench 2
      autogemm roofline winners.png --winners --gpu h100
    """
    from autogemm.cli.insight.run.pictures import RooflineCommand, run_roofline

    run_roofline(RooflineCommand(**values))
