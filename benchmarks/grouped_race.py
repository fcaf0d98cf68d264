"""Races `autogemm.grouped_gemm` with PyTorch's grouped product, which reads offsets on the GPU too.

    benchmarks/gpu_box.sh run python3 benchmarks/grouped_race.py --commit COMMIT --out OUT
    ... grouped_race.py --suite grouped-k --out OUT    gradients of weights: groups that divide K

Each shape of `suite.py` is tuned for a few seconds, into a database of its own.
Both products are compared with one in float64, then captured in CUDA graphs of some milliseconds
and timed in turn, in random order, round after round. Written: grouped_race_GPU.json and .txt, or
grouped_k_race_GPU.
"""

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from suite_shapes import NAMED, problem_of
from suite_tables import gpu_label
from torch_timing import interleaved

import autogemm
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.finals import paired_ratio
from autogemm.support.cells import one_line
from autogemm.support.errors import AutogemmError

# bf16 has 8 bits; sums in FP32 are rounded once.
TOLERANCE = 2.0**-7
DEVICE = "cuda"
# The layout of each suite, and the name of its files.
SUITES = {"grouped": (Layout.NT, "grouped_race"), "grouped-k": (Layout.TN, "grouped_k_race")}
OURS = "autogemm"
Calls = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Race:
    """A race of our products with those of a library that multiplies PyTorch's tensors.

    ``name`` is that of the files, without the GPU. ``other`` is the library's name in rows and
    tables, ``baseline`` its call and version. ``calls_of`` makes both calls for a problem and the
    error of a result, relative to the largest element.
    """

    name: str
    command: str
    other: str
    baseline: str
    calls_of: Callable[[Problem], tuple[Calls, Callable[[str, Any], float]]]

    def go(self, problems: Mapping[str, Problem], options: Mapping[str, Any]) -> dict[str, Any]:
        """Tune and race each shape, write the results after each, and print and return them."""
        import torch

        if not torch.cuda.is_available():
            raise click.ClickException("PyTorch sees no GPU: run this on a machine with one")
        out, gpu = options["out"], torch.cuda.get_device_name()
        out.mkdir(parents=True, exist_ok=True)
        command = ["OUT" if one == str(out) else one for one in sys.argv[1:]]
        results: dict[str, Any] = {
            "gpu": gpu,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": options["commit"],
            "torch": torch.__version__,
            "baseline": self.baseline,
            "command": " ".join([self.command, *command]),
            "rows": [],
            "failed": {},
        }
        path = out / f"{self.name}_{gpu_label(gpu)}.json"
        with tempfile.TemporaryDirectory() as place:
            os.environ["AUTOGEMM_DB"] = f"{place}/race.db"
            for shape, problem in problems.items():
                try:
                    found = tuned(problem, options["budget"], options["trials"])
                    autogemm.forget()
                    row = self.row(problem, options["rounds"])
                    results["rows"].append({"shape": shape, **row, **found})
                except (AutogemmError, RuntimeError) as error:
                    results["failed"][shape] = one_line(str(error))
                torch.cuda.empty_cache()
                path.write_text(json.dumps(results, indent=1) + "\n")
                path.with_suffix(".txt").write_text(self.table(results))
        click.echo(self.table(results))
        return results

    def row(self, problem: Problem, rounds: int) -> dict[str, Any]:
        """Both times, and the ratio of the other's to ours. Raises AutogemmError for a result that
        is wrong.
        """
        calls, error_of = self.calls_of(problem)
        errors = {name: error_of(name, call()) for name, call in calls.items()}
        # NaN is not above a limit, but wrong.
        if wrong := [name for name, error in errors.items() if not error <= TOLERANCE]:
            raise AutogemmError(f"{problem.label}: {', '.join(wrong)} wrong: {errors}")
        samples = interleaved(calls, rounds)
        found = paired_ratio(samples[self.other], samples[OURS], seed=1)
        times = {name: statistics.median(one) for name, one in samples.items()}
        return {
            "layout": problem.layout.value,
            "dtype": problem.dtype.label,
            "baseline": self.baseline,
            "ratio": found.ratio,
            "ratio_low": found.low,
            "ratio_high": found.high,
            "ratio_of_medians": times[self.other] / times[OURS],
            "time_us": times[OURS],
            f"{self.other}_us": times[self.other],
            "tflops": problem.tflops(times[OURS]),
            f"{self.other}_tflops": problem.tflops(times[self.other]),
            "error": errors[OURS],
            f"{self.other}_error": errors[self.other],
            "samples_us": samples,
        }

    def table(self, results: Mapping[str, Any]) -> str:
        """A line for each shape, and the means."""
        rows, other = results["rows"], self.other
        kinds = dict.fromkeys(f"{row['dtype']}, layout {row['layout']}" for row in rows)
        lines = [
            f"{results['gpu']}, {results['date']}, commit {results['commit']}, {'; '.join(kinds)}",
            f"torch {results['torch']}: {self.baseline}; command: {results['command']}",
            f"ratio: {other}'s time over ours, median of paired ratios of interleaved rounds;",
            "cuBLAS: the ratio to its fastest call in the finals of the search",
            "",
            f"{'shape':>42} {'ratio':>6} {'95 %':^14} {'medians':>7} {'us':>9} {'TFLOP/s':>7} "
            f"{other + ' us':>11} {'TFLOP/s':>7} {'cuBLAS':>6} {'tried':>5}  winner",
        ]
        for row in rows:
            lines.append(
                f"{row['shape']:>42} {row['ratio']:6.3f} {row['ratio_low']:6.3f}.."
                f"{row['ratio_high']:.3f}  {row['ratio_of_medians']:6.3f} {row['time_us']:9.2f} "
                f"{row['tflops']:7.1f} {row[f'{other}_us']:11.2f} {row[f'{other}_tflops']:7.1f} "
                f"{row['cublas_ratio']:6.3f} {row['tried']:5}  {row['winner']}"
            )
        if rows:
            fastest = [min(row["ratio"], row["cublas_ratio"]) for row in rows]
            lines += [
                *("", f"geometric mean of {mean_of([row['ratio'] for row in rows])}"),
                f"to the faster of {other} and cuBLAS: {mean_of(fastest)}",
            ]
        lines += [f"failed: {shape}: {why}" for shape, why in results["failed"].items()]
        return "\n".join([*lines, ""])


def mean_of(ratios: Sequence[float]) -> str:
    """Return how many ratios there are, and their geometric mean."""
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return f"{len(ratios)} ratios: {mean:.3f}"


def tuned(problem: Problem, budget_s: float, trials: int) -> dict[str, Any]:
    """Tune a problem for `autogemm.gemm`: the winner, and its ratio to cuBLAS in the finals. Raises
    AutogemmError where no candidate ran correctly, or cuBLAS has no such product.
    """
    options: dict[str, Any] = {"budget_s": budget_s, "trials": trials, "rounds": 8}
    result = autogemm.tune(problem, certify=False, progress=False, require_gpu=True, **options)
    if result.finals is None:
        raise AutogemmError("no candidate ran correctly")
    winner, config = result.finals.winner, result.finals.winner.config
    return {
        "cublas_ratio": winner.ratio,
        "cublas": result.finals.baseline.name,
        "tried": len(result.outcomes),
        "winner": f"{config.family} {config}" if config else "",
    }


def operands(problem: Problem) -> tuple[Any, Any]:
    """x as [M, K] and w as [groups, N, K]; reals from a fixed seed."""
    import torch

    made = torch.Generator(DEVICE).manual_seed(1)
    given: dict[str, Any] = {"device": DEVICE, "dtype": torch.bfloat16, "generator": made}
    x = torch.randn(problem.m, problem.k, **given)
    return x, torch.randn(problem.groups.count, problem.n, problem.k, **given)


def numbers_of(problem: Problem) -> Any:
    """Offsets of the groups, or counts of masked ones, as kernels read them."""
    import torch

    return torch.tensor(problem.groups.given(problem.m), device=DEVICE, dtype=torch.int32)


def unwritten(*shape: int) -> Any:
    """A result of NaN: what a kernel leaves out is wrong."""
    import torch

    return torch.full(shape, math.nan, device=DEVICE, dtype=torch.bfloat16)


def group_error(result: Any, x: Any, w: Any, ranges: Sequence[tuple[int, int]]) -> float:
    """The largest error of an element, relative to the largest element of its group; NaN where one
    is NaN. ``result`` and ``x`` have the rows of all groups, ``ranges`` those of each.
    """
    import torch

    errors = [torch.zeros((), device=DEVICE, dtype=torch.float64)]
    for group, (first, end) in enumerate(ranges):
        if first < end:
            expected = x[first:end].double() @ w[group].double().T
            error = (result[first:end].double() - expected).abs().max() / expected.abs().max()
            errors.append(error)
    return float(torch.stack(errors).max())


def calls_of(problem: Problem) -> tuple[Calls, Callable[[str, Any], float]]:
    """Our grouped product and PyTorch's."""
    import torch

    x, w = operands(problem)
    offsets, out = numbers_of(problem), unwritten(problem.m, problem.n)
    columns, ends = w.transpose(1, 2), offsets[1:].contiguous()
    ranges = problem.groups.ranges(problem.m)
    calls: Calls = {
        OURS: lambda: autogemm.grouped_gemm(x, columns, offsets, out),
        "torch": lambda: torch._grouped_mm(x, columns, offs=ends),
    }
    return calls, lambda _, result: group_error(result, x, w, ranges)


def divided_calls(problem: Problem) -> tuple[Calls, Callable[[str, Any], float]]:
    """Our products of groups that divide K, and PyTorch's of two matrices: its own gradient of the
    weights.
    """
    import torch

    made = torch.Generator(DEVICE).manual_seed(1)
    given: dict[str, Any] = {"device": DEVICE, "dtype": torch.bfloat16, "generator": made}
    x, y = torch.randn(problem.k, problem.m, **given), torch.randn(problem.k, problem.n, **given)
    starts = problem.groups.given(problem.k)
    offsets = torch.tensor(starts, device=DEVICE, dtype=torch.int32)
    ends, out = offsets[1:].contiguous(), unwritten(problem.groups.count, problem.m, problem.n)
    calls: Calls = {
        OURS: lambda: autogemm.grouped_gemm_tn(x, y, offsets, out),
        "torch": lambda: torch._grouped_mm(x.T, y, offs=ends),
    }

    def error_of(_: str, result: Any) -> float:
        errors = []
        for group, (first, end) in enumerate(problem.groups.ranges(problem.k)):
            expected = x[first:end].double().T @ y[first:end].double()
            # The C of an empty group is 0.
            size = expected.abs().max() if first < end else 1.0
            errors.append((result[group].double() - expected).abs().max() / size)
        return float(torch.stack(errors).max())

    return calls, error_of


def race_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that races have in common."""
    for option in (
        click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path)),
        click.option("--commit", default="", help="Which commit this is, for the record."),
        click.option("--shapes", default="", help="By semicolons. Default: those of the suite."),
        click.option("--rounds", default=20, help="Rounds of the race.", show_default=True),
        click.option("--trials", default=60, help="Configs a shape at most.", show_default=True),
        click.option("--budget", default=3.0, help="Search time a shape in s.", show_default=True),
    ):
        command = option(command)
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--suite", type=click.Choice(list(SUITES)), default="grouped", help="As of suite.py.")
@race_options
def main(suite: str, shapes: str, **options: Any) -> None:
    """Ratios to PyTorch's grouped product."""
    layout, name = SUITES[suite]
    problems = {
        shape: problem_of(shape, layout, DType.BF16)
        for shape in (shapes.split(";") if shapes else NAMED[suite][1])
    }
    command = "benchmarks/grouped_race.py"
    calls = calls_of if layout is Layout.NT else divided_calls
    race = Race(name, command, "torch", "torch._grouped_mm", calls)
    sys.exit(1 if race.go(problems, options)["failed"] else 0)


if __name__ == "__main__":
    main()
