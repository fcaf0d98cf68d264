"""Options and help of ``autogemm tune``; the problems that it is asked for, one or many."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from autogemm.catalogue.presets import preset
from autogemm.cli.options import (
    MATRIX_OPTIONS,
    MAX_SEED,
    MatrixOptions,
    choice_option,
    count_option,
    db_option,
    fix_option,
    grouped,
    off_option,
    time_option,
)
from autogemm.cli.output import Form, listing_options
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective
from autogemm.search import SAMPLERS
from autogemm.support.errors import UsageError
from autogemm.support.files import read_bounded

DEFAULT_SIZE = "4096"
MAX_PROBLEMS = 10_000
MAX_LINE = 200


@dataclass(frozen=True, slots=True)
class ProblemsOptions(MatrixOptions):
    """Options of one problem or many: sizes, a preset, a file."""

    sizes: tuple[str, ...]
    preset: str | None
    problems_file: str | None

    @property
    def values(self) -> tuple[Problem, ...]:
        """The problems, each once, in the order given.

        Raises UsageError for a size, line, preset or file that holds no problem.
        """
        named = [(size, self.layout) for size in self.sizes]
        if self.preset:
            named += [("x".join(map(str, size)), self.layout) for size in preset(self.preset)]
        if self.problems_file:
            named += _lines(self.problems_file, self.layout)
        if not named:
            named = [(DEFAULT_SIZE, self.layout)]
        return tuple(dict.fromkeys(self.problem(size, layout) for size, layout in named))

    def resized(self, size: str) -> Problem:
        """Return the problem of another size, with the same matrix options."""
        return replace(self, sizes=(size,)).values[0]


# The options of one problem or many as one ``problems``: `autogemm.cli.options.problem_options`
# with ``--size`` repeatable, and ``--preset`` and ``--problems``.
problems_options = grouped(
    "problems",
    ProblemsOptions,
    click.option(
        "--size",
        "sizes",
        multiple=True,
        help="M=N=K as one number, or MxNxK; repeatable.  [default: 4096]",
    ),
    click.option(
        "--preset", metavar="NAME", help="Many: transformer, squares, mixed, suite or ladder."
    ),
    click.option(
        "--problems",
        "problems_file",
        metavar="FILE",
        help="Many: a line each, a size and, if it differs, a layout: 4096x256x1024 nt.",
    ),
    *MATRIX_OPTIONS,
)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or ""
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _lines(place: str, layout: Layout) -> list[tuple[str, Layout]]:
    """Return size and layout of each line; text behind ``#`` is a comment."""
    try:
        lines = read_bounded(Path(place), MAX_PROBLEMS * MAX_LINE).decode().splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"--problems {place}: cannot be read: {_why(error)}") from error
    if len(lines) > MAX_PROBLEMS:
        raise UsageError(f"--problems {place}: more than {MAX_PROBLEMS} lines")
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        is_problem = len(line) <= MAX_LINE and len(words) <= 2
        if not is_problem or words[1:] not in ([], *([one.value] for one in Layout)):
            raise UsageError(
                f"--problems {place}, line {number}: a size and perhaps a layout "
                f"(4096x256x1024 nt), got {line.strip()[:MAX_LINE]!r}"
            )
        try:
            Problem.of_size(words[0])
        except UsageError as error:
            raise UsageError(f"--problems {place}, line {number}: {error}") from error
        found.append((words[0], Layout(words[1]) if words[1:] else layout))
    if not found:
        raise UsageError(f"--problems {place}: holds no problem: write a size a line")
    return found


@click.command(short_help="Find the fastest kernel for a problem on a GPU.")
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|all|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="An attached GPU, or a recording: this project's or a cache file of Kernel Tuner. auto: "
    "the first GPU, without one a shipped recording. all, or 0,2: many problems over these GPUs.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Many problems over the workers of a Dask scheduler that runs: tcp://host:8786.",
)
@click.option(
    "--scheduler-file", metavar="FILE", help="The same, by the file that the scheduler wrote."
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
@count_option("--trials", 300, "Stop the search after this many trials of the run.")
@time_option("--budget", "budget_s", "2m", "Stop the search after this time: 90s, 2m, 1h, none.")
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
@choice_option(
    "--objective",
    Objective,
    help="The quantity to minimise; edp is energy times time. Energy is NVML's, of the whole GPU.",
    default=Objective.TIME,
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
@count_option("--seed", 0, "Seed of the search and of the inputs.", least=0, most=MAX_SEED)
@count_option(
    "--finalists",
    8,
    "Candidates that are re-timed beside cuBLAS: the best, and in a third of the places some "
    "near the best that differ from them.",
)
@count_option("--rounds", 30, "Rounds of the finals.")
@time_option(
    "--sustained",
    "sustained_s",
    "none",
    "Then run winner and baseline each alone, hot, twice for this time, in turn: 3s; none leaves "
    "it out.",
)
@click.option(
    "--rounds-file",
    metavar="FILE",
    help="Also write the time of every contestant in every round: FILE.json or FILE.json.gz.",
)
@choice_option(
    "--l2",
    CacheState,
    help="L2 cache before each timed launch: as the last one left it, flushed, or full of other "
    "inputs.",
    default=CacheState.WARM,
)
@choice_option(
    "--fill",
    Fill,
    help="Contents of the matrices while kernels are timed. Zeros are faster than any real data.",
    default=Fill.UNIFORM,
)
@click.option(
    "--cross",
    is_flag=True,
    help="For many problems: also time each winner on the others. Dispatch rules are learned from "
    "these times.",
)
@off_option("--no-prune", "Also measure what static facts rule out.")
@off_option("--no-warm-start", "Do not try the winners of similar stored results first.")
@off_option(
    "--no-seeds", "Do not try the configs first that ship because they were good somewhere."
)
@off_option(
    "--no-certify",
    "Do not check the winner further: edge cases, compute-sanitizer (some seconds).",
)
@db_option
@click.option("--fresh", is_flag=True, help="Begin anew where an unfinished run would be resumed.")
@listing_options
@click.option("-q", "--quiet", is_flag=True, help="No progress, only the result.")
def tune(  # noqa: PLR0913  # keywords
    *,
    problems: ProblemsOptions,
    scheduler: str | None,
    scheduler_file: str | None,
    cross: bool,
    rounds_file: str | None,
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
    again. With --gpu all, or --scheduler, they are spread over several GPUs, each problem tuned by
    one of them (needs the extra "cluster").

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
      autogemm tune --size 8192 --sustained 3s --rounds-file rounds.json.gz
      autogemm tune --preset transformer --budget 20s --cross
      autogemm tune --problems sizes.txt --layout nt --budget 30s
      autogemm tune --gpu all --problems sizes.txt --budget 30s
      autogemm tune --scheduler tcp://node1:8786 --preset transformer --budget 30s
      autogemm tune --gpu recorded --size 1024 --json
      autogemm tune --gpu recorded --size 1024 --csv > finals.csv
      autogemm tune --gpu recorded:cache.json.gz --size 4096
    """
    # A mistake in the problems is shown before what takes a second to import.
    asked = problems.values
    from autogemm.cli.tune.run import ClusterRequest, TuneCommand, TuneOptions, run

    resized = None if problems.sizes else problems.resized
    options = TuneOptions(**values)
    cluster = ClusterRequest(options.gpu, scheduler, scheduler_file)
    run(TuneCommand(asked, resized, options, cluster, cross, rounds_file, db, quiet, form))
