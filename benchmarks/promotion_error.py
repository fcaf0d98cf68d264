"""Errors of products of E4M3 against K and the promotion interval, ours and cuBLASLt's, and times.

    benchmarks/gpu_box.sh run python3 benchmarks/promotion_error.py --commit COMMIT --out OUT

An error is relative to float64 in the norm of Frobenius, on the uniform reals that candidates are
verified on; C is FP32, so that nothing but the sums is rounded. gemm_wgmma has the same tile
whatever PROMOTE is; gemm_skinny, whose sums are in FP32, has few rows. cuBLASLt's error is that of
its first right proposal; that of the one farthest off stands beside it in the file.
At one larger size each of them is timed, in interleaved rounds: of gemm_wgmma the fastest of a few
tiles, of cuBLASLt the fastest of its proposals. Written: promotion_error_GPU.json and .txt.

    python benchmarks/promotion_error.py --page benchmarks/results/promotion_error_h200.json PAGE

writes the committed results as a table into a page, docs/kernels/gemm_wgmma.md.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from suite_tables import gpu_label

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.support.cells import one_line
from autogemm.support.errors import AutogemmError
from autogemm.support.files import write_atomically
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, forget_overrides
from autogemm.targets.cuda.worker.gpu.cublas_lt import CublasLt
from autogemm.targets.cuda.worker.gpu.gpu import Gpu
from autogemm.targets.cuda.worker.interleave import INTERLEAVED_SAMPLE_US, Series, interleave
from autogemm.targets.cuda.worker.libraries import near_calls
from autogemm.targets.cuda.worker.libraries.baselines import fastest_of
from autogemm.targets.cuda.worker.libraries.cublas_calls import Baseline
from autogemm.targets.cuda.worker.problem.prepared import Contestant, PreparedProblem

DEPTHS = (1024, 4096, 16384, 65536)
SIDE, FEW_ROWS = 256, 8
TIMED = (4096, 4096, 16384)
PROMOTED = (0, 128, 256, 512)
PROPOSALS, ROUNDS, SEED = 8, 30, 1
# cuBLASLt's two ways: sums that are promoted, and sums that stay in the tensor cores.
WAYS = {"cuBLASLt": False, "cuBLASLt, fast accumulation": True}

# The lines of a page between which the table stands.
BEGIN, END = "<!-- promotion errors -->", "<!-- end of promotion errors -->"

SAME: dict[str, Value] = {
    **{"SCHEDULE": "cooperative", "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1, "GROUP_M": 8},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "BLOCKS": 0},
}
TILE: dict[str, Value] = SAME | {"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 4}
# Tiles to be timed; promoted sums take more registers, and some of these are too large for them.
TILES: tuple[dict[str, Value], ...] = (
    SAME | {"BM": 128, "BN": 256, "WM": 64, "WN": 256, "STAGES": 4, "CLUSTER_M": 2},
    SAME | {"BM": 128, "BN": 192, "WM": 64, "WN": 192, "STAGES": 4, "CLUSTER_M": 2},
    SAME | {"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 6, "CLUSTER_M": 2},
    SAME | {"BM": 192, "BN": 128, "WM": 64, "WN": 128, "STAGES": 5, "CLUSTER_N": 2},
    SAME | {"BM": 128, "BN": 256, "WM": 128, "WN": 128, "STAGES": 4, "CLUSTER_M": 2},
    SAME | {"BM": 256, "BN": 128, "WM": 128, "WN": 128, "STAGES": 4, "CLUSTER_N": 2},
    SAME | {"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 6, "PROMOTION": "alternating"},
)
SKINNY: dict[str, Value] = {
    **{"BM": 8, "BN": 32, "BK": 512, "WN": 32, "SLICE_K": 4, "SPLIT_K": 2, "STAGES": 1},
    **{"PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}

# What is known of each kernel on one problem, by its name.
Errors = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """Kernels of ours that have one name, for one problem, on their way through the compiler."""

    name: str
    problem: Problem
    kernels: tuple[tuple[KernelSource, "Future[CompiledKernel]"], ...]

    def candidates(self) -> list[Candidate]:
        """All of them. Raises AutogemmError where one does not compile."""
        return [
            Candidate(
                source,
                launch_plan(load_family(source.family), source.config, self.problem),
                future.result(),
            )
            for source, future in self.kernels
        ]


def problem_of(m: int, n: int, k: int) -> Problem:
    """A product of E4M3 with a C of FP32."""
    return Problem(m, n, k, Layout.NT, DType.E4M3_F32)


@dataclass(frozen=True)
class Asking:
    """Gives kernels for a device to the compiler."""

    compiler: Compiler
    device: Device

    def of(
        self, name: str, problem: Problem, family_name: str, tiles: Sequence[dict[str, Value]]
    ) -> Asked:
        """The legal ones of these configs. Raises AutogemmError if there is none."""
        family = load_family(family_name)
        configs = [family.completed(Config.of(family_name, tile)) for tile in tiles]
        broken = [broken_constraints(family, one, problem, self.device) for one in configs]
        legal = [one for one, why in zip(configs, broken, strict=True) if not why]
        if not legal:
            raise AutogemmError(f"{name} at {problem.label}: {broken[0][0]}")
        sources = [render(family, one, problem) for one in legal]
        kernels = ((one, self.compiler.submit(one, self.device.sm)) for one in sources)
        return Asked(name, problem, tuple(kernels))

    def of_intervals(self, problem: Problem, tiles: Sequence[dict[str, Value]]) -> list[Asked]:
        """gemm_wgmma with each interval, in these tiles."""
        return [
            self.of(name, problem, "gemm_wgmma", [tile | {"PROMOTE": promote} for tile in tiles])
            for promote in PROMOTED
            for name in [f"gemm_wgmma PROMOTE={promote}"]
        ]


class Bench:
    """A GPU, and what is measured on it."""

    def __init__(self) -> None:
        forget_overrides()
        self.gpu = Gpu(0)
        self.cublas = Cublas(self.gpu)
        self._lt = CublasLt(self.gpu)

    def prepared(self, problem: Problem) -> PreparedProblem:
        """Its inputs and references on the GPU; no baseline is looked for."""
        options = MeasureOptions(compares=False)

        def none(*of: Any) -> Any:
            return near_calls(None, *of)

        return PreparedProblem(self.gpu, self.cublas, problem, options, none)

    def proposals(
        self, prepared: PreparedProblem, *, adds_fast: bool
    ) -> list[tuple[Baseline, dict[str, Any]]]:
        """cuBLASLt's for the problem with what is known of each: right ones first, each the more
        promising before others.
        """
        problem, address = prepared.problem, prepared.result.address
        calls = self._lt.algorithms(problem, PROPOSALS, adds_fast=adds_fast)
        made = [
            Baseline(f"proposal {number}", call, problem, address)
            for number, call in enumerate(calls, start=1)
        ]
        known = [(one, checked(prepared, one) | {"is": one.name}) for one in made]
        return sorted(known, key=lambda pair: bool(pair[1]["complaint"]))

    def errors(self, found: Sequence[Asked], problem: Problem, *, libraries: bool) -> Errors:
        """The error of each on one problem, by name."""
        prepared = self.prepared(problem)
        errors: Errors = {}
        for one in found:
            (candidate,) = one.candidates()
            contestant = prepared.contestant(candidate)
            errors[one.name] = checked(prepared, contestant)
            contestant.unload()
        for name, adds_fast in WAYS.items() if libraries else ():
            of_calls = [found for _, found in self.proposals(prepared, adds_fast=adds_fast)]
            if of_calls:
                farthest = max(one["error"] or 0.0 for one in of_calls)
                errors[name] = of_calls[0] | {"largest_error": farthest, "proposals": len(of_calls)}
        return errors

    def times(self, found: Sequence[Asked], problem: Problem) -> dict[str, dict[str, Any]]:
        """Of each the fastest, timed in turn with the others: time, error and which it is."""
        prepared = self.prepared(problem)
        chosen: dict[str, tuple[str, Contestant]] = {}
        for one in found:
            candidates = one.candidates()
            contestants = [prepared.contestant(candidate) for candidate in candidates]
            place = fastest_of(prepared, contestants)
            chosen[one.name] = (str(candidates[place].source.config), contestants[place])
        for name, adds_fast in WAYS.items():
            known = self.proposals(prepared, adds_fast=adds_fast)
            calls = [call for call, found in known if not found["complaint"]]
            if calls:
                call = calls[fastest_of(prepared, calls)]
                chosen[name] = (call.name, call)
        rows = {name: checked(prepared, one) | {"is": what} for name, (what, one) in chosen.items()}
        series = {
            name: Series(
                prepared.stopwatch_about(one, rows[name]["launch_us"], INTERLEAVED_SAMPLE_US),
                ROUNDS,
            )
            for name, (_, one) in chosen.items()
        }
        interleave(list(series.values()), self.gpu.telemetry.read, SEED, ROUNDS)
        for name, row in rows.items():
            samples_us = series[name].samples_us
            row["time_us"] = statistics.median(samples_us)
            row["tflops"] = problem.flops / row["time_us"] / 1e6
            row["samples_us"] = samples_us
        return rows


def checked(prepared: PreparedProblem, contestant: Contestant) -> dict[str, Any]:
    """The error of a contestant, and what verification says of it: nothing if it is right."""
    found = prepared.check(contestant)
    error = found.verification.error if found.verification else None
    ratio = found.verification.max_error_ratio if found.verification else None
    return {
        "error": error,
        "max_error_ratio": ratio,
        "launch_us": found.launch_us,
        "complaint": one_line(found.complaint),
    }


def measured(
    bench: Bench, compiler: Compiler, depths: Sequence[int], timed: Problem
) -> list[dict[str, Any]]:
    """All errors, then times. What is compiled is on its way before the first is needed."""
    asking = Asking(compiler, bench.gpu.device)
    wide = {k: asking.of_intervals(problem_of(SIDE, SIDE, k), [TILE]) for k in depths}
    few = {
        k: asking.of(
            f"gemm_skinny, {FEW_ROWS} rows", problem_of(FEW_ROWS, SIDE, k), "gemm_skinny", [SKINNY]
        )
        for k in depths
    }
    at_size = asking.of_intervals(timed, TILES)
    errors: dict[int, Errors] = {}
    for k in depths:
        found = bench.errors(wide[k], problem_of(SIDE, SIDE, k), libraries=True)
        errors[k] = found | bench.errors([few[k]], few[k].problem, libraries=False)
    times = bench.times(at_size, timed)
    names = list(dict.fromkeys(name for one in errors.values() for name in one))
    return [
        {
            "kernel": name,
            "errors": {str(k): errors[k][name] for k in depths if name in errors[k]},
            "timed": times.get(name),
        }
        for name in names
    ]


def table(results: Mapping[str, Any]) -> list[str]:
    """A line for each kernel: errors by K, then error and time at the larger size."""
    depths, size = results["depths"], results["timed"]
    lines = [
        f"{results['gpu']}, {results['driver']}, {results['date']}, commit {results['commit']}",
        f"{results['versions']}; command: {results['command']}",
        f"error: relative Frobenius against float64, e4m3, C in FP32, {SIDE} x {SIDE} x K,",
        f"gemm_skinny {FEW_ROWS} x {SIDE} x K; last: error and median time at {size}",
        "",
        f"{'':30}"
        + "".join(f"{f'K={k}':>10}" for k in depths)
        + f"{size:>18}{'us':>9}{'TFLOP/s':>9}",
    ]
    for row in results["rows"]:
        of_k = [row["errors"].get(str(k)) for k in depths]
        line = f"{row['kernel']:30}" + "".join(f"{_error(one):>10}" for one in of_k)
        timed = row["timed"]
        if timed is not None:
            line += f"{_error(timed):>18}{timed['time_us']:9.1f}{timed['tflops']:9.1f}"
            line += f"  {timed['is']}"
        lines.append(line)
    complaints = [
        f"{row['kernel']}: {where}: {one['complaint']}"
        for row in results["rows"]
        for where, one in (*row["errors"].items(), ("timed", row["timed"]))
        if one is not None and one["complaint"]
    ]
    return [*lines, "", f"wrong: {'; '.join(complaints) or 'none'}"]


def page_table(results: Mapping[str, Any], text: str) -> list[str]:
    """The rows of a page; each links to the text, where its numbers must stand (figures.py)."""
    depths = [str(k) for k in results["depths"]]
    heads = ("", *(f"K = {k}" for k in depths), f"us at {results['timed']}")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in results["rows"]:
        timed = row["timed"]
        time_us = "-" if timed is None else f"{timed['time_us']:.1f}"
        label = f"[{row['kernel']}]({text})"
        cells = (label, *(_error(row["errors"].get(k)) for k in depths), time_us)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def write_page(file: Path, page: Path) -> None:
    """Put the table of results between the marks of a page. Raises ClickException for one without
    marks.
    """
    text = f"../../benchmarks/results/{file.with_suffix('.txt').name}"
    rows = page_table(json.loads(file.read_text()), text)
    before, begin, rest = page.read_text().partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not end:
        raise click.ClickException(f"{page} has no lines {BEGIN} and {END}")
    new = "\n".join(["", *rows, "", ""])
    write_atomically(page, f"{before}{begin}{new}{end}{after}".encode())


def _error(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None or found["error"] is None else f"{found['error']:.2e}"


def whole_numbers(text: str) -> tuple[int, ...]:
    """Numbers by commas or x. Raises BadParameter for others."""
    words = text.replace("x", ",").split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise click.BadParameter(f"whole numbers, got {text!r}")
    return tuple(map(int, words))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--depths", default=",".join(map(str, DEPTHS)), show_default=True, help="Ks.")
@click.option("--timed", default="x".join(map(str, TIMED)), show_default=True, help="MxNxK.")
@click.option("--commit", default="unknown", help="Which commit this is, for the record.")
@click.option("--out", default=".", type=click.Path(path_type=Path), help="Folder of results.")
@click.option(
    "--page",
    type=(click.Path(path_type=Path, exists=True), click.Path(path_type=Path, exists=True)),
    help="Measure nothing; write the results of a file into a page.",
)
def main(depths: str, timed: str, commit: str, out: Path, page: tuple[Path, Path] | None) -> None:
    """Errors against K and promotion interval, and times."""
    if page is not None:
        write_page(*page)
        return
    sizes = whole_numbers(timed)
    if len(sizes) != 3:
        raise click.BadParameter(f"MxNxK, got {timed!r}", param_hint="--timed")
    of_k = whole_numbers(depths)
    command = ["OUT" if one == str(out) else one for one in sys.argv[1:]]
    try:
        with tempfile.TemporaryDirectory() as folder, closing(Compiler(Path(folder))) as compiler:
            bench = Bench()
            rows = measured(bench, compiler, of_k, problem_of(*sizes))
    except AutogemmError as error:
        raise click.ClickException(one_line(error)) from error
    gpu = bench.gpu
    results = {
        "gpu": gpu.device.name,
        "driver": gpu.telemetry.driver_version,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "versions": f"{compiler.version}, cuBLAS {bench.cublas.version}",
        "command": " ".join(["benchmarks/promotion_error.py", *command]),
        "depths": of_k,
        "timed": "x".join(map(str, sizes)),
        "rounds": ROUNDS,
        "rows": rows,
    }
    text = "\n".join(table(results))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"promotion_error_{gpu_label(gpu.device.name)}.json"
    write_atomically(path, (json.dumps(results, indent=1) + "\n").encode())
    write_atomically(path.with_suffix(".txt"), f"{text}\n".encode())
    click.echo(text)


if __name__ == "__main__":
    main()
