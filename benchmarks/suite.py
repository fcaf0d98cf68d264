"""Tunes and measures a suite of shapes on a GPU, and draws what came out.

    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --commit COMMIT --out OUT
    ... suite.py --layouts nn,nt,tn,tt --limit 500 --out OUT     all layouts, as far as 500 s reach
    ... suite.py --unseen 20 --out OUT                           shapes that nobody tuned for
    ... suite.py --without-seeds --out OUT                       no config that ships is tried first
    ... suite.py --dtype bf16 --out OUT
    ... suite.py --emulation --out OUT
    ... suite.py --suite layers --dtype bf16 --layouts nt --l2 rotate --out OUT    decoding
    ... suite.py --suite any-size --dtype bf16 --layouts nn,nt --out OUT    no size of 128s
    ... suite.py --suite layouts --dtype tf32 --layouts nn,nt,tn,tt --out OUT
    python benchmarks/suite.py --draw benchmarks/results/suite_h100.json --out docs/img

Each shape is tuned as `autogemm tune` does it, from an empty database and without certification,
which says nothing of speed; its ratio is that of the finals, paired and interleaved in random order
with the baseline. One process tunes them all, and counts the configs of the next shape while the
GPU works on this one.

Each layout has a file of its own, NAME.json, with a table in NAME.txt and every sample of every
round in NAME.rounds.json.gz, from which anybody can compute the intervals. They are written after
each shape: stopped at any moment, the same command goes on with the shapes that are missing. It
also takes rows from the folder --known, by default those that are committed, where the options were
the same and the winner's text is what its family emits today.
"""

import gzip
import importlib
import json
import math
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from suite_shown import Row, line, plot, table

from autogemm.cli.options import seconds
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Finals
from autogemm.space import Family, Space, build_space, load_family
from autogemm.support.cells import one_line
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically
from autogemm.tuning import Opened, TuneOptions, TuneRequest, TuneResult, open_run, tune

if TYPE_CHECKING:
    from autogemm.targets import GpuTarget

spaces_of_a_run = importlib.import_module("autogemm.tuning.task.spaces")

RESULTS = Path(__file__).parent / "results"
SHAPES = (
    *("128", "256", "512", "768", "1024", "1536", "2048", "3072", "4096", "8192"),
    *("1000", "1023", "4095", "4096x256x1024", "16x4096x4096", "64x4096x4096", "4096x4096x64"),
    *("256x256x16384", "8192x128x8192", "3072x768x768", "32x32x65536", "2048x8192x512"),
)
# Where tensor cores are compared: squares, and the layers of a language model.
TENSOR_SHAPES = (
    *("1024", "2048", "4096", "8192"),
    *("8192x1024x8192", "4096x14336x4096", "64x4096x4096"),
)
# Where FP32 made of tensor-core products is compared.
EMULATED_SHAPES = ("1024", "2048", "4096", "8192")
# Sizes that 128 does not divide; at 1500, 1023 and 4095 rows are no multiples of 16 bytes.
ANY_SIZE_SHAPES = (
    *("1000", "1500", "3000", "5000", "1023", "4095"),
    *("777x3072x768", "2500x1000x3000"),
)
# Few rows of the linear layers of Llama-3-8B (output, qkv, gate and up, down).
LAYERS = tuple(
    f"{m}x{layer}"
    for layer in ("4096x4096", "6144x4096", "28672x4096", "4096x14336")
    for m in (1, 2, 4, 8, 16, 32, 64)
)
# Up to so many rows a table shows the share of a memory copy.
MOST_FEW_ROWS = 64
# Shapes and the name of the files, in which KIND is the element type.
NAMED: dict[str, tuple[str, Sequence[str]]] = {
    "layers": ("layers_KIND", LAYERS),
    "any-size": ("any_size_KIND_LAYOUT", ANY_SIZE_SHAPES),
    "layouts": ("KIND_layouts_LAYOUT", ("1024", "2048", "4096", "8192")),
}
# Sizes of unseen shapes; a product of more multiply-adds than 8192 x 8192 x 4096 is drawn again.
UNSEEN_SIZES = (32, 8192)
MOST_UNSEEN = 8192 * 8192 * 4096
LAW = (
    f"M, N and K each log-uniform from {UNSEEN_SIZES[0]} to {UNSEEN_SIZES[1]}; of three sizes one "
    "is a multiple of 64, one of 8 and one any number, odd ones too; shapes of the suite and "
    "products of more than 8192 x 8192 x 4096 multiply-adds are drawn again"
)
# Time of a shape beside its search: a fixed part, and launches of the finals, in which each
# contestant is timed and compared, at about this speed.
FIXED_S = 4.0
FINALS_LAUNCHES = 500
FLOP_PER_S = {True: 40e12, False: 250e12}
# Exit code where time ended: the same command goes on.
GOES_ON = 3
ROUNDS_FORMAT = "autogemm-rounds"
RoundsOfRow = dict[str, Any]


def unseen_shapes(count: int, seed: int) -> tuple[str, ...]:
    """Draw shapes by `LAW`: the same ones for a seed, on every machine."""
    rng = random.Random(seed)
    drawn: list[str] = []
    while len(drawn) < count:
        m, n, k = _size(rng), _size(rng), _size(rng)
        label = Problem(m, n, k).size_label
        if m * n * k <= MOST_UNSEEN and label not in (*SHAPES, *TENSOR_SHAPES, *drawn):
            drawn.append(label)
    return tuple(drawn)


def _size(rng: random.Random) -> int:
    low, high = UNSEEN_SIZES
    size = round(low * math.pow(high / low, rng.random()))
    step = (1, 8, 64)[int(3 * rng.random())]
    return max(step, size // step * step)


@dataclass(frozen=True)
class Suite:
    """What is measured: shapes of one element type, in each layout, with the same options.

    ``name`` is that of the files, without layout and GPU.
    """

    name: str
    problems: tuple[Problem, ...]
    options: TuneOptions
    law: str = ""

    @property
    def counts_bytes(self) -> bool:
        """Whether the memory's speed is what counts: few rows of each problem."""
        return all(problem.m <= MOST_FEW_ROWS for problem in self.problems)

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same for rows to stand in one table."""
        named = ("trials", "budget_s", "finalists", "rounds", "max_error", "l2", "seeds", "seed")
        return {name: getattr(self.options, name) for name in named}

    def of(self, layout: Layout) -> list[Problem]:
        """The problems of one layout, in order."""
        return [problem for problem in self.problems if problem.layout is layout]

    def file_name(self, layout: Layout, gpu: str) -> str:
        """The name of a layout's table: suite_f32_nn_h200."""
        return f"{self.name.replace('LAYOUT', layout.value)}_{gpu}"


def suite_of(options: Mapping[str, Any]) -> Suite:
    """Return the suite that is asked for. Raises UsageError for what is no size or dtype."""
    dtype, emulation = DType.parse(options["dtype"]), options["emulation"]
    own = options["shapes"].split(",") if options["shapes"] else None
    shapes: Sequence[str] = own or _shapes(dtype, emulation)
    kind = "emulated" if emulation else dtype.label
    name, law = f"suite_{kind}_LAYOUT", ""
    layouts = [Layout(one) for one in options["layouts"].split(",")]
    if options["suite"]:
        name, shapes = NAMED[options["suite"]]
        name = name.replace("KIND", kind)
    if options["unseen"]:
        shapes = unseen_shapes(options["unseen"], options["seed"])
        law = f"{options['unseen']} shapes of seed {options['seed']}: {LAW}"
        name = "unseen" if kind == "f32" else f"unseen_{kind}"
        # The first layout goes without saying.
        name += "" if layouts == [Layout.NN] else "_LAYOUT"
    if options["without_seeds"]:
        name += "_without_seeds"
    if options["l2"] != CacheState.WARM:
        name += f"_{options['l2']}"
    if options["sustained"]:
        name += "_sustained"
    epilogue = Epilogue.parse(options["epilogue"])
    if not epilogue.is_plain:
        # Words of the expression: suite_bf16_relu_acc_bias_n_nt.
        words = "_".join(re.findall(r"[a-z0-9]+", epilogue.text.lower()))
        name = f"{name.removesuffix('_LAYOUT')}_{words}_LAYOUT"
    asked = TuneOptions(
        gpu=options["gpu"],
        require_gpu=True,
        family=options["family"],
        allow_emulation=emulation,
        trials=options["trials"],
        budget_s=options["budget"],
        max_error="cublas" if emulation and not options["max_error"] else options["max_error"],
        finalists=options["finalists"],
        rounds=options["rounds"],
        l2=CacheState(options["l2"]),
        # Each shape for itself: what was measured does not depend on what was measured before.
        warm_start=False,
        sustained_s=options["sustained"],
        seeds=not options["without_seeds"],
        certify=False,
        fresh=True,
    )
    problems = tuple(
        Problem(*Problem.parse_size(shape), layout, dtype, epilogue=epilogue)
        for layout in layouts
        for shape in shapes
    )
    return Suite(name, problems, asked, law)


def _shapes(dtype: DType, emulation: bool) -> tuple[str, ...]:
    if emulation:
        return EMULATED_SHAPES
    return SHAPES if dtype is DType.F32 else TENSOR_SHAPES


@dataclass
class Table:
    """The rows of one layout, as far as they are there, and their raw rounds."""

    name: str
    head: dict[str, Any]
    problems: list[Problem]
    rows: dict[str, Row] = field(default_factory=dict)
    rounds: dict[str, RoundsOfRow] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[Problem]:
        """The problems without a row."""
        return [problem for problem in self.problems if problem.size_label not in self.rows]

    def take(self, folder: Path) -> None:
        """Take the rows that an earlier call left there, if they are rows of this table."""
        path = folder / f"{self.name}.json"
        if not path.exists():
            return
        before = json.loads(path.read_text())
        if before.get("settings") != self.head["settings"]:
            return
        packed = folder / f"{self.name}.rounds.json.gz"
        rounds = unpacked(packed) if packed.exists() else {}
        for row in before["rows"]:
            shape = row["shape"]
            if shape in rounds and shape not in self.rows and is_emitted_today(row):
                self.rows[shape], self.rounds[shape] = row, rounds[shape]

    def content(self) -> dict[str, Any]:
        """The table as it is written, rows in the order of the problems."""
        order = [problem.size_label for problem in self.problems]
        # Those of another call, which asked for other shapes, stay behind them.
        order += [shape for shape in self.rows if shape not in order]
        rows = [self.rows[shape] for shape in order if shape in self.rows]
        left = [shape for shape in order if shape not in self.rows]
        return self.head | summary(rows) | {
            "not_measured": left,
            "failed": self.failed,
            "rows": rows,
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Write JSON, text and rounds, each whole or not at all."""
        content = self.content()
        # Without a time of day in it, the same rounds give the same file.
        all_rounds = {"format": ROUNDS_FORMAT, "problems": list(self.rounds.values())}
        packed = gzip.compress(json.dumps(all_rounds).encode(), mtime=0)
        write_atomically(folder / f"{self.name}.rounds.json.gz", packed)
        text = json.dumps(content, indent=1) + "\n"
        write_atomically(folder / f"{self.name}.json", text.encode())
        write_atomically(folder / f"{self.name}.txt", table(content).encode())


def unpacked(path: Path) -> dict[str, RoundsOfRow]:
    """The rounds in a file, by the shape that they are of."""
    problems = json.loads(gzip.decompress(path.read_bytes()))["problems"]
    return {one["size"]: one for one in problems}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means by both estimators, and the shapes that are not faster."""
    if not rows:
        return {"count": 0}
    return {
        "count": len(rows),
        "geometric_mean": geometric_mean([row["ratio"] for row in rows]),
        "geometric_mean_of_medians": geometric_mean([row["ratio_of_medians"] for row in rows]),
        "below_one": [
            row["shape"] for row in rows if min(row["ratio"], row["ratio_of_medians"]) < 1
        ],
        "ties": [row["shape"] for row in rows if row["against_baseline"] == "tied"],
    }


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def is_emitted_today(row: Row) -> bool:
    """Whether the text that a row is of is what its family emits today."""
    try:
        return emitted_sha256(row) == row.get("kernel_sha256")
    except AutogemmError:
        return False


def emitted_sha256(row: Row) -> str:
    """The sha256 of the text that a row's config gives today. Raises AutogemmError if none."""
    family = load_family(row["family"])
    text = row.get("epilogue", "none")
    problem = Problem(
        *Problem.parse_size(row["shape"]),
        Layout(row["layout"]),
        DType.parse(row["dtype"]),
        epilogue=Epilogue.parse("" if text == "none" else text),
    )
    config = Config.of(family.name, family.current(row["config"]))
    return render(family, config, problem).sha256


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

    def go(self) -> bool:
        """Measure all that the time allows; False if it ended before."""
        problems = [problem for one in self.tables.values() for problem in one.missing]
        request, device = self.opened.request, self.opened.target.device
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
            own.failed[problem.size_label] = str(error)
        else:
            if result.interrupted:
                return False
            if result.finals is None:
                own.failed[problem.size_label] = "no candidate ran correctly"
            else:
                own.failed.pop(problem.size_label, None)
                seconds = time.monotonic() - began
                row = row_of(result, result.finals, seconds) | self._made()
                own.rows[problem.size_label] = row
                own.rounds[problem.size_label] = rounds_of(result, result.finals)
                click.echo(line(row)[:120])
        own.write(self.folder)
        return True

    def _made(self) -> dict[str, str]:
        return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": self.commit}


def row_of(result: TuneResult, finals: Finals, seconds: float) -> Row:
    """A row of the table, from finals."""
    problem, winner, baseline = result.problem, finals.winner, finals.baseline
    assert winner.config is not None
    ends = winner.interval or (None, None)
    low, high = (end if end is not None else winner.ratio for end in ends)
    return {
        "shape": problem.size_label,
        "layout": problem.layout.value,
        "dtype": problem.dtype.label,
        "epilogue": problem.epilogue.text or "none",
        "ratio": winner.ratio,
        "ratio_low": low,
        "ratio_high": high,
        "ratio_of_medians": finals.ratio_of_medians(winner),
        "against_baseline": str(finals.against_baseline),
        "baseline": baseline.name,
        "error": winner.verification.error if winner.verification else None,
        "baseline_error": baseline.verification.error if baseline.verification else None,
        "l2": result_l2(finals, result),
        "family": winner.config.family,
        "config": winner.config.as_dict(),
        "kernel_sha256": winner.kernel_sha256,
        "time_us": winner.time_us,
        "tflops": problem.tflops(winner.time_us),
        "baseline_us": baseline.time_us,
        "baseline_tflops": problem.tflops(baseline.time_us),
        "energy_mj": winner.energy_mj,
        "baseline_energy_mj": baseline.energy_mj,
        **sustained_of(finals),
        "rounds": finals.rounds,
        "num_trials": result.num_trials,
        "seconds": seconds,
        "search_s": result.search_s,
        "finals_s": result.finals_s,
    }


def sustained_of(finals: Finals) -> dict[str, Any]:
    """The fields of winner and baseline each alone for seconds, none where that was not asked."""
    sustained = finals.sustained
    return asdict(sustained) | {"sustained_ratio": sustained.sustained_ratio} if sustained else {}


def result_l2(finals: Finals, result: TuneResult) -> str:
    """The state of L2 before each launch."""
    measurement = result.best.measurement if result.best is not None else None
    return measurement.l2.value if measurement is not None else CacheState.WARM.value


def rounds_of(result: TuneResult, finals: Finals) -> RoundsOfRow:
    """Every sample of every contestant; sample i of all of them is of the same round."""
    contestants = [contestant("baseline", finals.baseline)]
    contestants += [contestant("call", one) for one in finals.calls if one.samples_us]
    contestants += [contestant("kernel", one) for one in finals.entries]
    return {
        "size": result.problem.size_label,
        "layout": result.problem.layout.value,
        "dtype": result.problem.dtype.label,
        "gpu": result.device_name,
        "rounds": finals.rounds,
        "method": finals.method,
        "launches_per_sample": finals.launches_per_sample,
        "throttled_rounds": finals.throttled_rounds,
        "telemetry": asdict(finals.telemetry),
        "baseline": finals.baseline.name,
        "contestants": contestants,
    }


def contestant(role: str, one: Any) -> dict[str, Any]:
    """One of the contestants; ``one`` is an entry of the finals, or another call of the library."""
    config = getattr(one, "config", None)
    return {
        "name": one.name,
        "role": role,
        "config": config.as_dict() if config is not None else None,
        "kernel_sha256": getattr(one, "kernel_sha256", ""),
        "samples_us": [float(f"{sample:.7g}") for sample in one.samples_us],
        "samples_mj": list(getattr(one, "samples_mj", ())),
    }


def gpu_label(name: str) -> str:
    """The GPU's name as files have it: h200 of NVIDIA H200."""
    found = re.search(r"\b[A-Z]+\d+\w*\b", name)
    return found[0].lower() if found else "gpu"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shapes", default="", help="M=N=K or MxNxK, by commas. Default: the suite.")
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
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--draw", type=click.Path(dir_okay=False, exists=True), help="Only draw this file.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
def main(commit: str, draw: str | None, out: str, **options: Any) -> None:
    """Ratio to the fastest baseline over the suite."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if draw:
        plot(json.loads(Path(draw).read_text()), folder / f"{Path(draw).stem}.svg")
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
    if suite.counts_bytes and compiler is not None:
        head["copy_gb_s"] = cast("GpuTarget", target).ceilings(compiler).copy_gb_s
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
    # Where the results lay on that machine says nothing, nor how long this call was given.
    arguments = ["OUT" if argument == out else argument for argument in sys.argv[1:]]
    return shlex.join(["benchmarks/suite.py", *arguments])


if __name__ == "__main__":
    main()
