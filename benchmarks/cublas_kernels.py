"""Shows which kernels are behind the fastest calls of cuBLAS: tile, stages, cluster, split, grid.

    benchmarks/gpu_box.sh run python3 benchmarks/cublas_kernels.py --suite any-size --dtype bf16
    ... cublas_kernels.py --shapes 1000,512x1024x8192 --dtype f16 --commit COMMIT --out FILE

Where cuBLAS is faster, its kernel's name and grid say what it does: ``nvjet_..._128x64_64x8_2x1``
has tiles of 128 x 64, eight k tiles of 64 in flight, and clusters of 2 x 1. The kernels are seen by
PyTorch's profiler, which sees all that this process launches.
"""

import json
import shlex
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from suite_shapes import NAMED, SHAPES, problem_of, shape_of

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState
from autogemm.support.errors import AutogemmError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda.worker.gpu.cublas import Cublas, forget_overrides
from autogemm.targets.cuda.worker.gpu.gpu import Gpu
from autogemm.targets.cuda.worker.libraries import near_calls
from autogemm.targets.cuda.worker.problem.prepared import Baseline, PreparedProblem

CACHE_STATES = [one.value for one in CacheState]
# Calls near the fastest that are shown.
MOST_SHOWN = 3


def kernels_of(prepared: PreparedProblem, call: Baseline) -> Iterator[str]:
    """What one call launches: a kernel's name, grid, threads, shared memory and registers."""
    import torch

    prepared.batch_us(call, 1)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        prepared.batch_us(call, 1)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    for event in events:
        if event.get("cat") == "kernel":
            args = event["args"]
            grid, block = ("x".join(map(str, args[name])) for name in ("grid", "block"))
            smem, registers = args["shared memory"], args["registers per thread"]
            yield f"{event['name'][:100]}  grid {grid}  threads {block}  {smem} B  {registers} reg"


def lines_of(gpu: Gpu, cublas: Cublas, problem: Problem, options: MeasureOptions) -> Iterator[str]:
    """The near calls of a problem, the fastest first, with their kernels."""
    yield f"{shape_of(problem)} {problem.layout} {problem.dtype}"
    prepared = PreparedProblem(gpu, cublas, problem, options, partial(near_calls, None))
    for call in prepared.calls.near[:MOST_SHOWN]:
        time_us = prepared.stopwatch_about(call, prepared.batch_us(call, 1)).probe()
        yield f"  {time_us:9.2f} us  {call.name}"
        yield from (f"    {one}" for one in kernels_of(prepared, call))


@click.command(help=__doc__)
@click.option("--shapes", help="Sizes, with commas between.")
@click.option("--suite", type=click.Choice(sorted(NAMED)))
@click.option("--layouts", default="nn", show_default=True)
@click.option("--dtype", default="bf16", show_default=True)
@click.option("--epilogue", default="acc", show_default=True)
@click.option("--l2", default="warm", type=click.Choice(CACHE_STATES), show_default=True)
@click.option("--commit", default="", help="The commit that is measured, for the record.")
@click.option("--out", type=click.Path(path_type=Path))
def main(**options: Any) -> None:
    """Print the calls of each shape and layout, and write them to a file."""
    forget_overrides()
    gpu = Gpu(0)
    cublas = Cublas(gpu)
    measured = MeasureOptions(l2=CacheState(options["l2"]))
    dtype, epilogue = DType.parse(options["dtype"]), Epilogue.parse(options["epilogue"])
    own, suite = options["shapes"], options["suite"]
    shapes = own.split(",") if own else NAMED[suite][1] if suite else SHAPES
    printed = [
        f"{gpu.device.name}, {gpu.telemetry.driver_version}, {datetime.now(UTC):%Y-%m-%d}, "
        f"commit {options['commit']}",
        shlex.join(["command:", "benchmarks/cublas_kernels.py", *sys.argv[1:]]),
        "",
    ]
    click.echo("\n".join(printed))
    for shape in shapes:
        for layout in map(Layout, options["layouts"].split(",")):
            problem = problem_of(shape, layout, dtype, epilogue)
            try:
                for line in lines_of(gpu, cublas, problem, measured):
                    click.echo(line)
                    printed.append(line)
            except AutogemmError as error:
                click.echo(f"  {error}")
    if options["out"] is not None:
        options["out"].write_text("".join(f"{line}\n" for line in printed))


if __name__ == "__main__":
    main()
