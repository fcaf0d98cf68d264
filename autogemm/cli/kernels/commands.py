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
    help="Measure what the attached GPU reaches: multiply-adds alone, each memory alone.",
)
@stored_options
def gpus(name: str | None, measure: bool, db: str | None, form: Form) -> None:
    """List the attached GPUs, the GPUs of the catalogue and the recordings; all facts of one, NAME.

    A GPU of the catalogue can be named where a command takes a GPU, without being attached. Peaks
    are cores x clock x 2 at the highest clock; those of tensor cores are without sparsity and with
    FP32 accumulators. The ridge is peak / bandwidth. --measure keeps what it finds in the database,
    for pictures. --json and --csv print the GPUs alone, in one list with all facts, whose column
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


@click.command()
@family_option
@rung_option
@fix_option
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="N legal configs at random; without it the family's seeds, changed by --fix.",
)
@count_option("--seed", 0, "Seed of the random sample.", least=0, most=MAX_SEED)
@dtype_option()
@epilogue_option
@click.option("--kernel", "kernel_key", metavar="ID", help="The config of this stored kernel.")
@click.option(
    "--on",
    "places",
    type=click.Choice(["cpu", "gpu", "both"]),
    default="cpu",
    show_default=True,
    help="Where kernels run.",
)
@click.option(
    "--mode",
    type=click.Choice(["check", "fast"]),
    default="check",
    show_default=True,
    help="On the CPU: check every access, or only results.",
)
@click.option(
    "--certify",
    is_flag=True,
    help="Check --kernel as a winner is checked, on the attached GPU, and store the certificate.",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Show which lines of the emitted sources no edge case runs, instead of checking them.",
)
@click.option(
    "--mutate",
    metavar="NAME|PATH",
    help="Plant bugs in this family's kernels by rules and say which no edge case finds.",
)
@count_option("--mutants", 100, "How many bugs --mutate plants.")
@time_option("--each", "each_s", "60s", "Give a planted bug up after that time: 90s, 2m.")
@gpu_option
@stored_options
def verify(**values: Any) -> None:
    """Run kernels on edge cases: all layouts, edges, padded rows, short K, beta.

    On the CPU every access of the emitted source is checked: data races, reads of uninitialised
    memory, out of bounds, misaligned vectors, divergent barriers, use of data in flight. Not seen:
    scalars never written, the memory model beyond barriers; nothing is ever timed there. Without
    --dtype each element type that the family has kernels for is verified. A config that is not
    legal for a problem is replaced by its nearest legal neighbour with the same tiles, counted as
    adapted (a stored kernel: skipped). It stops at the first case that fails, with exit code 1.

    --mutate tests the test: each mutant is a kernel with one slip in one line (a barrier dropped, a
    bound off by one, strides swapped), run on the edge cases until one fails. Those that survive
    are shown; some do no harm (a fast path never taken), which a person has to judge.

    --lines counts how often each line and branch of each emitted source runs on the config's edge
    cases (with --kernel: of that very source), and shows those that none runs. Lines that the
    compiler removes are not counted.

    \b
    Examples:
      autogemm verify
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
