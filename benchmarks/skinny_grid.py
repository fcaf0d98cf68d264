"""Times many configs of gemm_skinny on few rows, and shows what each parameter is worth.

    benchmarks/gpu_box.sh run python3 benchmarks/skinny_grid.py --out OUT
    ... skinny_grid.py --rows 1,8 --layers 28672x4096 --count 80 --l2 rotate --out OUT
    ... skinny_grid.py --dtype e4m3 --epilogue 'acc * sa[k / 128, m] * sb[n / 128, k / 128]' ...

The family's seeds and a random sample of legal configs, each verified before it is timed. GB/s are
those of A, B and C, each moved once; the share is of the memory copy that the same run measures.
"""

import csv
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from autogemm.codegen import render
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState
from autogemm.space import Family, broken_constraints, build_space, launch_plan, load_family
from autogemm.support.errors import AutogemmError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

SHOWN = 8


def chosen(
    family: Family, problem: Problem, device: Any, options: Mapping[str, Any]
) -> list[Config]:
    """The legal seeds, then a random sample of the space."""
    seeds = [one for one in family.seeds if not broken_constraints(family, one, problem, device)]
    fix: dict[str, tuple[Value, ...]] = {}
    for one in options["fix"]:
        name, _, values = one.partition("=")
        fix[name] = tuple(map(int, values.split(",")))
    space = build_space(family, problem, device, fix)
    rng = np.random.default_rng(options["seed"])
    order = rng.permutation(len(space))[: options["count"]]
    return list(dict.fromkeys([*seeds, *(space.config(int(index)) for index in order)]))


def moved_bytes(problem: Problem) -> int:
    """A, B and C, each once; a gated epilogue has two columns of B for each of C."""
    m, n, k = problem.m, problem.n, problem.k
    columns = n * problem.epilogue.num_columns
    return (m * k + k * columns) * problem.dtype.ab.size_bytes + m * n * problem.dtype.c.size_bytes


def measured(
    target: CudaTarget, compiler: Any, family: Family, problem: Problem, configs: list[Config]
) -> Iterator[dict[str, Any]]:
    """Compile all at once, then measure one after the other."""
    sources = [render(family, config, problem) for config in configs]
    futures = [compiler.submit(source, target.device.sm) for source in sources]
    best = math.inf
    for config, source, future in zip(configs, sources, futures, strict=True):
        row: dict[str, Any] = {"shape": problem.size_label, **config.as_dict()}
        try:
            compiled = future.result()
            plan = launch_plan(family, config, problem)
            outcome = target.measure(
                Candidate(source, plan, compiled), best if math.isfinite(best) else None
            )
        except AutogemmError as error:
            yield row | {"status": str(error)}
            continue
        time_us = outcome.measurement.time_us if outcome.measurement else math.inf
        best = min(best, time_us)
        registers = max(one.registers for one in compiled.resources)
        gb_s = moved_bytes(problem) / time_us / 1e3
        yield row | {
            "status": str(outcome.status),
            "reason": outcome.reason,
            "time_us": time_us,
            "gb_s": gb_s,
            "registers": registers,
        }


def show(rows: list[dict[str, Any]], names: list[str], copy_gb_s: float) -> None:
    """The fastest configs, and the fastest with each value of each parameter."""
    ran = sorted((row for row in rows if row.get("gb_s")), key=lambda row: row["time_us"])
    click.echo(f"{rows[0]['shape']}: {len(rows)} configs, {len(ran)} ran")
    for row in [row for row in rows if row["status"] not in {"ok", "too_slow"}][:3]:
        click.echo(f"  {row['status']}: {row.get('reason')}: {row}")
    for row in ran[:SHOWN]:
        config = " ".join(f"{name}={row[name]}" for name in names)
        share = row["gb_s"] / copy_gb_s
        click.echo(
            f"  {row['time_us']:8.2f} us {row['gb_s']:6.0f} GB/s {share:5.3f} of a copy  "
            f"{config} regs={row['registers']}"
        )
    for name in names:
        best: dict[Any, float] = {}
        for row in ran:
            best.setdefault(row[name], row["time_us"])
        if len(best) > 1:
            told = ", ".join(f"{value}: {best[value]:.2f}" for value in sorted(best))
            click.echo(f"    {name}: {told}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", default="1,8,16,64", help="M, by commas.", show_default=True)
@click.option("--layers", default="28672x4096,4096x4096", help="NxK, by commas.", show_default=True)
@click.option("--layout", default="nt", show_default=True)
@click.option("--dtype", default="bf16", show_default=True)
@click.option("--epilogue", default="", help="As of autogemm tune.")
@click.option("--count", default=100, help="Random configs a shape.", show_default=True)
@click.option("--fix", multiple=True, help="NAME=V[,V]: a parameter's values; repeatable.")
@click.option("--seed", default=1, show_default=True)
@click.option("--l2", default="rotate", help="As of autogemm tune.", show_default=True)
@click.option("--limit", default=math.inf, help="Begin no shape after so many seconds.")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def main(out: Path, **options: Any) -> None:
    """Time many configs of gemm_skinny."""
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    family = load_family("gemm_skinny")
    names = [one.name for one in family.parameters]
    target = CudaTarget()
    compiler = target.compiler()
    every: list[dict[str, Any]] = []
    try:
        copy_gb_s = target.ceilings(compiler).copy_gb_s
        click.echo(f"{target.device.name}: a copy moves {copy_gb_s:.0f} GB/s (read + write)")
        for layer in options["layers"].split(","):
            for m in options["rows"].split(","):
                if time.monotonic() - began > options["limit"]:
                    break
                n, k = map(int, layer.split("x"))
                layout, dtype = Layout(options["layout"]), DType.parse(options["dtype"])
                problem = Problem(
                    int(m), n, k, layout, dtype, epilogue=Epilogue(options["epilogue"])
                )
                target.prepare(
                    problem, MeasureOptions(l2=CacheState(options["l2"]), compares=False)
                )
                configs = chosen(family, problem, target.device, options)
                rows = list(measured(target, compiler, family, problem, configs))
                show(rows, names, copy_gb_s)
                every += rows
    finally:
        target.close()
        compiler.close()
    if every:
        path = out / f"skinny_grid_{options['layout']}.csv"
        columns = ["shape", *names, "status", "reason", "time_us", "gb_s", "registers"]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(every)


if __name__ == "__main__":
    main()
