"""Races `autogemm.grouped_gemm` with PyTorch's grouped product, which reads offsets on the GPU too.

    benchmarks/gpu_box.sh run python3 benchmarks/grouped_race.py --commit COMMIT --out OUT

Each shape of `suite.py --suite grouped` is tuned for a few seconds, into a database of its own.
Both products are compared with one in float64, then captured in CUDA graphs of some milliseconds
and timed in turn, in random order, round after round. Written: grouped_race_GPU.json and .txt.
"""

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from suite_shapes import GROUPED_SHAPES, problem_of
from suite_tables import gpu_label
from torch_timing import interleaved

import autogemm
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.support.errors import AutogemmError

# bf16 has 8 bits; sums in FP32 are rounded once.
TOLERANCE = 2.0**-7


def operands(problem: Problem) -> tuple[Any, Any, Any]:
    """x, w as [groups, N, K], and offsets; reals from a fixed seed."""
    import torch

    made = torch.Generator("cuda").manual_seed(1)
    given = {"device": "cuda", "dtype": torch.bfloat16, "generator": made}
    x = torch.randn(problem.m, problem.k, **given)
    w = torch.randn(problem.groups.count, problem.n, problem.k, **given)
    offsets = torch.tensor(problem.groups.given(problem.m), device="cuda", dtype=torch.int32)
    return x, w, offsets


def error_of(result: Any, x: Any, w: Any, offsets: Any) -> float:
    """The largest error of an element, relative to the largest element of its group."""
    worst = 0.0
    for group, (first, end) in enumerate(pairwise(offsets.tolist())):
        if first < end:
            expected = x[first:end].double() @ w[group].double().T
            error = (result[first:end].double() - expected).abs().max() / expected.abs().max()
            worst = max(worst, float(error))
    return worst


def race(problem: Problem, rounds: int) -> dict[str, Any]:
    """A row: both times, and the ratio of torch's to ours."""
    import torch

    x, w, offsets = operands(problem)
    out = torch.empty(problem.m, problem.n, device="cuda", dtype=torch.bfloat16)
    columns, ends = w.transpose(1, 2), offsets[1:].contiguous()
    calls: dict[str, Callable[[], Any]] = {
        "autogemm": lambda: autogemm.grouped_gemm(x, columns, offsets, out),
        "torch": lambda: torch._grouped_mm(x, columns, offs=ends),
    }
    errors = {name: error_of(call(), x, w, offsets) for name, call in calls.items()}
    if wrong := [name for name, error in errors.items() if error > TOLERANCE]:
        raise AutogemmError(f"{problem.label}: {', '.join(wrong)} wrong: {errors}")
    samples = interleaved(calls, rounds)
    found = paired_ratio(samples["torch"], samples["autogemm"], seed=1)
    times = {name: statistics.median(one) for name, one in samples.items()}
    return {
        "ratio": found.ratio,
        "ratio_low": found.low,
        "ratio_high": found.high,
        "ratio_of_medians": times["torch"] / times["autogemm"],
        "time_us": times["autogemm"],
        "torch_us": times["torch"],
        "tflops": problem.tflops(times["autogemm"]),
        "torch_tflops": problem.tflops(times["torch"]),
        "error": errors["autogemm"],
        "torch_error": errors["torch"],
        "samples_us": samples,
    }


def table(results: dict[str, Any]) -> str:
    """A line for each shape, and the mean."""
    lines = [
        f"{results['gpu']}, {results['date']}, commit {results['commit']}, bf16, layout nt",
        f"torch {results['torch']}: torch._grouped_mm; command: {results['command']}",
        "ratio: torch's time over ours, median of paired ratios of interleaved rounds",
        "",
        f"{'shape':>42} {'ratio':>6} {'95 %':^14} {'medians':>7} {'us':>9} {'TFLOP/s':>7} "
        f"{'torch us':>9} {'TFLOP/s':>7}",
    ]
    for row in results["rows"]:
        lines.append(
            f"{row['shape']:>42} {row['ratio']:6.3f} {row['ratio_low']:6.3f}.."
            f"{row['ratio_high']:.3f}  {row['ratio_of_medians']:6.3f} {row['time_us']:9.2f} "
            f"{row['tflops']:7.1f} {row['torch_us']:9.2f} {row['torch_tflops']:7.1f}"
        )
    logs = [math.log(row["ratio"]) for row in results["rows"]]
    if logs:
        mean = math.exp(math.fsum(logs) / len(logs))
        lines += ["", f"geometric mean of {len(logs)} ratios: {mean:.3f}"]
    lines += [f"failed: {shape}: {why}" for shape, why in results["failed"].items()]
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--budget", default=3.0, help="Search time a shape in s.", show_default=True)
@click.option("--rounds", default=20, help="Rounds of the race.", show_default=True)
@click.option("--shapes", default="", help="By semicolons. Default: those of the suite.")
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(budget: float, rounds: int, shapes: str, commit: str, out: Path) -> None:
    """Ratios to PyTorch's grouped product."""
    import torch

    out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name()
    command = ["OUT" if one == str(out) else one for one in sys.argv[1:]]
    results: dict[str, Any] = {
        "gpu": name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "torch": torch.__version__,
        "command": " ".join(["benchmarks/grouped_race.py", *command]),
        "rows": [],
        "failed": {},
    }
    path = out / f"grouped_race_{gpu_label(name)}.json"
    with tempfile.TemporaryDirectory() as place:
        os.environ["AUTOGEMM_DB"] = f"{place}/race.db"
        for shape in shapes.split(";") if shapes else GROUPED_SHAPES:
            problem = problem_of(shape, Layout.NT, DType.BF16)
            try:
                autogemm.tune(
                    problem, budget_s=budget, trials=60, certify=False, progress=False, rounds=8
                )
                autogemm.forget()
                results["rows"].append({"shape": shape, **race(problem, rounds)})
            except (AutogemmError, RuntimeError) as error:
                results["failed"][shape] = str(error)
            torch.cuda.empty_cache()
            path.write_text(json.dumps(results, indent=1) + "\n")
            path.with_suffix(".txt").write_text(table(results))
    click.echo(table(results))


if __name__ == "__main__":
    main()
