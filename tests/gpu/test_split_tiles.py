"""Blocks that wait for each other a while: others use the GPU, or not all of them find room."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.space import launch_plan, load_family
from autogemm.targets.cuda import attached_devices

pytestmark = pytest.mark.gpu

# Blocks of 256 threads with 16 x 8 sums each: one per SM.
LARGE_BLOCKS = {
    **{"BM": 64, "BN": 128, "BK": 32, "WM": 32, "WN": 128, "TM": 16, "TN": 8, "SLICE_K": 4},
    **{"PAD_A": 4, "VEC_LOAD": 4, "VEC_STORE": 4, "STAGES": 2, "REG_STAGES": 2, "HANDOVER": 5},
    **{"GROUP_M": 1, "FMA_ORDER": "snake", "LANE_MAP": "quads"},
}
PROBLEM = Problem(256, 256, 4096)
STREAMS, LAUNCHES = 4, 50


# 128 blocks, and four times as many as an H100 has SMs.
@pytest.mark.parametrize("split_k", [16, 64])
def test_split_tiles_are_the_same_bits_whatever_else_runs(split_k: int, tmp_path: Path) -> None:
    cupy: Any = pytest.importorskip("cupy")
    family = load_family("sgemm_simt")
    values = {parameter.name: parameter.values[0] for parameter in family.parameters}
    config = Config.of(family.name, values | LARGE_BLOCKS | {"SPLIT_K": split_k})
    plan = launch_plan(family, config, PROBLEM)
    compiler = Compiler(tmp_path)
    compiled = compiler.compile(render(family, config, PROBLEM), attached_devices()[0].sm)
    compiler.close()
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.cubin)
    kernel = cupy.RawModule(path=str(cubin)).get_function("gemm_kernel")
    (launch,) = plan.launches
    kernel.max_dynamic_shared_size_bytes = launch.smem_bytes
    random = np.random.default_rng(0)
    a, b = (
        cupy.asarray(random.standard_normal(shape, dtype=np.float32))
        for shape in (PROBLEM.a_shape, PROBLEM.b_shape)
    )

    def multiply(c: Any, workspace: Any, stream: Any) -> None:
        sizes = (np.int32(PROBLEM.m), np.int32(PROBLEM.n), np.int32(PROBLEM.k))
        operands = (a, np.int32(PROBLEM.lda), b, np.int32(PROBLEM.ldb))
        result = (np.float32(0), c, np.int32(PROBLEM.ldc), workspace)
        arguments = (*sizes, np.float32(1), *operands, *result)
        with stream:
            kernel(launch.grid, launch.threads, arguments, shared_mem=launch.smem_bytes)

    def fresh() -> tuple[Any, Any]:
        c = cupy.full((PROBLEM.m, PROBLEM.n), np.nan, np.float32)
        return c, cupy.zeros(plan.workspace_bytes // 4, np.float32)

    alone = fresh()
    multiply(*alone, cupy.cuda.Stream.null)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert float(cupy.abs(alone[0] - expected).max()) < 1e-2
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(STREAMS)]
    rooms = [fresh() for _ in streams]
    cupy.cuda.runtime.deviceSynchronize()
    for _ in range(LAUNCHES):
        for stream, room in zip(streams, rooms, strict=True):
            multiply(*room, stream)
    cupy.cuda.runtime.deviceSynchronize()
    num_tiles = (PROBLEM.m // 64) * (PROBLEM.n // 128)
    for c, workspace in rooms:
        assert bool((c == alone[0]).all())
        assert not workspace.view(np.uint32)[:num_tiles].any()
