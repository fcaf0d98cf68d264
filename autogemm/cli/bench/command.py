"""Options and help of ``autogemm bench``."""

from typing import Any

import click

from autogemm.cli.options import (
    batch_option,
    bench_option,
    choice_option,
    count_option,
    dtype_option,
    epilogue_option,
    stored_options,
)
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import CacheState, Fill


@click.command(short_help="Time kernels side by side: rungs, your own, libraries.")
@click.option(
    "--kernels",
    metavar="NAME,NAME",
    help="Rungs, `winner`, kernel:ID, libraries; or the groups rungs, variants, libraries. "
    "Default: a selection, with --preset ladder all of them.",
)
@click.option(
    "--sizes",
    metavar="SIZE,SIZE",
    help="4096, MxNxK, 128:8192:*2, 128:1024:+128, or @FILE with one per line.",
)
@click.option(
    "--preset", metavar="NAME", help="Sizes by name: ladder, squares, transformer, suite."
)
@choice_option(
    "--layout",
    Layout,
    help="op(A) then op(B): n as stored, t transposed. Default: nn; nt for 8-bit types, which "
    "have no other.",
)
@dtype_option(default=DType.F32.label)
@epilogue_option
@batch_option
@count_option("--rounds", 20, "Rounds; each kernel runs once per round.")
@count_option("--seed", 0, "Seed of the inputs and of the order within a round.", least=0)
@choice_option(
    "--l2",
    CacheState,
    help="L2 cache before each launch: warm, flushed, or filled with other inputs.",
    default=CacheState.WARM,
)
@choice_option(
    "--fill", Fill, help="Contents of the matrices while kernels are timed.", default=Fill.UNIFORM
)
@click.option("--report", metavar="FILE", help="Also write a report, one HTML file.")
@click.option("--no-store", is_flag=True, help="Store nothing in the database.")
@bench_option(
    "--show",
    help="Show a benchmark from the database, or from a file written by --json; measure nothing.",
)
@click.option("--list", "as_list", is_flag=True, help="List the kernels that can be named.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the result.")
@stored_options
def bench(**values: Any) -> None:
    """Time kernels side by side on the attached GPU, over any set of sizes.

    Every kernel is first verified on random inputs. Then all kernels run in each round, in random
    order; slow kernels skip the later rounds. Percent of cuBLAS compares with cuBLAS in the element
    types of the benchmark: it is the median of the paired ratios, with a 95 % interval (with fewer
    than six rounds, their extremes and the confidence of these). Published percentages were
    measured on the GPUs of their authors. Rungs are FP32; libraries have their element types in
    their names. A kernel that is wrong, not installed or unsuited to a size is listed with the
    reason.

    \b
    Examples:
      autogemm bench --preset ladder --report ladder.html
      autogemm bench --kernels tiled,kernel:12,cublas_f32 --sizes 128:8192:*2
      autogemm bench --dtype bf16 --kernels winner,cublas_bf16 --sizes 4096
      autogemm bench --dtype e4m3 --kernels winner,cublas_e4m3 --sizes 4096
      autogemm bench --sizes 4096x256x1024,@sizes.txt --csv
      autogemm bench --show last --csv
      autogemm bench --show benchmarks/results/ladder_h100.json
      autogemm bench --list
    """
    from autogemm.cli.bench.run import BenchCommand, run

    run(BenchCommand(**values))
