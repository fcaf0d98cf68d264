"""Races kernels with an epilogue with PyTorch: its compiler, and one operation after the other.

    benchmarks/gpu_box.sh run python3 benchmarks/epilogue_race.py \
        --epilogue "gelu_tanh(acc + bias[n])" --epilogue "acc + rest[m, n]" \
        --shapes 4096,8192 --commit COMMIT --out OUT

Of each expression torch gets the same tree (autogemm.runtime.torch_epilogue) behind `x @ w`:
compiled with mode max-autotune, and as it stands (eager). The plain product is tuned first, into a
database of the race, then ours, which tries its winners before anything else; the ratio of their
times is what the epilogue costs. All are compared with float64, then captured in CUDA graphs of
some milliseconds and timed in turn, in random order, round after round.
Written: epilogue_race_GPU.json and .txt.
"""

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
from suite_shapes import problem_of
from suite_tables import gpu_label
from torch_timing import interleaved

import autogemm
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import PLAIN, Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.support.errors import AutogemmError

# bf16 has 8 bits; torch rounds between the operations that it does not fuse.
TOLERANCE = 2.0**-6
# Rows that are compared with float64.
CHECKED_ROWS = 256
COMPILED, EAGER, OURS, PLAIN_PRODUCT = "torch.compile", "eager", "autogemm", "plain product"


def inputs_of(problem: Problem) -> tuple[Any, Any, dict[str, Any]]:
    """x [M, K], op(B) [K, columns of the product] and the epilogue's inputs by name, from a fixed
    seed. Sums are about 1 in size, where functions are curved.
    """
    import torch

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[problem.dtype.ab.label]
    made = torch.Generator("cuda").manual_seed(1)
    given: dict[str, Any] = {"device": "cuda", "dtype": dtype, "generator": made}
    columns = problem.n * problem.epilogue.num_columns
    x = torch.randn(problem.m, problem.k, **given) / math.sqrt(problem.k)
    is_nt = problem.layout.trans_b
    w = torch.randn(*((columns, problem.k) if is_nt else (problem.k, columns)), **given)
    arrays = {
        one.name: torch.randn(one.shape(problem.m, problem.n, problem.k), **given)
        if one.axes
        else torch.tensor(0.5)
        for one in problem.epilogue.inputs
    }
    return x, w.T if is_nt else w, arrays


def calls_of(problem: Problem) -> tuple[dict[str, Callable[[], Any]], Any]:
    """The calls that are raced, and the first rows of the result in float64."""
    import torch

    from autogemm.runtime.torch_epilogue import result_of

    x, w, inputs = inputs_of(problem)
    epilogue = problem.epilogue
    arrays = [inputs[one.name] for one in epilogue.inputs if one.axes]
    numbers = [float(inputs[one.name]) for one in epilogue.inputs if not one.axes]
    out = torch.empty(problem.m, problem.n, device="cuda", dtype=x.dtype)
    product = torch.empty(problem.m, w.shape[1], device="cuda", dtype=x.dtype)

    def as_written(x: Any, w: Any, *arrays: Any) -> Any:
        return result_of(epilogue, x @ w, arrays, numbers, 1.0)

    compiled = torch.compile(as_written, mode="max-autotune-no-cudagraphs", dynamic=False)
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: autogemm.gemm(x, w, out, epilogue=epilogue.text, **inputs),
        COMPILED: lambda: compiled(x, w, *arrays),
        EAGER: lambda: as_written(x, w, *arrays),
        PLAIN_PRODUCT: lambda: autogemm.gemm(x, w, product),
    }
    axes = [one.axes for one in epilogue.inputs if one.axes]
    rows = [
        one[:CHECKED_ROWS] if axis.startswith("m") else one
        for axis, one in zip(axes, arrays, strict=True)
    ]
    exact = as_written(x[:CHECKED_ROWS].double(), w.double(), *(one.double() for one in rows))
    return calls, exact


def race(problem: Problem, rounds: int) -> dict[str, Any]:
    """A row: all times, and the ratios of the others to ours. Raises AutogemmError for a result
    that is wrong.
    """
    calls, exact = calls_of(problem)
    errors = {}
    for name, call in calls.items():
        if name != PLAIN_PRODUCT:
            error = (call()[:CHECKED_ROWS].double() - exact).abs().max() / exact.abs().max()
            errors[name] = float(error)
    if wrong := [name for name, error in errors.items() if not error <= TOLERANCE]:
        raise AutogemmError(f"{problem.label}: {', '.join(wrong)} wrong: {errors}")
    samples = interleaved(calls, rounds)
    times = {name: median(one) for name, one in samples.items()}
    ratios = {}
    for name in calls:
        if name != OURS:
            found = paired_ratio(samples[name], samples[OURS], seed=1)
            ratios[name] = {
                **{"ratio": found.ratio, "low": found.low, "high": found.high},
                "of_medians": times[name] / times[OURS],
            }
    return {"times_us": times, "ratios": ratios, "errors": errors, "samples_us": samples}


def tuned(problem: Problem, budget_s: float) -> None:
    """Tune a problem for `autogemm.gemm`."""
    options: dict[str, Any] = {"budget_s": budget_s, "trials": None, "rounds": 12}
    autogemm.tune(problem, certify=False, progress=False, require_gpu=True, **options)


def table(results: dict[str, Any]) -> str:
    """A line for each expression and shape, and the mean ratio to torch.compile."""
    lines = [
        f"{results['gpu']}, {results['date']}, commit {results['commit']}, "
        f"{results['dtype']}, layout {results['layout']}",
        f"torch {results['torch']}, mode max-autotune-no-cudagraphs; command: {results['command']}",
        "ratio: the other's time over ours, median of paired ratios of interleaved rounds, and of",
        "medians; eager: the operations of the expression one by one; cost: our time over that of",
        "the plain product, minus 1",
        "",
        f"{'expression, MxNxK':<44} {'us':>8} {'compile':>8} {'ratio':>6} {'95 %':^12} "
        f"{'medians':>7} {'eager':>8} {'ratio':>6} {'cost':>6}",
    ]
    for row in results["rows"]:
        times, compiled = row["times_us"], row["ratios"][COMPILED]
        cost = 1.0 / row["ratios"][PLAIN_PRODUCT]["ratio"] - 1.0
        lines.append(
            f"{row['epilogue'] + ', ' + row['shape']:<44} {times[OURS]:8.2f} "
            f"{times[COMPILED]:8.2f} {compiled['ratio']:6.3f} {compiled['low']:.3f}.."
            f"{compiled['high']:.3f} {compiled['of_medians']:7.3f} {times[EAGER]:8.2f} "
            f"{row['ratios'][EAGER]['ratio']:6.3f} {cost:6.1%}"
        )
    logs = [math.log(row["ratios"][COMPILED]["ratio"]) for row in results["rows"]]
    if logs:
        mean = math.exp(math.fsum(logs) / len(logs))
        lines += ["", f"geometric mean of {len(logs)} ratios to torch.compile: {mean:.3f}"]
    lines += [f"failed: {name}: {why}" for name, why in results["failed"].items()]
    return "\n".join([*lines, ""])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--epilogue", "epilogues", multiple=True, required=True, help="Repeatable.")
@click.option("--shapes", default="4096", help="MxNxK, by commas.", show_default=True)
@click.option("--dtype", type=click.Choice(["bf16", "f16"]), default="bf16", show_default=True)
@click.option("--layout", type=click.Choice(["nn", "nt"]), default="nt", show_default=True)
@click.option("--budget", default=3.0, help="Search time a problem in s.", show_default=True)
@click.option("--rounds", default=20, help="Rounds of the race.", show_default=True)
@click.option("--limit", default=math.inf, help="Begin no row after so many s.")
@click.option("--commit", default="", help="Which commit this is, for the record.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(epilogues: tuple[str, ...], shapes: str, out: Path, **options: Any) -> None:
    """Ratios to what PyTorch makes of the same expression."""
    import torch

    ends_at = time.monotonic() + options["limit"]
    out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name()
    command = ["OUT" if one == str(out) else one for one in sys.argv[1:]]
    results: dict[str, Any] = {
        "gpu": name,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": options["commit"],
        "torch": torch.__version__,
        "dtype": options["dtype"],
        "layout": options["layout"],
        "command": " ".join(["benchmarks/epilogue_race.py", *command]),
        "rows": [],
        "failed": {},
    }
    path = out / f"epilogue_race_{gpu_label(name)}.json"
    plain: set[Problem] = set()
    with tempfile.TemporaryDirectory() as place:
        os.environ["AUTOGEMM_DB"] = f"{place}/race.db"
        for shape in shapes.split(","):
            for text in epilogues:
                epilogue = Epilogue.parse(text)
                kind = Layout(options["layout"]), DType.parse(options["dtype"])
                problem = problem_of(shape, *kind, epilogue)
                m, n, k = problem.m, problem.n * epilogue.num_columns, problem.k
                product = Problem(m, n, k, *kind, epilogue=PLAIN)
                if time.monotonic() > ends_at:
                    results["failed"][f"{text}, {shape}"] = "the time was up"
                    continue
                try:
                    # First, so that kernels with the epilogue begin with its winners; for twice as
                    # long, so that they are not measured by a product that was tuned less.
                    if product not in plain:
                        tuned(product, 2 * options["budget"])
                    plain.add(product)
                    tuned(problem, options["budget"])
                    autogemm.forget()
                    row = race(problem, options["rounds"])
                    results["rows"].append({"epilogue": epilogue.text, "shape": shape, **row})
                except (AutogemmError, RuntimeError) as error:
                    results["failed"][f"{text}, {shape}"] = str(error)
                torch.cuda.empty_cache()
                path.write_text(json.dumps(results, indent=1) + "\n")
                path.with_suffix(".txt").write_text(table(results))
    click.echo(table(results))


if __name__ == "__main__":
    main()
