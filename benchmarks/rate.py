"""Shows how many candidates a second a search measures, and what each of them takes by phase.

    python benchmarks/rate.py --size 4096 --dtype bf16 --dtype f32 --seconds 20 --out rate_h200.json

Each dtype is one call of `autogemm tune`, with a database of its own and an empty cubin cache.
`autogemm.tuning.TuneResult.ms_by_phase` says what the phases are: those of different candidates
overlap, so that they do not add up to the time passed. Words behind ``--`` go to `tune`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KEPT = ("gpu", "problem", "num_trials", "trials_per_s", "gpu_busy", "trials_by_gpu", "ms_by_phase")


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
        asked.out.write_text(json.dumps({"runs": found}, indent=1) + "\n")


def one_run(asked: argparse.Namespace, dtype: str) -> dict[str, Any]:
    """The figures of one search."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autogemm", "tune", "--size", asked.size]
        command += ["--dtype", dtype, "--gpu", asked.gpu, "--budget", f"{asked.seconds:g}s"]
        command += ["--trials", "none", "--no-certify", "--quiet", "--json", *asked.words]
        command += ["--db", str(Path(folder) / "rate.db")]
        environment = os.environ | {"AUTOGEMM_CACHE": folder}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout)
    return {name: result[name] for name in KEPT}


def table(found: list[dict[str, Any]]) -> list[str]:
    """A column for each run: what it reached, then milliseconds for each candidate by phase."""
    names = list(dict.fromkeys(name for one in found for name in one["ms_by_phase"]))
    rows = [
        ("", *(one["problem"] for one in found)),
        ("candidates a second", *(f"{one['trials_per_s']:.1f}" for one in found)),
        ("GPU busy, %", *(f"{100 * one['gpu_busy']:.0f}" for one in found)),
        *((f"{name}, ms", *(_ms(one["ms_by_phase"].get(name)) for one in found)) for name in names),
    ]
    return ["".join(f"{cell:>22}" for cell in row) for row in rows]


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    # Searches begin with nothing but seeds, whatever ships.
    os.environ["AUTOGEMM_CATALOGUE"] = "none"
    main()
