"""Tunes twelve shapes with one GPU, then with all, and compares time and winners.

    benchmarks/gpu_box.sh run python3 benchmarks/many_gpus.py --out OUT --seconds 560

Both have databases and caches of their own, and the same seconds of search for each problem. With
--cores-of-one 16 the one GPU has as many cores as each of two that share 32. --shapes cube are the
hundred shapes that `suite.py` draws. With --only 0 the run on one GPU is made alone; a later call
with the same OUT goes on with the other.
OUT/many_gpus_h200.json has the figures, OUT/*.err what was shown meanwhile, OUT/*.db all trials.
"""

import argparse
import json
import math
import os
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from suite_shapes import cube_shapes

# Small and large, square, tall, deep; rows of 16 bytes and not.
SHAPES = (
    *("512", "1000", "1024", "2048", "4096", "8192", "128x4096x4096", "2048x14336x4096"),
    *("16x4096x4096", "8192x1024x1024", "1024x1024x16384", "1500"),
)
DTYPES = ("bf16", "f32")
# Finals and getting ready, for each problem.
BESIDE_SEARCH_S = 3.0
START_S = 12.0
WITHIN = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=560.0, help="for all of it")
    parser.add_argument("--gpus", default="all", help="as --gpu of tune")
    parser.add_argument("--only", help="0, or what --gpus says: make no other run")
    parser.add_argument("--budget", type=float, help="seconds of search; default: as time allows")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--name", default="many_gpus_h200.json")
    parser.add_argument("--cores-of-one", type=int, help="cores of the run on one GPU")
    parser.add_argument("--program", default=f"{shlex.quote(sys.executable)} -m autogemm tune")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    shapes = cube_shapes() if asked.shapes == "cube" else asked.shapes.split(",")
    dtypes = asked.dtypes.split(",")
    ends_at = time.monotonic() + asked.seconds
    (asked.out / "shapes.txt").write_text("\n".join(shapes) + "\n")
    # One GPU takes all problems in turn; two take half the time, more take less.
    count = len(shapes) * len(dtypes)
    each_s = (asked.seconds - 2 * len(dtypes) * START_S) / (1.5 * count) - BESIDE_SEARCH_S
    budget_s = asked.budget or max(1.0, math.floor(2 * each_s) / 2)
    runs: list[dict[str, Any]] = []
    for gpu, dtype in product(("0", asked.gpus), dtypes):
        made = asked.out / f"{name_of(gpu, dtype)}.json"
        if not made.exists():
            if asked.only not in (None, gpu):
                continue
            left_s = ends_at - time.monotonic()
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, cores[: asked.cores_of_one] if gpu == "0" else cores)
            made.write_text(json.dumps(one_run(asked, gpu, dtype, budget_s, left_s)))
            os.sched_setaffinity(0, cores)
        runs.append(json.loads(made.read_text()))
    if len(runs) < 2 * len(dtypes):
        print("\n".join(f"{run['gpu']} {run['dtype']}: {run['seconds']:.1f} s" for run in runs))
        return
    report = compared(runs, dtypes, budget_s, asked.gpus)
    report["cores_of_one"] = asked.cores_of_one or report["cores"]
    (asked.out / asked.name).write_text(json.dumps(report, indent=1) + "\n")
    shown(report)


def name_of(gpu: str, dtype: str) -> str:
    """How the files of a run are called."""
    return f"gpu_{gpu.replace(',', '_')}_{dtype}"


def one_run(
    asked: argparse.Namespace, gpu: str, dtype: str, budget_s: float, left_s: float
) -> dict[str, Any]:
    """One call of the program, which is ended as by Ctrl-C where it takes too long."""
    name = name_of(gpu, dtype)
    command = [
        *shlex.split(asked.program),
        *("--gpu", gpu, "--problems", str(asked.out / "shapes.txt"), "--dtype", dtype),
        *("--budget", f"{budget_s:g}s", "--trials", "100000", "--no-certify", "--json"),
        *("--db", str(asked.out / f"{name}.db")),
    ]
    environment = os.environ | {"AUTOGEMM_CACHE": str(asked.out.absolute() / f"cache_{name}")}
    begin = time.monotonic()
    with (asked.out / f"{name}.err").open("w") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=environment)
        try:
            out, _ = process.communicate(timeout=max(1.0, left_s))
        except subprocess.TimeoutExpired:
            process.terminate()
            out, _ = process.communicate()
    seconds = time.monotonic() - begin
    problems = json.loads(out)["problems"] if out.strip() else []
    at_work_s = seconds_at_work(asked.out / f"{name}.db")
    return {"gpu": gpu, "dtype": dtype, "seconds": seconds, "problems": problems} | {
        "at_work_s": at_work_s,
        "exit": process.returncode,
        "command": shlex.join(command[command.index("--gpu") :]),
    }


def seconds_at_work(database: Path) -> float:
    """From the first run's beginning to the last one's end: without what comes before and after."""
    if not database.exists():
        return 0.0
    with closing(sqlite3.connect(database)) as connection:
        asked = "SELECT min(started_at), max(finished_at) FROM runs"
        begin, end = connection.execute(asked).fetchone()
    if begin is None or end is None:
        return 0.0
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def compared(
    runs: list[dict[str, Any]], dtypes: list[str], budget_s: float, gpus: str
) -> dict[str, Any]:
    """Time and problems a minute of one GPU and of all, and each winner beside the other's."""
    sides = {}
    for gpu in ("0", gpus):
        own = [run for run in runs if run["gpu"] == gpu]
        seconds = sum(run["seconds"] for run in own)
        count = sum(one["ratio"] is not None for run in own for one in run["problems"])
        at_work_s = sum(run["at_work_s"] for run in own)
        searched_s = sum(one["seconds"] for run in own for one in run["problems"])
        sides[gpu] = {
            "problems": count,
            "seconds": round(seconds, 2),
            "seconds_at_work": round(at_work_s, 2),
            "problems_per_minute_at_work": round(60 * count / at_work_s, 3) if at_work_s else None,
            "seconds_of_problems": round(searched_s, 2),
            "mean_problem_s": round(searched_s / count, 3) if count else None,
            "problems_per_minute": round(60 * count / seconds, 3) if seconds else None,
            "exits": [run["exit"] for run in own],
            "commands": [run["command"] for run in own],
        }
    winners = []
    for dtype in dtypes:
        ratios = [
            {
                one["size"]: one
                for run in runs
                if run["gpu"] == gpu and run["dtype"] == dtype
                for one in run["problems"]
                if one["ratio"] is not None
            }
            for gpu in ("0", gpus)
        ]
        for size in ratios[0].keys() & ratios[1].keys():
            alone, spread = ratios[0][size], ratios[1][size]
            winners.append(
                {
                    "size": size,
                    "dtype": dtype,
                    "ratio_one": alone["ratio"],
                    "ratio_all": spread["ratio"],
                    "all_over_one": spread["ratio"] / alone["ratio"],
                    "trials_one": alone["num_trials"],
                    "trials_all": spread["num_trials"],
                }
            )
    winners.sort(key=lambda one: (one["dtype"], one["size"]))
    changes = [one["all_over_one"] - 1 for one in winners]
    alone, spread = sides["0"], sides[gpus]
    rate, rate_one = spread["problems_per_minute"], alone["problems_per_minute"]
    return {
        "gpus": count_gpus(),
        "cores": len(os.sched_getaffinity(0)),
        "budget_s": budget_s,
        "one_gpu": alone,
        "all_gpus": spread,
        "times_as_many_problems_per_minute": round(rate / rate_one, 3)
        if rate and rate_one
        else None,
        "times_as_many_at_work": round(
            spread["problems_per_minute_at_work"] / alone["problems_per_minute_at_work"], 3
        )
        if spread["problems_per_minute_at_work"] and alone["problems_per_minute_at_work"]
        else None,
        "share_within_1_percent": share(abs(change) <= WITHIN for change in changes),
        "share_not_1_percent_worse": share(change >= -WITHIN for change in changes),
        "winners": winners,
    }


def share(truths: Any) -> float | None:
    kept = list(truths)
    return round(sum(kept) / len(kept), 3) if kept else None


def count_gpus() -> int:
    """As the program counts them, which makes no context here."""
    from autogemm.targets import attached_gpus

    return len(attached_gpus())


def shown(report: dict[str, Any]) -> None:
    print(f"{'dtype':6}{'size':>18}{'one GPU':>10}{'all':>10}{'all/one':>10}{'trials':>14}")
    for one in report["winners"]:
        trials = f"{one['trials_one']} {one['trials_all']}"
        print(
            f"{one['dtype']:6}{one['size']:>18}{one['ratio_one']:>10.3f}{one['ratio_all']:>10.3f}"
            f"{one['all_over_one']:>10.3f}{trials:>14}"
        )
    for name in ("one_gpu", "all_gpus"):
        side = report[name]
        print(
            f"{name}: {side['problems']} problems in {side['seconds']:.1f} s, "
            f"{side['problems_per_minute']} a minute; without start and end "
            f"{side['seconds_at_work']:.1f} s, {side['problems_per_minute_at_work']}; "
            f"exit codes {side['exits']}"
        )
    print(
        f"{report['gpus']} GPUs, {report['cores']} cores: "
        f"{report['times_as_many_problems_per_minute']} times as many problems a minute, "
        f"{report['times_as_many_at_work']} without start and end; "
        f"{report['share_within_1_percent']} of the winners within 1 %, "
        f"{report['share_not_1_percent_worse']} not more than 1 % worse"
    )


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()
