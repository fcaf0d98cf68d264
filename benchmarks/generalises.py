r"""Compare what a short search finds with a long one, at shapes drawn at random.

    benchmarks/gpu_box.sh run python3 benchmarks/generalises.py --commit COMMIT --limit 550 \
        --out OUT

Each shape is tuned twice from an empty database, without seeds, stored results or the catalogue:
for 60 trials or 3 seconds, whichever ends first, and for 700 trials. The two winners then run in
the same finals, interleaved in random order. The share that the short search found is the long
one's time over the short one's, the median of the paired ratios. It is above 1 where the short
search was luckier; in the mean such a share counts as 1.

Shapes, element types and layouts follow from --seed. Results are written after each shape; the same
command goes on with what is missing, and takes rows of --known where both winners are texts that
their families emit today.
"""

import json
import math
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import click
from suite import GOES_ON, RESULTS, expected_s
from suite_shapes import LAW, shape_of, unseen_shapes
from suite_tables import gpu_label, is_emitted_today

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically
from autogemm.tuning import Opened, TuneOptions, TuneResult, open_run, request_for, tune
from autogemm.tuning.task.build import Builder

# A trial of a long search takes about so long.
SECONDS_A_TRIAL = 0.05
DTYPES = (DType.F32, DType.BF16, DType.TF32)
Row = dict[str, Any]


def problems(count: int, seed: int) -> list[Problem]:
    """Return unseen shapes, each of the twelve pairs of element type and layout in turn."""
    kinds = cycle(product(Layout, DTYPES))
    shapes = unseen_shapes(count, seed)
    return [
        Problem(*Problem.parse_size(shape), layout, dtype)
        for shape, (layout, dtype) in zip(shapes, kinds, strict=False)
    ]


@dataclass
class Shares:
    """The rows of the table, as far as they are there."""

    path: Path
    head: dict[str, Any]
    problems: list[Problem]
    rows: dict[str, Row] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[Problem]:
        """The problems without a row."""
        return [problem for problem in self.problems if label_of(problem) not in self.rows]

    def take(self, path: Path) -> None:
        """Take the rows of an earlier call with the same settings that still hold."""
        before = json.loads(path.read_text()) if path.exists() else {}
        if before.get("settings") == self.head["settings"]:
            for row in before["rows"]:
                if key_of(row) not in self.rows and still_holds(row):
                    self.rows[key_of(row)] = row

    def content(self) -> dict[str, Any]:
        """Return the table as it is written."""
        rows = [self.rows[one] for one in map(label_of, self.problems) if one in self.rows]
        return self.head | summary(rows) | {"failed": self.failed, "rows": rows}

    def write(self) -> None:
        """Write JSON and text, each whole or not at all."""
        content = self.content()
        write_atomically(self.path, (json.dumps(content, indent=1) + "\n").encode())
        write_atomically(self.path.with_suffix(".txt"), table(content).encode())


def race(opened: Opened, problem: Problem, short: TuneOptions, long: TuneOptions) -> Row:
    """Tune twice and compare the winners. Raises AutogemmError where a search finds none."""
    results = {
        name: tune(
            request_for(problem, options, (), ""), opened.target, opened.compiler, opened.store
        )
        for name, options in (("short", short), ("long", long))
    }
    configs = {name: winner_of(name, result) for name, result in results.items()}
    samples_us, hashes = final_samples(opened, problem, short, configs)
    found = paired_ratio(samples_us["long"], samples_us["short"], seed=1)
    times_us = {name: statistics.median(samples) for name, samples in samples_us.items()}
    return {
        "shape": shape_of(problem),
        "layout": problem.layout.value,
        "dtype": problem.dtype.label,
        "found": found.ratio,
        "found_low": found.low,
        "found_high": found.high,
        "found_of_medians": times_us["long"] / times_us["short"],
        **{
            name: {
                "time_us": times_us[name],
                "num_trials": result.num_trials,
                "search_s": result.search_s,
                "ratio": result.finals.winner.ratio if result.finals else None,
                "family": configs[name].family,
                "config": configs[name].as_dict(),
                "kernel_sha256": hashes[name],
                "samples_us": samples_us[name],
            }
            for name, result in results.items()
        },
    }


def winner_of(name: str, result: TuneResult) -> Config:
    """Return the winner's config. Raises AutogemmError if there is none."""
    config = result.finals.winner.config if result.finals else None
    if result.interrupted or config is None:
        raise AutogemmError(f"the {name} search ended without a winner")
    return config


def final_samples(
    opened: Opened, problem: Problem, options: TuneOptions, configs: dict[str, Config]
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the times of both winners in us, round by round, and the hashes of their texts."""
    assert opened.compiler is not None
    families = request_for(problem, options, (), "").families
    builder = Builder(families, problem, opened.target.device, opened.compiler)
    sources = {name: builder.render(config) for name, config in configs.items()}
    hashes = {name: source.sha256 for name, source in sources.items()}
    buildings = {source.sha256: builder.start(source) for source in sources.values()}
    candidates = [building.candidate() for building in buildings.values()]
    finals = opened.target.finals(candidates, options.rounds, seed=0)
    by_config = {entry.config: list(entry.samples_us) for entry in finals.entries}
    if missing := [name for name, config in configs.items() if config not in by_config]:
        raise AutogemmError(f"the winner of the {missing[0]} search was disqualified")
    return {name: by_config[config] for name, config in configs.items()}, hashes


def still_holds(row: Row) -> bool:
    """Whether both texts are what their families emit today."""
    return all(is_emitted_today(row | row[name]) for name in ("short", "long"))


def key_of(row: Row) -> str:
    """Return what a row is of: ``1024 nn f32``."""
    return f"{row['shape']} {row['layout']} {row['dtype']}"


def label_of(problem: Problem) -> str:
    """Return the key of a problem's row."""
    return f"{shape_of(problem)} {problem.layout} {problem.dtype}"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the mean share, none counted above 1, and the least."""
    if not rows:
        return {"count": 0}
    shares = [row["found"] for row in rows]
    least = min(rows, key=lambda row: float(row["found"]))
    return {
        "count": len(rows),
        "mean": math.fsum(min(1.0, share) for share in shares) / len(shares),
        "least": least["found"],
        "least_at": key_of(least),
        "below_0.94": sum(share < 0.94 for share in shares),
    }


def line(row: Row) -> str:
    """Return one shape of the table."""
    searches = " ".join(
        f"{one['time_us']:9.2f} {one['ratio']:6.3f} {one['num_trials']:5} {one['search_s']:5.0f}"
        for one in (row["short"], row["long"])
    )
    return (
        f"{row['shape']:>14} {row['layout']} {row['dtype']:>5} {row['found']:6.3f} "
        f"{row['found_low']:6.3f}..{row['found_high']:.3f}  {row['found_of_medians']:6.3f} "
        f"{searches}"
    )


def table(results: dict[str, Any]) -> str:
    """Return a line for each shape, and the mean."""
    lines = [
        f"{results['gpu']}, {results['date']}, commit {results['commit']}",
        f"command: {results['command']}",
        results["law"],
        "found: time of the long search's winner over the short one's, median of paired ratios",
        "ratio: fastest baseline over the winner, in the finals of each search",
        "",
        f"{'MxNxK':>14} {'':>2} {'dtype':>5} {'found':>6} {'95 %':^14} {'medians':>7} "
        f"{'short us':>9} {'ratio':>6} {'tried':>5} {'s':>5} {'long us':>9} {'ratio':>6} "
        f"{'tried':>5} {'s':>5}",
    ]
    lines += map(line, results["rows"])
    if results["rows"]:
        lines += [
            "",
            f"mean of {results['count']} shares, none above 1: {results['mean']:.3f}; least "
            f"{results['least']:.3f} at {results['least_at']}; below 0.94: {results['below_0.94']}",
        ]
    lines += [f"failed: {shape}: {why}" for shape, why in results["failed"].items()]
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shapes", default=40, help="Shapes to draw.", show_default=True)
@click.option("--seed", default=2, help="Seed of the draw.", show_default=True)
@click.option("--short", default=60, help="Trials of the short search.", show_default=True)
@click.option("--budget", default=3.0, help="Its time in s.", show_default=True)
@click.option("--long", default=700, help="Trials of the long search.", show_default=True)
@click.option("--rounds", default=20, help="Rounds of the comparison.", show_default=True)
@click.option("--family", multiple=True, help="As for autogemm tune.")
@click.option("--limit", default=math.inf, help="Begin no shape that would end after so many s.")
@click.option(
    "--known",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    help="Folder of earlier results; rows that still hold are not measured again.",
)
@click.option("--commit", default="", help="The commit that is measured, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(**options: Any) -> None:
    """Shares of a long search's speed that a short search finds."""
    # Nothing that ships takes part in either search.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    try:
        sys.exit(measured(options))
    except AutogemmError as error:
        raise click.ClickException(str(error)) from error


def measured(options: dict[str, Any]) -> int:
    """Measure what is missing, write and print the table; the exit code."""
    ends_at = time.monotonic() + options["limit"]
    options["out"].mkdir(parents=True, exist_ok=True)
    drawn = problems(options["shapes"], options["seed"])
    short = TuneOptions(
        require_gpu=True,
        family=options["family"],
        trials=options["short"],
        budget_s=options["budget"],
        rounds=options["rounds"],
        seeds=False,
        warm_start=False,
        certify=False,
        fresh=True,
    )
    long = replace(short, trials=options["long"], budget_s=None)
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        opened = open_run(
            stack,
            drawn[0],
            short,
            f"{place}/searches.db",
            command=_command(options),
            notify=lambda notice: click.echo(notice, err=True),
        )
        shares = shares_of(opened, drawn, options)
        for problem in shares.missing:
            expected = expected_s(problem, short) + SECONDS_A_TRIAL * options["long"]
            if time.monotonic() + expected > ends_at:
                break
            try:
                row = race(opened, problem, short, long)
            except AutogemmError as error:
                shares.failed[label_of(problem)] = str(error)
            else:
                shares.rows[label_of(problem)] = row
                click.echo(line(row))
            shares.write()
    click.echo(table(shares.content()))
    if set(map(label_of, shares.missing)) - shares.failed.keys():
        return GOES_ON
    return 1 if shares.failed else 0


def shares_of(opened: Opened, drawn: list[Problem], options: dict[str, Any]) -> Shares:
    """Return the table, with the rows of earlier calls that still hold."""
    gpu = opened.target.device.name
    path = options["out"] / f"generalises_{gpu_label(gpu)}.json"
    head = {
        "gpu": f"{gpu}, {opened.target.environment.driver}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": options["commit"],
        "command": _command(options),
        "law": f"{options['shapes']} shapes of seed {options['seed']}: {LAW}",
        "settings": {name: options[name] for name in ("short", "budget", "long", "rounds")},
    }
    shares = Shares(path, head, drawn)
    shares.take(path)
    shares.take(options["known"] / path.name)
    return shares


def _command(options: dict[str, Any]) -> str:
    # Where results lay on that machine says nothing.
    known = dict(pairwise(sys.argv)).get("--known")
    places = {str(options["out"]): "OUT", known: "KNOWN"}
    arguments = [places.get(argument, argument) for argument in sys.argv[1:]]
    return shlex.join(["benchmarks/generalises.py", *arguments])


if __name__ == "__main__":
    main()
