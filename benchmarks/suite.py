"""Tunes and measures a suite of shapes on a GPU, and draws what came out.

Every shape is tuned from an empty database by `autogemm tune` as a person would run it; its ratio
is that of the finals: paired with cuBLAS, interleaved, in random order. Stopped early, the same
command goes on with the shapes that are missing.

    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --commit COMMIT --out OUT
    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --dtype bf16 --out OUT/bf16
    python benchmarks/suite.py --draw benchmarks/results/suite_h100.json --out docs/img
"""

import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from autogemm.files import write_atomically

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


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shapes", default="", help="M=N=K or MxNxK, by commas. Default: the suite.")
@click.option("--dtype", default="f32", help="As of autogemm tune.")
@click.option("--trials", default=150, help="Trials a shape.")
@click.option("--budget", default="20s", help="Search time a shape.")
@click.option("--max-error", default="", help="As of autogemm tune: a number, or cublas.")
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--draw", type=click.Path(dir_okay=False, exists=True), help="Only draw this file.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
def main(  # noqa: PLR0913, PLR0917  # the options of a command
    shapes: str,
    dtype: str,
    trials: int,
    budget: str,
    max_error: str,
    commit: str,
    draw: str | None,
    out: str,
) -> None:
    """Ratio to cuBLAS over the suite."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if draw:
        plot(json.loads(Path(draw).read_text()), folder / f"{Path(draw).stem}.svg")
        return
    state = folder / "suite.json"
    results = json.loads(state.read_text()) if state.exists() else _headed(commit, dtype)
    done = {row["shape"] for row in results["rows"]}
    search = ["--trials", str(trials), "--budget", budget, "--dtype", dtype]
    search += ["--max-error", max_error] if max_error else []
    wanted = shapes.split(",") if shapes else SHAPES if dtype == "f32" else TENSOR_SHAPES
    for shape in [shape for shape in wanted if shape not in done]:
        results["rows"].append(_tuned(shape, search, folder))
        write_atomically(state, (json.dumps(results, indent=1) + "\n").encode())
        click.echo(_line(results["rows"][-1]))
    text = table(results)
    write_atomically(folder / "suite.txt", text.encode())
    click.echo(text)


def _headed(commit: str, dtype: str) -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    card = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "gpu": card.splitlines()[0],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "dtype": dtype,
        "command": shlex.join(["benchmarks/suite.py", *sys.argv[1:]]),
        "rows": [],
    }


def _tuned(shape: str, search: list[str], folder: Path) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "autogemm", "tune", "--require-gpu", "--size", shape]
        # Certification says nothing of speed: `tune` does it, this need not.
        command += [*search, "--json", "-q", "--no-certify"]
        command += ["--db", str(Path(scratch) / "suite.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{shape}: {done.stderr.strip()[-300:]}")
    result = json.loads(done.stdout)
    write_atomically(folder / f"tune_{shape}.json", done.stdout.encode())
    winner, baseline = result["finals"]["entries"][0], result["finals"]["baseline"]
    return {
        "shape": shape,
        "family": winner.get("family", result.get("family", "")),
        "config": winner["config"],
        "time_us": winner["time_us"],
        "tflops": winner["tflops"],
        "ratio": winner["ratio"],
        "ratio_low": winner["ratio_low"],
        "ratio_high": winner["ratio_high"],
        "error": winner["relative_frobenius"],
        "cublas_us": baseline["time_us"],
        "cublas_tflops": baseline["tflops"],
        "cublas_error": baseline["relative_frobenius"],
        "trials": result["trials"],
        "seconds": time.monotonic() - began,
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['shape']:>14} {row['ratio']:6.3f} {row['ratio_low']:6.3f}..{row['ratio_high']:.3f} "
        f"{row['time_us']:10.2f} {row['tflops']:6.2f} {row['cublas_us']:10.2f} "
        f"{row['cublas_tflops']:6.2f} {row['error']:8.1e} {row['cublas_error']:8.1e} "
        f"{row['trials']:5d} {row['seconds']:5.0f}  {row['family']} "
        + " ".join(f"{name}={value}" for name, value in row["config"].items())
    )


def table(results: dict[str, Any]) -> str:
    """The rows, and their geometric mean."""
    rows = results["rows"]
    mean = math.exp(math.fsum(math.log(row["ratio"]) for row in rows) / len(rows))
    below = [row["shape"] for row in rows if row["ratio"] < 1]
    head = (
        f"{'MxNxK':>14} {'ratio':>6} {'95 %':^14} {'us':>10} {'TFLOP':>6} {'cuBLAS us':>10} "
        f"{'TFLOP':>6} {'error':>8} {'cuBLAS':>8} {'tried':>5} {'s':>5}  winner"
    )
    return "\n".join(
        [
            f"{results['gpu']}, {results['date']}, commit {results['commit']}",
            f"command: {results['command']}",
            f"ratio: speed over {_baseline(results)}, paired and interleaved; error:",
            "relative Frobenius against float64; s: search, compilation and finals of the shape",
            "",
            head,
            *map(_line, rows),
            "",
            f"geometric mean of {len(rows)} ratios: {mean:.3f}",
            f"below 1: {' '.join(below) or 'none'}",
            "",
        ]
    )


def _baseline(results: dict[str, Any]) -> str:
    # Files of before had FP32 alone.
    dtype = results.get("dtype", "f32")
    if dtype == "f32":
        return "cuBLAS SGEMM (FP32, TF32 off)"
    return f"the fastest of cuBLAS and cuBLASLt in {dtype}"


def plot(results: dict[str, Any], path: Path) -> None:
    """A bar a shape, the best first; readable without colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = sorted(results["rows"], key=lambda row: -row["ratio"])
    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(rows) + 1.2))
    names, ratios = [row["shape"] for row in rows], [row["ratio"] for row in rows]
    bars = axes.barh(names, ratios, color="0.55", edgecolor="0.2")
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel(f"speed over {_baseline(results)}\n{results['gpu']}, {results['date']}")
    axes.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
