"""Options and help of the commands on kernels and GPUs: gpus, render, space, verify."""

from typing import Any

import click

from autogemm.cli.options import (
    MAX_SEED,
    config_options,
    count_option,
    dtype_option,
    epilogue_option,
    family_option,
    fix_option,
    gpu_option,
    problem_options,
    rung_option,
    seconds,
    stored_options,
    time_option,
)
from autogemm.cli.output import Form, listing_options
from autogemm.support.errors import UsageError


@click.command()
@click.argument("name", required=False)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the attached GPU: rate of multiply-adds, rate and latency of each memory level.",
)
@stored_options
def gpus(name: str | None, measure: bool, db: str | None, form: Form) -> None:
    """List the attached GPUs, the known GPUs and the recordings; with NAME, all facts of one GPU.

    Commands that take a GPU accept a known one by name even if it is not attached. Peaks are
    cores x clock x 2 at the highest clock; those of tensor cores are without sparsity and with
    FP32 accumulators. The ridge is peak / bandwidth. --measure stores its results in the database,
    for roofline plots. --json and --csv print only the GPUs, in one list with all facts; the column
    `kind` is `attached` or `known`.

    \b
    Examples:
      autogemm gpus
      autogemm gpus h100
      autogemm gpus --measure
      autogemm gpus --csv
    """
    from autogemm.cli.kernels.run import gpus as run

    if measure and name:
        raise UsageError("--measure is for the attached GPU: leave the name out")
    if measure:
        run.measure(db, form)
    elif name:
        run.show_one(name, form)
    else:
        run.show_all(form)


@click.command()
@config_options
@problem_options
@gpu_option
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="Output file; - is standard output."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def render(**values: Any) -> None:
    """Print the CUDA source of one config: a seed of the family or a rung, changed by --fix.

    The source depends on the layout of the problem, and on the edges and vector accesses that its
    sizes and leading dimensions require. If the config is not legal, every constraint that it
    violates is listed.

    \b
    Examples:
      autogemm render --fix BM=128 --fix BN=128 --fix STAGES=2
      autogemm render --rung tiled
      autogemm render --size 1000 --layout nt --seed-index 1 -o kernel.cu
      autogemm render --family ./mine --seed-index 1
    """
    from autogemm.cli.kernels.run.render import run

    run(**values)


@click.command()
@click.argument("family", metavar="NAME|PATH", default="sgemm_simt")
@problem_options
@gpu_option
@fix_option
@click.option(
    *("-f", "--format", "file_format"),
    type=click.Choice(("t1", "yaml")),
    help="Write the space to a file: a family as T1, or a T1 space as the YAML of a family.",
)
@click.option(
    *("-o", "--output"), metavar="FILE", default="-", help="Output file; - is standard output."
)
@click.option("--force", is_flag=True, help="Overwrite a file even if it is not an earlier output.")
@listing_options
def space(**values: Any) -> None:
    """Show a family's parameters and count its legal configs.

    PATH can also be a search space of another tuner in the T1 format; parts that cannot be
    expressed here are listed, and nothing in it is executed. A T1 file that is written holds for
    one problem and one GPU, whose sizes and limits are filled in.

    Each removed config counts for the first constraint that excludes it. Constraints are applied as
    soon as all parameters that they read are known.

    \b
    Examples:
      autogemm space sgemm_simt --size 4096 --gpu h100
      autogemm space ./mine --layout tt --fix BM=128,256 --fix STAGES=3
      autogemm space sgemm_simt --json
      autogemm space gemm.t1.json
      autogemm space gemm.t1.json --format yaml -o Xgemm.yaml
      autogemm space sgemm_simt --size 1024 --gpu h100 --format t1 -o simt.json
    """
    from autogemm.cli.kernels.run.space import SpaceCommand, run

    run(SpaceCommand(**values))


@click.command()
@family_option
@rung_option
@fix_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Verify N random legal configs instead of the seeds of the family.",
)
@count_option("--seed", 0, "Seed of the random sample.", least=0, most=MAX_SEED)
@dtype_option()
@epilogue_option
@click.option(
    "--batch",
    type=click.IntRange(min=2),
    metavar="COUNT",
    help="Products of every edge case; without it some cases have two or three.",
)
@click.option(
    "--groups",
    type=click.IntRange(min=2, max=64),
    metavar="COUNT",
    help="Groups of rows of every edge case; without it some cases have a few.",
)
@click.option("--kernel", "kernel_key", metavar="ID", help="The config of this stored kernel.")
@click.option(
    "--on",
    "places",
    type=click.Choice(["cpu", "gpu", "both"]),
    default="cpu",
    show_default=True,
    help="Where the kernels run.",
)
@click.option(
    "--mode",
    type=click.Choice(["check", "fast"]),
    default="check",
    show_default=True,
    help="On the CPU: check every memory access, or only the results.",
)
@click.option(
    "--budget",
    metavar="TIME",
    default="auto",
    show_default=True,
    callback=lambda context, parameter, text: (
        text if text == "auto" else seconds(context, parameter, text)
    ),
    help="Begin no further case after this time: 90s, 10m, none. auto: 40s, or none with --rung, "
    "--sample, --fix or --kernel.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Check --kernel on the attached GPU as a winner is checked, and store the certificate.",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Show which lines of the emitted sources no edge case executes, instead of verifying.",
)
@click.option(
    "--mutate",
    metavar="NAME|PATH",
    help="Plant bugs in the kernels of this family and show those that no edge case finds.",
)
@count_option("--mutants", 100, "Number of bugs that --mutate plants.")
@time_option("--each", "each_s", "60s", "Give up on a planted bug after this time: 90s, 2m.")
@gpu_option
@stored_options
def verify(**values: Any) -> None:
    """Run kernels on edge cases: all layouts, edges, padded rows, short K, beta.

    On the CPU every memory access of the emitted source is checked. This finds data races, reads of
    uninitialised memory and variables, accesses out of bounds, misaligned vectors, divergent
    barriers and use of data in flight, but no bug in inline PTX, and no garbage that changes no
    result. Nothing is timed there. Without --dtype, every element type of the family is verified. A
    config that is not legal for a problem is replaced by the nearest legal one with the same tiles
    and counted as adapted; for a stored kernel the case is skipped. Verification
    stops at the first failure, with exit code 1.

    Without a config the seeds of the family are verified, which are thousands of cases. Those that
    reach new code run first, and after 40 s no further case begins unless --budget allows more; the
    last line says how many of all cases ran.

    --mutate tests the edge cases themselves: a mutant is a kernel with one mistake in one line (a
    missing barrier, a bound off by one, swapped strides), which runs on the edge cases until one
    fails. Mutants that survive are listed; some are harmless, such as a fast path that is never
    taken, and must be judged by hand.

    --lines counts how often the edge cases of a config execute each line and branch of each emitted
    source (with --kernel: of exactly that source), and lists those that none executes. Lines that
    the compiler removes are not counted.

    \b
    Examples:
      autogemm verify
      autogemm verify --budget 10m
      autogemm verify --mutate sgemm_skinny --mutants 20
      autogemm verify --lines --fix BM=64
      autogemm verify --rung tiled
      autogemm verify --sample 20 --seed 1 --fix STAGES=3,4
      autogemm verify --family gemm_mma --epilogue "gelu(acc + bias[n])"
      autogemm verify --kernel 17 --on both
      autogemm verify --kernel 17 --certify
    """
    from autogemm.cli.kernels.run.verify import VerifyCommand, run

    run(VerifyCommand(**values))
