"""Shows how many candidates a second a search measures, and what each of them takes by phase.

    python benchmarks/rate.py --size 4096 --dtype bf16 --dtype f32 --seconds 20 --out rate_h200.json

Each dtype is one call of `autogemm tune`, with a database of its own and an empty cubin cache.
`autogemm.tuning.TuneResult.ms_by_phase` says what the phases are: those of different candidates
overlap, so that they do not add up to the time passed. A candidate counts as verified and timed
where it ended well; all others were rejected, are wrong, or have the text of another one.
Words behind ``--`` go to `tune`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from autogemm.store import open_store

KEPT = ("gpu", "problem", "num_trials", "num_reused", "trials_per_s", "gpu_busy", "trials_by_gpu")
MORE = ("counts", "search_s", "finals_s", "ms_by_phase")
# Within this factor of the run's best.
CONTENDERS = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="4096")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--seconds", type=float, default=20.0, help="of search, for each")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--out", type=Path, help="write the figures as JSON, too")
    parser.add_argument("words", nargs="*", help="more for tune")
    asked = parser.parse_args()
    found = [one_run(asked, dtype) for dtype in asked.dtype or ["bf16", "f32"]]
    for line in table(found):
        print(line)
    if asked.out is not None:
        cores = len(os.sched_getaffinity(0))
        asked.out.write_text(json.dumps({"cores": cores, "runs": found}, indent=1) + "\n")


def one_run(asked: argparse.Namespace, dtype: str) -> dict[str, Any]:
    """The figures of one search."""
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "rate.db")
        command = [sys.executable, "-m", "autogemm", "tune", "--size", asked.size]
        command += ["--dtype", dtype, "--gpu", asked.gpu, "--budget", f"{asked.seconds:g}s"]
        command += ["--trials", "1000000", "--no-certify", "--quiet", "--json", *asked.words]
        command += ["--db", database]
        environment = os.environ | {"AUTOGEMM_CACHE": folder}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        result = json.loads(done.stdout)
        kept = {name: result[name] for name in (*KEPT, *MORE)}
        return {
            "command": " ".join(command[1:-2]),
            **kept,
            "timed_per_s": result["counts"].get("ok", 0) / result["search_s"],
            **samples_in(database, result["run_id"]),
        }


def samples_in(database: str, run_id: int) -> dict[str, Any]:
    """How often candidates were timed, and how fast they were found."""
    with open_store(database, create=False) as store:
        outcomes = list(store.trials(run_id))
    times_us = [one.time_us for one in outcomes if one.time_us is not None]
    counts = [len(one.measurement.samples_us) for one in outcomes if one.measurement is not None]
    best_us = min(times_us, default=0.0)
    return {
        "best_us": best_us,
        "median_us": statistics.median(times_us or [0.0]),
        "contenders": sum(one <= CONTENDERS * best_us for one in times_us),
        "samples": {str(count): counts.count(count) for count in sorted(set(counts))},
    }


def table(found: list[dict[str, Any]]) -> list[str]:
    """A column for each run: what it reached, then milliseconds for each candidate by phase."""
    names = list(dict.fromkeys(name for one in found for name in one["ms_by_phase"]))
    rows = [
        ("", *(one["problem"] for one in found)),
        ("candidates a second", *(f"{one['trials_per_s']:.1f}" for one in found)),
        ("verified and timed", *(f"{one['timed_per_s']:.1f}" for one in found)),
        ("GPU busy, %", *(f"{100 * one['gpu_busy']:.0f}" for one in found)),
        *((f"{name}, ms", *(_ms(one["ms_by_phase"].get(name)) for one in found)) for name in names),
        ("best, us", *(f"{one['best_us']:.1f}" for one in found)),
        ("median, us", *(f"{one['median_us']:.1f}" for one in found)),
        ("within 5 %", *(str(one["contenders"]) for one in found)),
    ]
    return ["".join(f"{cell:>22}" for cell in row) for row in rows]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()
