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
from autogemm.cli.sections import sectioned
from autogemm.model.called import MAX_BYTES, is_called_text, parsed_called
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective
from autogemm.search import SAMPLERS
from autogemm.support.errors import UsageError
from autogemm.support.files import read_bounded

DEFAULT_SIZE = "4096"
MAX_PROBLEMS = 10_000
MAX_LINE = 200
# Least share of ``--total``, in seconds: enough for the first candidates of a search.
LEAST_S = 1.0


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
        return self.weighted[0]

    @property
    def weighted(self) -> tuple[tuple[Problem, ...], dict[Problem, float]]:
        """The problems, and the time shares of those from a recording of a program, which come
        first.

        Raises UsageError for a size, line, preset or file that holds no problem.
        """
        text = _text(self.problems_file) if self.problems_file else None
        if text is not None and is_called_text(text):
            weights = parsed_called(text, f"--problems {self.problems_file}").weights
            if not weights:
                raise UsageError(f"--problems {self.problems_file}: no kernels for its problems")
            named = self._named(None) if self.sizes or self.preset else ()
            return tuple(dict.fromkeys((*weights, *named))), weights
        return self._named(text), {}

    def _named(self, lines: str | None) -> tuple[Problem, ...]:
        sizes = list(self.sizes)
        if self.preset:
            sizes += ["x".join(map(str, size)) for size in preset(self.preset)]
        named = [self.problem(size) for size in sizes]
        if lines is not None:
            named += self._of_lines(f"--problems {self.problems_file}", lines)
        return tuple(dict.fromkeys(named or [self.problem(DEFAULT_SIZE)]))

    def _of_lines(self, place: str, text: str) -> list[Problem]:
        """Return the problem of each line; text after ``#`` is a comment."""
        lines = text.splitlines()
        if len(lines) > MAX_PROBLEMS:
            raise UsageError(f"{place}: more than {MAX_PROBLEMS} lines")
        found = []
        for number, line in enumerate(lines, 1):
            if line.partition("#")[0].split():
                try:
                    found.append(self.problem(*_words(line)))
                except UsageError as error:
                    raise UsageError(f"{place}, line {number}: {error}") from error
        if not found:
            raise UsageError(f"{place}: contains no problem: write one size per line")
        return found

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
        "--preset",
        metavar="NAME",
        help="Many sizes by name: transformer, squares, mixed, suite or ladder.",
    ),
    click.option(
        "--problems",
        "problems_file",
        metavar="FILE",
        help="A file with one problem per line: a size, a layout and a batch or groups if they "
        "differ: 4096x256x1024 nt groups=8 zipf=1.1; or a file of `autogemm record`, the longest "
        "time first.",
    ),
    *MATRIX_OPTIONS,
)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return error.strerror or ""
    return "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)


def _text(place: str) -> str:
    try:
        return read_bounded(Path(place), max(MAX_BYTES, MAX_PROBLEMS * MAX_LINE)).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"--problems {place}: cannot be read: {_why(error)}") from error


def _words(line: str) -> tuple[str, Layout | None, str, str]:
    """Return size, layout, batch and groups of a line; the last three may be left out."""
    words = line.partition("#")[0].split()
    starts = (place for place, word in enumerate(words) if word.startswith(("batch=", "groups=")))
    end = next(starts, len(words))
    is_problem = len(line) <= MAX_LINE and 1 <= end <= 2
    if not is_problem or words[1:end] not in ([], *([one.value] for one in Layout)):
        raise UsageError(
            "a size, perhaps a layout, and perhaps a batch or groups (4096x256x1024 nt, "
            f"512 nn batch=64, 4096 nt groups=8 zipf=1.1), got {line.strip()[:MAX_LINE]!r}"
        )
    layout = Layout(words[1]) if words[1:end] else None
    kind, _, text = " ".join(words[end:]).partition("=")
    if kind and not text:
        raise UsageError(f"{kind}= needs a value, as in {kind}=8")
    return words[0], layout, text if kind == "batch" else "", text if kind == "groups" else ""


SECTIONS = {
    "Problem": (
        *("--size", "--preset", "--problems", "--layout", "--dtype", "--lda", "--ldb", "--ldc"),
        *("--batch", "--groups", "--alpha", "--beta", "--epilogue"),
    ),
    "Where": (
        *("--gpu", "--require-gpu", "--scheduler", "--scheduler-file", "--compilers"),
        *("--db", "--fresh"),
    ),
    "Space and search": (
        *("--family", "--allow-emulation", "--fix", "--sampler", "--seed", "--no-seeds"),
        *("--no-warm-start", "--no-prune"),
    ),
    "Stopping": ("--budget", "--total", "--trials", "--until-ratio", "--until-gain"),
    "Measuring": (
        *("--objective", "--max-error", "--finalists", "--rounds", "--sustained", "--l2"),
        *("--fill", "--cross", "--no-certify"),
    ),
    "Output": (
        *("--json", "--csv", "--wide", "--rounds-file", "--quiet", "--verbose", "--log-file"),
        "--help",
    ),
}


@click.command(
    cls=sectioned(SECTIONS), short_help="Find the fastest kernel for a problem on a GPU."
)
@click.option(
    "--gpu",
    metavar="auto|INDEX|NAME|all|recorded[:FILE]",
    default="auto",
    show_default=True,
    help="An attached GPU, or a recording: one of this project, or a cache file of Kernel Tuner. "
    "auto: the first GPU, or a shipped recording if there is none. all, or 0,2: spread many "
    "problems over these GPUs.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Spread many problems over the workers of a running Dask scheduler: tcp://host:8786.",
)
@click.option(
    "--scheduler-file", metavar="FILE", help="The same, with the file that the scheduler wrote."
)
@click.option(
    "--compilers",
    metavar="ADDRESS|FILE",
    help="Also compile with the workers of this Dask scheduler; they need no GPU.",
)
@click.option("--require-gpu", is_flag=True, help="Fail instead of using a recording.")
@problems_options
@click.option(
    "--family",
    metavar="NAME|PATH",
    multiple=True,
    help="Search only this family: one that ships, or a folder with NAME.yaml and NAME.cu.jinja; "
    "repeatable. Default: every family that supports the problem.",
)
@click.option(
    "--allow-emulation",
    is_flag=True,
    help="For f32: also search kernels that emulate FP32 on tensor cores.",
)
@fix_option
@count_option("--trials", 300, "Stop the search after this many trials.")
@time_option(
    "--budget",
    "budget_s",
    "2m",
    "Stop the search after this time: 90s, 2m, 1h, none. The first config that runs is awaited.",
)
@time_option(
    "--total",
    "total_s",
    "none",
    "Divide this time among the problems of a recording, by recorded time; instead of --budget.",
)
@click.option(
    "--until-ratio",
    metavar="RATIO",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop once cuBLAS time / best time reaches this, if the finals confirm it: 1.05.",
)
@click.option(
    "--until-gain",
    metavar="SHARE",
    type=click.FloatRange(min=0, min_open=True, max=1, max_open=True),
    help="Stop once the expected gain of the next candidate is less than this share of the best "
    "time: 0.001. Needs a sampler with a model.",
)
@choice_option(
    "--objective",
    Objective,
    help="Quantity to minimise; edp is energy times time. Energy is that of the whole GPU (NVML).",
    default=Objective.TIME,
)
@click.option(
    "--max-error",
    metavar="NUMBER|cublas",
    default="",
    help="Largest relative error of the winner (Frobenius norm, against float64): 1e-6; or cublas: "
    "no worse than cuBLAS on the same inputs. Default: any error that verifies.",
)
@click.option(
    "--sampler",
    metavar="NAME",
    default="surrogate",
    show_default=True,
    help=f"One of: {', '.join(SAMPLERS)}; or one registered by an installed package.",
)
@count_option("--seed", 0, "Seed of the search and of the inputs.", least=0, most=MAX_SEED)
@count_option(
    "--finalists",
    8,
    "Candidates that are timed again beside cuBLAS: the best ones; a third of the places goes to "
    "near-best ones that differ from them.",
)
@count_option("--rounds", 30, "Rounds of the finals.")
@time_option(
    "--sustained",
    "sustained_s",
    "none",
    "Afterwards run winner and baseline alone, in turn, twice for this time each: 3s; none skips "
    "it.",
)
@click.option(
    "--rounds-file",
    metavar="FILE",
    help="Also write the times of all contestants in all rounds: FILE.json or FILE.json.gz.",
)
@choice_option(
    "--l2",
    CacheState,
    help="L2 cache before each timed launch: as the previous one left it, flushed, or filled with "
    "other inputs.",
    default=CacheState.WARM,
)
@choice_option(
    "--fill",
    Fill,
    help="Contents of the matrices during timing. Zeros are faster than any real data.",
    default=Fill.UNIFORM,
)
@click.option(
    "--cross",
    is_flag=True,
    help="With many problems: also time each winner on the other problems. Dispatch rules are "
    "learned from these times.",
)
@off_option("--no-prune", "Also measure candidates that static facts rule out.")
@off_option("--no-warm-start", "Do not start with the winners of similar stored results.")
@off_option("--no-seeds", "Do not start with the shipped configs that were fast elsewhere.")
@off_option(
    "--no-certify",
    "Skip the final checks of the winner: edge cases and compute-sanitizer (some seconds).",
)
@db_option
@click.option(
    "--fresh", is_flag=True, help="Start a new run instead of resuming an unfinished one."
)
@listing_options
@click.option("-q", "--quiet", is_flag=True, help="Show no progress, only the result.")
def tune(  # noqa: PLR0913  # keywords
    *,
    problems: ProblemsOptions,
    scheduler: str | None,
    scheduler_file: str | None,
    compilers: str | None,
    cross: bool,
    total_s: float | None,
    rounds_file: str | None,
    db: str | None,
    quiet: bool,
    form: Form,
    **values: Any,
) -> None:
    """Find the fastest kernel for a problem on a GPU.

    The search covers the legal configs of every family that supports the problem. Each candidate
    is verified and timed, every trial is stored in the database, and the best are timed again
    beside cuBLAS. The winner is then checked on edge cases, on the GPU and, access by access, on
    the CPU, and under compute-sanitizer if it is installed; a kernel that fails cannot win. The
    search ends at the first limit that it reaches. Ctrl-C ends it at once and prints the best
    kernel so far; the same command resumes it.

    Several sizes, a preset or a file of problems are tuned one after the other and summarised in
    one table; problems that already have a result of the same request are skipped. With --gpu all
    or --scheduler they are spread over several GPUs, one GPU per problem (this needs the extra
    "cluster").

    --json contains everything except the individual trials. --csv has one row for each finalist
    and for cuBLAS, or one row per problem if there are many.

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
      autogemm tune --problems shapes.jsonl --total 30m
      autogemm tune --gpu all --problems sizes.txt --budget 30s
      autogemm tune --scheduler tcp://node1:8786 --preset transformer --budget 30s
      autogemm tune --gpu recorded --size 1024 --json
      autogemm tune --gpu recorded --size 1024 --csv > finals.csv
      autogemm tune --gpu recorded:db/recordings/sgemm_simt_h200_4096_nn.json.gz
    """
    # A mistake in the problems is reported before imports that take a second.
    asked, weights = problems.weighted
    if total_s is not None and not weights:
        raise UsageError("--total needs a recording: give one with --problems")
    from autogemm.cli.tune.run import ClusterRequest, TuneCommand, TuneOptions, run

    resized = None if problems.sizes else problems.resized
    options = TuneOptions(**values)
    cluster = ClusterRequest(options.gpu, scheduler, scheduler_file, compilers)
    budgets = (
        {one: max(LEAST_S, total_s * share) for one, share in weights.items()} if total_s else {}
    )
    run(TuneCommand(asked, resized, options, cluster, cross, rounds_file, db, quiet, form, budgets))
