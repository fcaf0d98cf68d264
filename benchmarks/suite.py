"""Tunes and measures a suite of shapes on a GPU, and draws what came out.

`autogemm tune` does it as a person would run it, from an empty database in the folder of results;
a ratio is that of the finals: paired with cuBLAS, interleaved, in random order. Stopped early, the
same command goes on with the shapes that are missing.

    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --commit COMMIT --out OUT
    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --dtype bf16 --out OUT
    benchmarks/gpu_box.sh run python3 benchmarks/suite.py --emulation --out OUT
    python benchmarks/suite.py --draw benchmarks/results/suite_h100.json --out docs/img
"""

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from autogemm.support.files import write_atomically

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


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--shapes", default="", help="M=N=K or MxNxK, by commas. Default: the suite.")
@click.option("--dtype", default="f32", help="As of autogemm tune.")
@click.option("--emulation", is_flag=True, help="With --allow-emulation, and --max-error cublas.")
@click.option("--trials", default=150, help="Trials a shape.")
@click.option("--budget", default="20s", help="Search time a shape.")
@click.option("--rounds", default=30, help="Rounds of the finals.")
@click.option("--finalists", default=8, help="Kernels in the finals.")
@click.option("--max-error", default="", help="As of autogemm tune: a number, or cublas.")
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--draw", type=click.Path(dir_okay=False, exists=True), help="Only draw this file.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder of results.")
def main(shapes: str, commit: str, draw: str | None, out: str, **options: Any) -> None:
    """Ratio to cuBLAS over the suite."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if draw:
        plot(json.loads(Path(draw).read_text()), folder / f"{Path(draw).stem}.svg")
        return
    dtype, emulation = options["dtype"], options["emulation"]
    name = "suite" if dtype == "f32" else f"suite_{dtype}"
    name = "suite_emulated" if emulation else name
    wanted = shapes.split(",") if shapes else _shapes(dtype, emulation)
    if len(wanted) < 2:
        raise click.BadParameter(
            "two shapes or more; `autogemm tune` does one", param_hint="--shapes"
        )
    database = folder / f"{name}.db"
    rows = _tuned(wanted, database, options)
    reached = [row["shape"] for row in rows]
    results = _headed(commit, dtype, out) | {
        "versions": _versions(database),
        "not_measured": [shape for shape in wanted if shape not in reached],
        "rows": rows,
    }
    write_atomically(folder / f"{name}.json", (json.dumps(results, indent=1) + "\n").encode())
    text = table(results)
    write_atomically(folder / f"{name}.txt", text.encode())
    click.echo(text)


def _shapes(dtype: str, emulation: bool) -> tuple[str, ...]:
    if emulation:
        return EMULATED_SHAPES
    return SHAPES if dtype == "f32" else TENSOR_SHAPES


def _headed(commit: str, dtype: str, out: str) -> dict[str, Any]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "gpu": gpu.splitlines()[0],
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "dtype": dtype,
        "command": _command(out),
    }


def _command(out: str) -> str:
    # Where the results lay on that machine says nothing.
    arguments = ["OUT" if argument == out else argument for argument in sys.argv[1:]]
    return shlex.join(["benchmarks/suite.py", *arguments])


def _versions(database: Path) -> str:
    """Return the versions of the compiler and of cuBLAS, as the database has them."""
    query = "select distinct compiler, cublas from environments"
    command = [
        sys.executable,
        "-m",
        "autogemm",
        "db",
        "sql",
        query,
        "--json",
        "--db",
        str(database),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "; ".join(f"{row['compiler']}, cuBLAS {row['cublas']}" for row in json.loads(answer))


def _tuned(shapes: Sequence[str], database: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "autogemm", "tune", "--require-gpu"]
    for shape in shapes:
        command += ["--size", shape]
    command += ["--dtype", options["dtype"], "--trials", str(options["trials"])]
    command += ["--budget", options["budget"], "--rounds", str(options["rounds"])]
    command += ["--finalists", str(options["finalists"])]
    if options["emulation"]:
        command += ["--allow-emulation", "--max-error", "cublas"]
    elif options["max_error"]:
        command += ["--max-error", options["max_error"]]
    # Certification says nothing of speed: `tune` does it, this need not.
    command += ["--json", "--no-certify", "--db", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tuning:
        try:
            text, _ = tuning.communicate()
        except KeyboardInterrupt:
            # It was told too, and ends with what there is.
            text, _ = tuning.communicate()
    problems = json.loads(text)["problems"] if text else []
    rows = [_row(shape, one) for shape, one in zip(shapes, problems, strict=False) if one["config"]]
    if not rows:
        raise click.ClickException(f"autogemm tune ended with {tuning.returncode} and no winner")
    return rows


def _row(shape: str, tuned: dict[str, Any]) -> dict[str, Any]:
    baseline_us = tuned["baseline_us"]
    return {
        "shape": shape,
        "family": tuned["family"],
        "config": tuned["config"],
        "time_us": tuned["time_us"],
        "tflops": tuned["tflops"],
        "ratio": tuned["ratio"],
        "ratio_low": tuned["ratio_low"],
        "ratio_high": tuned["ratio_high"],
        "error": tuned["error"],
        "baseline_us": baseline_us,
        "baseline_tflops": tuned["tflops"] * tuned["time_us"] / baseline_us,
        "baseline_error": tuned["baseline_error"],
        "num_trials": tuned["num_trials"],
        "seconds": tuned["seconds"],
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['shape']:>14} {row['ratio']:6.3f} {row['ratio_low']:6.3f}..{row['ratio_high']:.3f} "
        f"{row['time_us']:10.2f} {row['tflops']:6.2f} {row['baseline_us']:10.2f} "
        f"{row['baseline_tflops']:6.2f} {row['error']:8.1e} {row['baseline_error']:8.1e} "
        f"{row['num_trials']:>5} {row['seconds']:5.0f}  {row['family']} "
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
    missing = results.get("not_measured", [])
    return "\n".join(
        [
            f"{results['gpu']}, {results['date']}, commit {results['commit']}",
            *([results["versions"]] if results.get("versions") else []),
            f"command: {results['command']}",
            f"ratio: speed over {_baseline(results)}, paired and interleaved; error:",
            "relative Frobenius against float64; s: search, compilation and finals of the shape",
            "",
            head,
            *map(_line, rows),
            "",
            f"geometric mean of {len(rows)} ratios: {mean:.3f}",
            f"below 1: {' '.join(below) or 'none'}",
            *([f"not measured, the time ended: {' '.join(missing)}"] if missing else []),
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
