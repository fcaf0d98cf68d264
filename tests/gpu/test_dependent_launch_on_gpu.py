"""Kernels that may begin before the one before them has ended and read what that one writes."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.runtime.driver import cuda_driver
from autogemm.runtime.operands import Call
from autogemm.runtime.plans import Gpu, Kernel, Plan
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.dependent_launch import driver_overlaps

pytestmark = pytest.mark.gpu

WAIT = "wait_for_kernels_before();\n"
STEPS, WEIGHTS, ROUNDS = 24, 6, 20
SKINNY: dict[str, Value] = {
    **{"BM": 8, "BN": 16, "BK": 512, "WN": 16, "SLICE_K": 8, "SPLIT_K": 1, "STAGES": 1},
    **{"PREFETCH_A": 0, "L2_PREFETCH": 128, "MIN_BLOCKS": 1},
}
WGMMA: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 5, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 16, "C_BUFFERS": 2, "GROUP_M": 1},
    **{"BLOCKS": 0, "EPILOGUE": "after"},
}
SIMT: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "BK": 16, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "SLICE_K": 1},
    **{"SPLIT_K": 1, "STREAM_BLOCKS": 0, "PAD_A": 4, "PAD_B": 4, "VEC_LOAD": 4, "VEC_STORE": 4},
    **{"STAGES": 2, "REG_STAGES": 2, "HANDOVER": 4, "GROUP_M": 1, "MIN_BLOCKS": 1},
    **{"FMA_ORDER": "snake", "LANE_MAP": "quads"},
}
FEW_ROWS: dict[str, Value] = {
    **{"BM": 8, "BN": 64, "BK": 64, "TM": 4, "TN": 4, "SLICE_K": 8, "SPLIT_K": 1, "FAN_IN": 4},
    **{"STAGES": 3, "MIN_BLOCKS": 1},
}
TILES = {"gemm_skinny": SKINNY, "gemm_wgmma": WGMMA, "sgemm_simt": SIMT, "sgemm_skinny": FEW_ROWS}


@pytest.fixture(scope="module")
def target(target: CudaTarget) -> CudaTarget:
    if target.device.arch < 90:
        pytest.skip(f"kernels do not overlap on {target.device.name}")
    return target


@dataclass
class Chain:
    """Products that follow one another: x becomes x @ W^T for one W after the other."""

    cupy: Any
    plan: Plan
    rows: int
    width: int
    stream: Any
    is_short: bool

    def __post_init__(self) -> None:
        cupy = self.cupy
        draw = cupy.random.RandomState(7)
        shape = (WEIGHTS, self.width, self.width)
        # As large on the average behind a product as before it.
        self.weights = self.stored(draw.standard_normal(shape, cupy.float32) / self.width**0.5)
        self.first = self.stored(draw.standard_normal((self.rows, self.width), cupy.float32))
        self.places = [cupy.empty_like(self.first) for _ in range(2)]
        self.stream.synchronize()
        cupy.cuda.Device().synchronize()

    def stored(self, values: Any) -> Any:
        """The values, or the bits that BF16 has of them."""
        if not self.is_short:
            return values.astype(self.cupy.float32)
        bits = values.astype(self.cupy.float32).view(self.cupy.uint32)
        return (bits >> 16).astype(self.cupy.uint16)

    def queue(self) -> None:
        for step in range(STEPS):
            x, y = self.places[step % 2], self.places[1 - step % 2]
            weight = self.weights[step % WEIGHTS]
            self.plan.run(x.data.ptr, weight.data.ptr, y.data.ptr, 1.0, 0.0, self.stream.ptr)

    def graph(self) -> Any:
        """Its launches follow one another as fast as the GPU can begin them."""
        self.stream.begin_capture()
        self.queue()
        return self.stream.end_capture()

    def result(self, graph: Any = None) -> Any:
        with self.stream:
            self.places[0][...] = self.first
            self.places[1].fill(0)
        if graph is None:
            self.queue()
        else:
            graph.launch(self.stream)
        self.stream.synchronize()
        return self.cupy.asnumpy(self.places[STEPS % 2])


def chain(compiler: Compiler, target: CudaTarget, name: str, rows: int, **changes: Any) -> Chain:
    import cupy

    width = 1024
    is_short = name.startswith("gemm")
    problem = Problem(rows, width, width, Layout.NT, DType.BF16 if is_short else DType.F32)
    family, edit = load_family(name), changes.pop("edit", ("", ""))
    config = family.completed(Config.of(name, TILES[name] | changes))
    assert broken_constraints(family, config, problem, target.device) == []
    source = render(family, config, problem)
    assert edit[0] in source.text
    source = replace(source, text=source.text.replace(*edit)) if edit[0] else source
    gpu = Gpu(cuda_driver(), 0)
    plan = launch_plan(family, config, problem)
    module = gpu.driver.load(gpu.context, compiler.compile(source, target.device.sm).cubin)
    launches = tuple(
        (gpu.driver.function(gpu.context, module, one.kernel, one.smem_bytes), one)
        for one in plan.launches
    )
    call = Call(problem, False, ((0, 0, 0),))
    planned = Plan(gpu, call, Kernel(launches, plan), (rows, width, width), is_tuned=False)
    return Chain(cupy, planned, rows, width, cupy.cuda.Stream(non_blocking=True), is_short)


CASES: list[tuple[str, int, dict[str, Value]]] = [
    ("gemm_skinny", 8, {"PDL": "early"}),
    ("gemm_skinny", 8, {"PDL": "early", "L2_AHEAD": 2}),
    ("gemm_skinny", 8, {"PDL": "late", "L2_AHEAD": 1}),
    ("gemm_skinny", 8, {"PDL": "late", "SPLIT_K": 2}),
    ("gemm_skinny", 8, {"PDL": "early", "SPLIT_K": 4, "PARTIALS": "cluster", "L2_AHEAD": 1}),
    ("gemm_wgmma", 200, {"PDL": "early"}),
    ("gemm_wgmma", 200, {"PDL": "late"}),
    ("gemm_wgmma", 64, {"PDL": "late", "SPLIT_K": 4, "C_BUFFERS": 1, "BOX_M": 64}),
    ("gemm_wgmma", 256, {"PDL": "early", "CLUSTER_M": 2}),
    ("sgemm_simt", 200, {"PDL": "early"}),
    ("sgemm_simt", 200, {"PDL": "late"}),
    ("sgemm_simt", 200, {"PDL": "early", "SPLIT_K": 4}),
    ("sgemm_skinny", 8, {"PDL": "early", "SPLIT_K": 4}),
    ("sgemm_skinny", 8, {"PDL": "late"}),
]


@pytest.mark.parametrize(("name", "rows", "changes"), CASES, ids=str)
def test_a_kernel_reads_what_the_one_before_has_written(
    target: CudaTarget, compiler: Compiler, name: str, rows: int, changes: dict[str, Value]
) -> None:
    """The bits are those of kernels that follow one another, launched one by one and in a graph."""
    alone = {key: value for key, value in changes.items() if key not in {"PDL", "L2_AHEAD"}}
    expected = chain(compiler, target, name, rows, **alone).result()
    assert expected.any()
    overlapping = chain(compiler, target, name, rows, **changes)
    assert any(launch.overlaps for _, launch in overlapping.plan.kernel.launches)
    assert driver_overlaps()
    for _ in range(ROUNDS):
        assert (overlapping.result() == expected).all()
    graph = overlapping.graph()
    for _ in range(ROUNDS):
        assert (overlapping.result(graph) == expected).all()


@pytest.mark.parametrize(
    ("name", "rows"), [("gemm_skinny", 8), ("gemm_wgmma", 200), ("sgemm_simt", 200)]
)
def test_a_kernel_that_does_not_wait_is_wrong(
    target: CudaTarget, compiler: Compiler, name: str, rows: int
) -> None:
    """Without it the test above would pass on kernels that never overlap."""
    expected = chain(compiler, target, name, rows).result()
    hasty = chain(compiler, target, name, rows, PDL="early", edit=(WAIT, ""))
    graph = hasty.graph()
    assert any((hasty.result(graph) != expected).any() for _ in range(ROUNDS))
