"""The same kernels by two checkouts of autogemm on one GPU, in turn: whether a change cost speed.

    benchmarks/gpu_box.sh run python3 benchmarks/before_after.py --before OLD_CHECKOUT \
        --out OUT benchmarks/results/suite_bf16_h200.json ...

Each config of the tables named is rendered, compiled, verified and raced beside cuBLAS by the old
checkout and by this one, one after the other, twice each. A config is kept as it is stored: this
checkout knows former names of parameters. A ratio has moved when neither of its two intervals
overlaps with one of the other checkout's.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from autogemm.space import load_family

HERE = Path(__file__).resolve().parents[1]
ORDER = ("before", "after", "after", "before")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--before", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--shapes", default=6, help="Rows of each table, spread over it.")
@click.option("--rounds", default=20, help="Rounds of each finals.")
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.argument("tables", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def main(before: Path, tables: tuple[Path, ...], **options: Any) -> None:
    """Ratios to cuBLAS of the same configs, before and after."""
    out, before = options["out"].resolve(), before.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for path in tables:
        table = json.loads(path.read_text())
        for row in spread(table["rows"], options["shapes"]):
            rows.append(compared(row, table["dtype"], before, options["rounds"], out))
            click.echo(line(rows[-1]))
            results = {
                "command": "benchmarks/before_after.py "
                + " ".join(map(str, (path.name for path in tables))),
                "date": f"{datetime.now(UTC):%Y-%m-%d}",
                "commit": options["commit"],
                "gpu": gpu(),
                "rows": rows,
            }
            (out / "before_after.json").write_text(json.dumps(results, indent=1) + "\n")
    moved = [row["shape"] for row in rows if row["moved"]]
    click.echo(f"{len(rows)} kernels, {len(moved)} moved: {', '.join(moved) or 'none'}")


def spread(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """As many of the rows, evenly from the first to the last."""
    count = min(count, len(rows))
    return [rows[i * (len(rows) - 1) // max(1, count - 1)] for i in range(count)]


def compared(
    row: dict[str, Any], dtype: str, before: Path, rounds: int, out: Path
) -> dict[str, Any]:
    """Ratio and interval of one config, twice by each checkout."""
    family = load_family(row["family"])
    now = family.current(row["config"])
    runs: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    for number, side in enumerate(ORDER):
        root, values = (before, row["config"]) if side == "before" else (HERE, now)
        command = [sys.executable, "-m", "autogemm", "tune", "--require-gpu", "--json", "-q"]
        command += ["--family", row["family"], "--dtype", dtype, "--size", row["shape"]]
        command += ["--trials", "1", "--finalists", "1", "--rounds", str(rounds), "--fresh"]
        command += ["--no-certify", "--no-warm-start", "--no-prune"]
        command += ["--db", str(out / f"{side}.db"), "--seed", str(number)]
        for name, value in values.items():
            command += ["--fix", f"{name}={value}"]
        ended = subprocess.run(
            command,
            cwd=root,
            env=os.environ | {"PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ended.returncode:
            runs[side].append({"ratio": 0.0, "low": 0.0, "high": 0.0, "exit": ended.returncode})
            continue
        entry = json.loads(ended.stdout)["finals"]["entries"][0]
        low, high = entry["ratio_low"], entry["ratio_high"]
        runs[side].append({"ratio": entry["ratio"], "low": low, "high": high})
    overlaps = any(
        a["low"] <= b["high"] and b["low"] <= a["high"]
        for a in runs["before"]
        for b in runs["after"]
    )
    label = f"{dtype} {row['shape']}"
    return {"shape": label, "family": row["family"], "moved": not overlaps, **runs}


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    sides = (
        f"{side} "
        + ", ".join(
            f"{run['ratio']:.4f} [{run['low']:.4f}, {run['high']:.4f}]" for run in row[side]
        )
        for side in ("before", "after")
    )
    return f"{row['shape']:>22} {row['family']:<22} {'   '.join(sides)}{'  MOVED' * row['moved']}"


def gpu() -> str:
    """Name and driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
