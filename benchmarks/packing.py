"""Times the kernel that packs operands, of the winners in a suite's files that have one.

    benchmarks/gpu_box.sh run python3 benchmarks/packing.py OUT/any_size_bf16_nn_h200.json ...

Prints for each winner the time of the packing alone, of the product alone on what was packed, and
of both, as CUDA graphs of many launches, and the share of the packing in both.
"""

import ctypes
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import cupy as cp

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import DEFAULT_SMEM_BYTES, Launch
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family
from autogemm.targets.cuda.arguments import argument_values, encode, pointers_to

LAUNCHES = 50
REPEATS = 9


class Winner:
    """A winner's kernels on the GPU, with matrices of zeros."""

    def __init__(self, row: dict[str, Any], compiler: Compiler, arch: str) -> None:
        family = load_family(row["family"])
        config = Config.of(family.name, family.current(row["config"]))
        self.problem = replace(
            Problem.of_size(row["shape"], Layout(row["layout"])), dtype=DType.parse(row["dtype"])
        )
        self.plan = launch_plan(family, config, self.problem)
        compiled = compiler.compile(render(family, config, self.problem), arch)
        self._module = cp.cuda.driver.moduleLoadData(compiled.cubin)
        self._memory = self._matrices()
        self._values = argument_values(self.plan, self.problem)
        for name, memory in self._memory.items():
            address: Any = self._values[name]
            address.value = memory.data.ptr
        for one in self.plan.tensor_maps:
            raw: Any = self._values[one.name]
            encode(one, self._memory[one.matrix].data.ptr, raw)
        self._pointers = pointers_to(self._values)

    def _matrices(self) -> dict[str, Any]:
        problem, dtype = self.problem, self.problem.dtype
        num_bytes = {
            "A": problem.a_shape[0] * problem.lda * dtype.ab.size_bytes,
            "B": problem.b_shape[0] * problem.ldb * dtype.ab.size_bytes,
            "C": problem.m * problem.ldc * dtype.c.size_bytes,
            "workspace": self.plan.workspace_bytes,
        }
        return {name: cp.zeros(size, cp.uint8) for name, size in num_bytes.items()}

    def time_us(self, launches: Sequence[Launch]) -> float:
        """The time of these launches: the median of graphs of many."""
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for _ in range(LAUNCHES):
                for launch in launches:
                    self._queue(launch, stream)
            graph = stream.end_capture()
            times = [self._timed(graph, stream) for _ in range(REPEATS + 2)][2:]
        return sorted(times)[REPEATS // 2] / LAUNCHES

    def _queue(self, launch: Launch, stream: Any) -> None:
        driver = cp.cuda.driver
        function = driver.moduleGetFunction(self._module, launch.kernel)
        if launch.smem_bytes > DEFAULT_SMEM_BYTES:
            attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function, attribute, launch.smem_bytes)
        address = ctypes.addressof(self._pointers)
        driver.launchKernel(
            function, *launch.grid, *launch.threads, launch.smem_bytes, stream.ptr, address, 0
        )

    @staticmethod
    def _timed(graph: Any, stream: Any) -> float:
        start, end = cp.cuda.Event(), cp.cuda.Event()
        start.record(stream)
        graph.launch(stream)
        end.record(stream)
        end.synchronize()
        return 1000.0 * float(cp.cuda.get_elapsed_time(start, end))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
def main(files: tuple[str, ...]) -> None:
    """Time of packing beside that of the product."""
    arch = "sm_" + cp.cuda.Device().compute_capability
    click.echo(f"{'shape':<24}{'pack':<6}{'pack us':>9}{'GB/s':>7}{'gemm us':>9}{'both':>9}  share")
    rows = [row for name in files for row in json.loads(Path(name).read_text())["rows"]]
    with tempfile.TemporaryDirectory() as folder, closing(Compiler(Path(folder))) as compiler:
        for row in rows:
            if row["config"].get("PACK", "none") not in {"none", 0}:
                click.echo(line_of(row, Winner(row, compiler, arch)))


def line_of(row: dict[str, Any], winner: Winner) -> str:
    """A line of the table."""
    first, *others = winner.plan.launches
    pack_us, gemm_us = winner.time_us([first]), winner.time_us(others)
    both_us = winner.time_us(winner.plan.launches)
    # About as many bytes are read as are written.
    rate = 2 * winner.plan.workspace_bytes / pack_us / 1e3
    label = f"{row['shape']} {row['layout']} {row['dtype']}"
    return (
        f"{label:<24}{row['config']['PACK']:<6}{pack_us:9.2f}{rate:7.0f}{gemm_us:9.2f}{both_us:9.2f}"
        f"  {pack_us / both_us:.3f}"
    )


if __name__ == "__main__":
    main()
