"""Options and help of ``autogemm tune``."""

from typing import Any

import click

from autogemm.cli.options import db_option, fix_option, seconds
from autogemm.cli.output import Form, listing_options
from autogemm.cli.tune.problems import ProblemsOptions, problems_options
from autogemm.model.results.outcome import CacheState, Fill, Objective
from autogemm.search import SAMPLERS


@click.command(short_help="Find the fastest kernel for a problem on a GPU.")
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="An attached GPU, or a recording: this project's or a cache file of Kernel Tuner. auto: "
    "the first GPU, without one a shipped recording.",
)
@click.option("--require-gpu", is_flag=True, help="Fail where auto would use a recording.")
@problems_options
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Search this family only: one that ships, or a folder with NAME.yaml and NAME.cu.jinja; "
    "repeatable. Default: every family that fits the problem.",
)
@click.option(
    "--allow-emulation",
    is_flag=True,
    help="For f32: also search kernels that compute FP32 by tensor-core products.",
)
@fix_option
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Stop the search after this many trials of the run.",
)
@click.option(
    "--budget",
    "budget_s",
    metavar="TIME",
    callback=seconds,
    default="2m",
    show_default=True,
    help="Stop the search after this time: 90s, 2m, 1h, none.",
)
@click.option(
    "--until-ratio",
    metavar="RATIO",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop once cuBLAS time / best time is at least this, if the finals confirm it: 1.05.",
)
@click.option(
    "--until-gain",
    metavar="SHARE",
    type=click.FloatRange(min=0, min_open=True, max=1, max_open=True),
    help="Stop once the next candidate is expected to save less than this share of the best time: "
    "0.001. For samplers with a model.",
)
@click.option(
    "--objective",
    type=click.Choice([objective.value for objective in Objective]),
    default=Objective.TIME.value,
    show_default=True,
    help="The quantity to minimise; edp is energy times time. Energy is NVML's, of the whole GPU.",
)
@click.option(
    "--max-error",
    metavar="NUMBER|cublas",
    default="",
    help="Largest relative error (Frobenius, against float64) that the winner may have: 1e-6; or "
    "cublas, no worse than cuBLAS on the same inputs. Default: any that verifies.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    default="surrogate",
    show_default=True,
    help=f"One of: {', '.join(SAMPLERS)}; or one that an installed package registers.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the search and of the inputs.",
)
@click.option(
    "--finalists",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Candidates that are re-timed beside cuBLAS: the best, and in a third of the places some "
    "near the best that differ from them.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Rounds of the finals.",
)
@click.option(
    "--l2",
    type=click.Choice([state.value for state in CacheState]),
    default=CacheState.WARM.value,
    show_default=True,
    help="L2 cache before each timed launch: as the last one left it, flushed, or full of other "
    "inputs.",
)
@click.option(
    "--fill",
    type=click.Choice([fill.value for fill in Fill]),
    default=Fill.UNIFORM.value,
    show_default=True,
    help="Contents of the matrices while kernels are timed. Zeros are faster than any real data.",
)
@click.option(
    "--cross",
    is_flag=True,
    help="For many problems: also time each winner on the others. Dispatch rules are learned from "
    "these times.",
)
@click.option("--no-prune", is_flag=True, help="Also measure what static facts rule out.")
@click.option(
    "--no-warm-start", is_flag=True, help="Do not try the winners of similar stored results first."
)
@click.option(
    "--no-certify",
    is_flag=True,
    help="Do not check the winner further: edge cases, compute-sanitizer (some seconds).",
)
@db_option
@click.option("--fresh", is_flag=True, help="Begin anew where an unfinished run would be resumed.")
@listing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
def tune(
    *,
    problems: ProblemsOptions,
    cross: bool,
    db: str | None,
    quiet: bool,
    form: Form,
    **values: Any,
) -> None:
    """Find the fastest kernel for a problem on a GPU.

    Searches the legal configs of every family that fits, verifies and times each candidate, keeps
    every trial in the database, and re-times the best beside cuBLAS. The winner is then checked on
    edge cases, on the GPU and access by access on the CPU, and under compute-sanitizer where it is
    installed; a kernel that fails is no winner. The search ends with the first of its limits.
    Ctrl-C ends it at once and prints the best so far; the same command resumes.

    Several sizes, a preset or a file of problems are tuned one after the other, sharing what is
    compiled, and end in one table; problems that have a result of the same request are not tuned
    again.

    --json has everything but the single trials; --csv has a row for each finalist and for cuBLAS,
    or for many problems one row each.

    \b
    Examples:
      autogemm tune --gpu auto --size 4096
      autogemm tune --size 4096x256x1024 --layout tt --budget 5m --trials 1000
      autogemm tune --size 4096 --dtype bf16
      autogemm tune --size 4096 --allow-emulation
      autogemm tune --size 512 --until-ratio 1.5 --budget 10m --trials 5000
      autogemm tune --size 4096 --objective energy
      autogemm tune --size 4096 --max-error cublas
      autogemm tune --preset transformer --budget 20s --cross
      autogemm tune --problems sizes.txt --layout nt --budget 30s
      autogemm tune --gpu recorded --size 1024 --json
      autogemm tune --gpu recorded --size 1024 --csv > finals.csv
      autogemm tune --gpu recorded:cache.json.gz --size 4096
    """
    # A mistake in the problems is shown before what takes a second to import.
    asked = problems.values
    from autogemm.cli.tune.run import TuneCommand, run, tune_options

    resized = None if problems.sizes else problems.resized
    run(TuneCommand(asked, resized, tune_options(**values), cross, db, quiet, form))
