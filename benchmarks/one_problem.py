"""Measures how much sooner several GPUs find a good kernel for one problem.

    benchmarks/gpu_box.sh run python3 benchmarks/one_problem.py --cores-of-one 16 --out OUT

Each problem is searched once per seed on one GPU and on all, each time from an empty database and
an empty cubin cache, without seeds and the catalogue. A search has found a good kernel when its
best time is within 2 % of the best that any search of that problem found; the time to it counts
from the first question of the search and has no start of the program in it. Times on several GPUs
are those by their pace. OUT/one_problem_h200.json has the figures, OUT/*.db all trials.
"""

import json
import math
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import click

from autogemm.support.files import write_atomically

# One: (seconds since the search began, time of the kernel in us by its GPU's pace).
Steps = list[tuple[float, float]]


@dataclass(frozen=True)
class Searched:
    """One search: what it found when, and how much it tried."""

    steps: Steps
    trials_per_s: float
    gpu_busy: float

    @property
    def best_us(self) -> float:
        """The least time that it found; infinite without one."""
        return min((us for _, us in self.steps), default=math.inf)

    def reached_s(self, most_us: float) -> float | None:
        """After how many seconds a kernel took no longer than that; None if never."""
        return next((at_s for at_s, us in self.steps if us <= most_us), None)


def steps_of(database: Path, search_s: float) -> Steps:
    """The good trials of the only run of a database, in the order in which they ended.

    The search ended with its last trial, and began ``search_s`` before.
    """
    asked = "SELECT finished_at, time_us * pace FROM run_trials ORDER BY finished_at"
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(asked).fetchall()
    if not rows:
        return []
    ended = [datetime.fromisoformat(at) for at, _ in rows]
    return [
        (search_s - (ended[-1] - at).total_seconds(), us)
        for at, (_, us) in zip(ended, rows, strict=True)
        if us is not None
    ]


def searched(folder: Path, words: Sequence[str]) -> Searched:
    """Run one search in a process of its own. Raises CalledProcessError if it fails."""
    name = "_".join(word.replace(",", "_") for word in words[1::2])
    database = folder / f"{name}.db"
    command = [sys.executable, "-m", "autogemm", "tune", *words]
    command += ["--no-seeds", "--no-warm-start", "--trials", "1000000"]
    command += ["--finalists", "1", "--rounds", "2", "--no-certify"]
    command += ["--quiet", "--json", "--db", str(database)]
    environment = os.environ | {
        "AUTOGEMM_CACHE": str((folder / f"cache_{name}").absolute()),
        "AUTOGEMM_CATALOGUE": "none",
    }
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    steps = steps_of(database, result["search_s"])
    return Searched(steps, result["trials_per_s"], result["gpu_busy"])


def compared(found: dict[str, list[Searched]], within: float) -> dict[str, Any]:
    """The row of a problem: seconds to a good kernel on one GPU (``one``) and on all (``all``).

    A search that found none counts as longer than every other one.
    """
    best_us = min(search.best_us for searches in found.values() for search in searches)
    row: dict[str, Any] = {"best_us": best_us}
    medians = {}
    for side, searches in found.items():
        reached = [search.reached_s(best_us * (1 + within)) for search in searches]
        medians[side] = statistics.median([math.inf if at is None else at for at in reached])
        row[side] = {
            "reached_s": reached,
            "median_s": medians[side] if math.isfinite(medians[side]) else None,
            "best_us": [search.best_us for search in searches],
            "trials_per_s": [search.trials_per_s for search in searches],
            "gpu_busy": [search.gpu_busy for search in searches],
        }
    both = all(map(math.isfinite, medians.values()))
    row["times_as_fast"] = medians["one"] / medians["all"] if both else None
    rates = {side: statistics.median(row[side]["trials_per_s"]) for side in found}
    row["times_as_many_trials"] = rates["all"] / rates["one"]
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each problem and side."""
    lines = [
        f"{'problem':>16} {'GPUs':>4} {'trials/s':>8} {'busy':>5} {'best us':>9} "
        f"{'reached after s':>24}"
    ]
    for row in rows:
        for side in ("one", "all"):
            own = row[side]
            reached = " ".join("never" if at is None else f"{at:.1f}" for at in own["reached_s"])
            lines.append(
                f"{row['size'] + ' ' + row['dtype']:>16} {side:>4} "
                f"{statistics.median(own['trials_per_s']):8.1f} "
                f"{100 * statistics.median(own['gpu_busy']):4.0f}% {min(own['best_us']):9.2f} "
                f"{reached:>24}"
            )
        faster = row["times_as_fast"]
        lines.append(
            f"{'':>16} {row['times_as_many_trials']:.2f} times as many trials a second, "
            + ("not decided" if faster is None else f"{faster:.2f} times as fast by the medians")
        )
    return "\n".join(lines)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sizes", default="4096", show_default=True, help="By commas.")
@click.option("--dtypes", default="f32,bf16", show_default=True, help="By commas.")
@click.option("--gpus", default="all", show_default=True, help="As --gpu of tune.")
@click.option("--seeds", default=3, show_default=True, help="Searches of each on either side.")
@click.option("--budget", default=10.0, show_default=True, help="Seconds of each search.")
@click.option("--within", default=0.02, show_default=True, help="Share that may be missing.")
@click.option("--cores-of-one", type=int, help="Cores of the searches on one GPU.")
@click.option("--limit", default=math.inf, help="Begin no problem after so many s.")
@click.option("--commit", default="", help="The commit that is measured, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(sizes: str, dtypes: str, gpus: str, out: Path, **options: Any) -> None:
    """Time to a good kernel on one GPU and on several."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    sides = {"one": ("0", cores[: options["cores_of_one"]]), "all": (gpus, cores)}
    rows: list[dict[str, Any]] = []
    for size, dtype in product(sizes.split(","), dtypes.split(",")):
        if time.monotonic() - began > options["limit"]:
            click.echo(f"stopped before {size} {dtype}", err=True)
            break
        found: dict[str, list[Searched]] = {side: [] for side in sides}
        # In turns, so that a drift of the clocks is in both.
        for seed, (side, (gpu, own_cores)) in product(range(options["seeds"]), sides.items()):
            os.sched_setaffinity(0, own_cores)
            words = ["--size", size, "--dtype", dtype, "--gpu", gpu, "--seed", str(seed)]
            found[side].append(searched(out, [*words, "--budget", f"{options['budget']:g}s"]))
            os.sched_setaffinity(0, cores)
        rows.append({"size": size, "dtype": dtype} | compared(found, options["within"]))
        report = {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": options["commit"],
            "command": " ".join(
                [
                    "benchmarks/one_problem.py",
                    *("OUT" if one == str(out) else one for one in sys.argv[1:]),
                ]
            ),
            "gpus": count_gpus(),
            "cores": len(cores),
            "cores_of_one": options["cores_of_one"] or len(cores),
            "budget_s": options["budget"],
            "within": options["within"],
            "rows": rows,
        }
        path = out / "one_problem_h200.json"
        write_atomically(path, (json.dumps(report, indent=1) + "\n").encode())
    click.echo(table(rows))


def count_gpus() -> int:
    """As the program counts them, which makes no context here."""
    from autogemm.targets import attached_gpus

    return len(attached_gpus())


if __name__ == "__main__":
    main()
