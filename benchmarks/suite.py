"""Tunes and measures a suite of shapes on a GPU, and draws what came out.

    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --commit COMMIT --out OUT
    ... suite.py --layouts nn,nt,tn,tt --limit 500 --out OUT     all layouts, as far as 500 s reach
    ... suite.py --unseen 20 --out OUT                           shapes that nobody tuned for
    ... suite.py --without-seeds --out OUT                       no config that ships is tried first
    ... suite.py --dtype bf16 --out OUT
    ... suite.py --emulation --out OUT
    ... suite.py --suite layers --dtype bf16 --layouts nt --l2 rotate --out OUT    models' layers
    ... suite.py --suite any-size --dtype bf16 --layouts nn,nt --out OUT    no size of 128s
    ... suite.py --suite cube --dtype f16 --out OUT              100 of the public 1000 shapes
    ... suite.py --suite layouts --dtype tf32 --layouts nn,nt,tn,tt --out OUT
    ... suite.py --suite batched --out OUT                       many small products in a launch
    ... suite.py --suite grouped --dtype bf16 --layouts nt --out OUT    experts
    ... suite.py --suite grouped-k --dtype bf16 --layouts tn --out OUT    gradients of experts
    ... suite.py --suite moe-decode --dtype bf16 --layouts nt --l2 rotate --out OUT    few tokens
    ... suite.py --suite bias-gelu --dtype bf16 --layouts nt --out OUT    layers with an epilogue
    ... suite.py --suite swiglu --dtype bf16 --layouts nt --out OUT
    ... suite.py --suite bias --again 16s --out OUT    rows that are not faster, for 16 s more
    ... suite.py --dtype e4m3 --layouts nt --out OUT
    ... suite.py --suite decode --dtype e4m3 --layouts nt --l2 rotate --out OUT
    ... suite.py --suite block-scales --dtype e4m3 --layouts nt --limit 110 --out OUT    DeepGEMM's
    ... suite.py --suite block-scales-decode --dtype e4m3 --layouts nt --l2 rotate --out OUT
    python benchmarks/suite.py --draw benchmarks/results/suite_h100.json --out docs/img

Each shape is tuned as `autogemm tune` does it, from an empty database and without certification,
which says nothing of speed; its ratio is that of the finals, paired and interleaved in random order
with the baseline. One process tunes them all, and counts the configs of the next shape while the
GPU works on this one.

Each layout has a file of its own, NAME.json, with a table in NAME.txt and every sample of every
round in NAME.rounds.json.gz, from which anybody can compute the intervals. They are written after
each shape: stopped at any moment, the same command goes on with the shapes that are missing. It
also takes rows from the folder --known, by default those that are committed, where the options were
the same and the winner's text is what its family emits today. With --again, rows that are not
faster than the baseline by both estimators are then tuned once more for longer; whatever that
gives takes their place.
"""

import importlib
import json
import math
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from small_copies import copies_us
from suite_shapes import MOST_FEW_BYTES, NAMED, Suite, shape_of, suite_of
from suite_shown import draw as draw_results
from suite_shown import line, moved_bytes, table
from suite_tables import Table, gpu_label, rounds_of, row_of

from autogemm.cli.options import seconds
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, Space, build_space
from autogemm.support.cells import one_line
from autogemm.support.errors import AutogemmError
from autogemm.tuning import Opened, TuneOptions, TuneRequest, open_run, tune

if TYPE_CHECKING:
    from autogemm.targets import GpuTarget

spaces_of_a_run = importlib.import_module("autogemm.tuning.task.spaces")

RESULTS = Path(__file__).parent / "results"
# Time of a shape beside its search: a fixed part, and launches of the finals, in which each
# contestant is timed and compared, at about this speed.
FIXED_S = 4.0
FINALS_LAUNCHES = 500
FLOP_PER_S = {True: 40e12, False: 250e12}
# Exit code where time ended: the same command goes on.
GOES_ON = 3


class Ahead:
    """Counts the legal configs of the next problem while the GPU works on this one.

    It takes the place of `build_space` in the runs of this process: seconds a shape.
    """

    def __init__(self, family_of: Callable[[Problem], Sequence[Family]]) -> None:
        self._families = family_of
        self._threads = ThreadPoolExecutor(1)
        self._begun: dict[tuple[str, Problem], Future[Space]] = {}

    def begin(self, problem: Problem, device: Any) -> None:
        """Begin with the spaces of a problem."""
        self._begun = {
            (family.name, problem): self._threads.submit(build_space, family, problem, device, {})
            for family in self._families(problem)
        }

    def __call__(self, family: Family, problem: Problem, device: Any, fix: Any = None) -> Space:
        """Return what `build_space` returns."""
        begun = self._begun.pop((family.name, problem), None)
        return build_space(family, problem, device, fix) if begun is None else begun.result()


def expected_s(problem: Problem, options: TuneOptions) -> float:
    """About how long a shape takes: search, and finals by the product's size."""
    launch_s = problem.flops / FLOP_PER_S[problem.dtype is DType.F32]
    sustained_s = 4 * (options.sustained_s or 0.0)
    return (options.budget_s or 60.0) + FIXED_S + FINALS_LAUNCHES * launch_s + sustained_s


@dataclass
class Measuring:
    """Tunes the problems that are missing, and writes each row as soon as it is there."""

    opened: Opened
    tables: dict[Layout, Table]
    folder: Path
    commit: str
    ends_at: float
    options: TuneOptions
    again_s: float | None = None
    is_again: bool = False

    def go(self) -> bool:
        """Measure all that the time allows; False if it ended before."""
        missing = [problem for one in self.tables.values() for problem in one.missing]
        if not self._tune_each(missing, self.opened.request):
            return False
        if self.again_s is None:
            return True
        longer = self.again_s / (self.options.budget_s or self.again_s)
        self.options, self.is_again = replace(self.options, budget_s=self.again_s), True
        again = [problem for one in self.tables.values() for problem in one.not_faster]
        request = self.opened.request
        trials = round((request.trials or 0) * longer) or None
        return self._tune_each(again, replace(request, budget_s=self.again_s, trials=trials))

    def _tune_each(self, problems: Sequence[Problem], request: TuneRequest) -> bool:
        device = self.opened.target.device
        ahead = Ahead(lambda problem: request.families)
        setattr(spaces_of_a_run, "build_space", ahead)  # noqa: B010  # it is no part of the face
        slower = 1.0
        try:
            for problem, following in zip(problems, [*problems, None][1:], strict=True):
                expected = expected_s(problem, self.options) * slower
                if time.monotonic() + expected > self.ends_at:
                    click.echo(f"stopped: {problem.label} would not end in time", err=True)
                    return False
                if following is not None:
                    ahead.begin(following, device)
                began = time.monotonic()
                if not self._measure(replace(request, problem=problem)):
                    return False
                # A machine may be slower than this one was believed to be.
                took = (time.monotonic() - began) / expected * slower
                slower = min(3.0, max(1.0, 0.5 * (slower + took)))
        finally:
            setattr(spaces_of_a_run, "build_space", build_space)  # noqa: B010
        return True

    def _measure(self, request: TuneRequest) -> bool:
        """Tune one; False when Ctrl-C ended it."""
        opened, problem = self.opened, request.problem
        own = self.tables[problem.layout]
        began = time.monotonic()
        try:
            result = tune(request, opened.target, opened.compiler, opened.store)
        except AutogemmError as error:
            own.failed[shape_of(problem)] = str(error)
        else:
            if result.interrupted:
                return False
            if result.finals is None:
                own.failed[shape_of(problem)] = "no candidate ran correctly"
            else:
                own.failed.pop(shape_of(problem), None)
                seconds = time.monotonic() - began
                row = row_of(result, result.finals, seconds) | self._made()
                if self.is_again:
                    row["again_s"] = self.again_s
                own.rows[shape_of(problem)] = row
                own.rounds[shape_of(problem)] = rounds_of(result, result.finals)
                click.echo(line(row)[:120])
                for wrong in row.get("wrong", ()):
                    click.echo(f"WRONG {wrong}", err=True)
        own.write(self.folder)
        return True

    def _made(self) -> dict[str, str]:
        return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": self.commit}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--shapes", default="", help="4096, MxNxK or '128 batch=512', by commas. Default: the suite."
)
@click.option("--suite", type=click.Choice(list(NAMED)), help="Another list of shapes.")
@click.option("--layouts", default="nn", help="Of nn, nt, tn, tt, by commas.", show_default=True)
@click.option("--unseen", default=0, help="So many shapes drawn at random, in the suite's place.")
@click.option("--seed", default=1, help="Of that draw.", show_default=True)
@click.option("--without-seeds", is_flag=True, help="Try no config first because it ships.")
@click.option("--dtype", default="f32", help="As of autogemm tune.")
@click.option("--epilogue", default="", help="As of autogemm tune.")
@click.option("--emulation", is_flag=True, help="With --allow-emulation, and --max-error cublas.")
@click.option("--trials", default=100, help="Trials a shape.", show_default=True)
@click.option(
    "--budget", default="3s", callback=seconds, help="Search time a shape.", show_default=True
)
@click.option("--rounds", default=20, help="Rounds of the finals.", show_default=True)
@click.option("--finalists", default=6, help="Kernels in the finals.", show_default=True)
@click.option("--max-error", default="", help="As of autogemm tune: a number, or cublas.")
@click.option("--l2", default="warm", help="As of autogemm tune.", show_default=True)
@click.option(
    "--sustained",
    default="none",
    callback=seconds,
    help="Then winner and baseline each alone, hot, twice for this time: 3s.",
)
@click.option("--family", multiple=True, help="As of autogemm tune.")
@click.option("--gpu", default="auto", help="As of autogemm tune.")
@click.option("--limit", default=math.inf, help="Begin no shape that would not end in so many s.")
@click.option(
    "--known",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    help="Folder of earlier results; rows of it that still hold are not measured again.",
)
@click.option("--anew", is_flag=True, help="Measure all shapes, also those with a row.")
@click.option(
    "--again",
    default="none",
    callback=seconds,
    help="Tune rows that are not faster once more, for so long: 16s.",
)
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--draw", type=click.Path(dir_okay=False, exists=True), help="Only draw this file.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
def main(commit: str, draw: str | None, out: str, **options: Any) -> None:
    """Ratio to the fastest baseline over the suite."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if draw:
        draw_results(json.loads(Path(draw).read_text()), folder, Path(draw).stem)
        return
    try:
        sys.exit(measured(folder, commit, out, options))
    except AutogemmError as error:
        raise click.ClickException(one_line(str(error))) from error


def measured(folder: Path, commit: str, out: str, options: Mapping[str, Any]) -> int:
    """Measure what is missing, write and print the tables; the exit code."""
    began = time.monotonic()
    suite = suite_of(options)
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        opened = open_run(
            stack,
            suite.problems[0],
            suite.options,
            f"{place}/suite.db",
            command=_command(out),
            notify=lambda notice: click.echo(notice, err=True),
        )
        tables = tables_of(suite, opened, commit, out)
        for one in tables.values():
            for earlier in () if options["anew"] else (folder, options["known"]):
                one.take(earlier)
            one.write(folder)
        ends_at = began + options["limit"]
        measuring = Measuring(opened, tables, folder, commit, ends_at, suite.options)
        measuring.again_s = options["again"]
        went_through = measuring.go()
    for one in tables.values():
        click.echo(table(one.content()))
    if not went_through:
        return GOES_ON
    return 1 if any(one.missing for one in tables.values()) else 0


def tables_of(suite: Suite, opened: Opened, commit: str, out: str) -> dict[Layout, Table]:
    """An empty table for each layout."""
    target, compiler = opened.target, opened.compiler
    environment = target.environment
    gpu = target.device.name
    versions = f"{compiler.version if compiler else ''}, cuBLAS {environment.cublas}"
    head: dict[str, Any] = {
        "gpu": f"{gpu}, {environment.driver}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "dtype": suite.problems[0].dtype.label,
        "command": _command(out),
        "versions": versions,
        "law": suite.law,
        "settings": suite.settings,
    }
    if suite.of_few_rows and compiler is not None:
        head["copy_gb_s"] = cast("GpuTarget", target).ceilings(compiler).copy_gb_s
        moved = {moved_bytes(shape_of(one), one.dtype.label) for one in suite.of_few_rows}
        few = copies_us(one for one in moved if one <= MOST_FEW_BYTES)
        head["copies_us"] = {str(one): took for one, took in few.items()}
    layouts = dict.fromkeys(problem.layout for problem in suite.problems)
    return {
        layout: Table(
            suite.file_name(layout, gpu_label(gpu)),
            head | {"layout": layout.value, "templates": templates(opened.request.families)},
            suite.of(layout),
        )
        for layout in layouts
    }


def templates(families: Sequence[Family]) -> dict[str, str]:
    """The hash of each family's template, by name."""
    return {family.name: family.template_sha256 for family in families}


def _command(out: str) -> str:
    # Where results lay on that machine says nothing.
    known = dict(pairwise(sys.argv)).get("--known")
    places = {out: "OUT", known: "KNOWN"}
    arguments = [places.get(argument, argument) for argument in sys.argv[1:]]
    return shlex.join(["benchmarks/suite.py", *arguments])


if __name__ == "__main__":
    main()
