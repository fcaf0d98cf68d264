"""Families and kernels to export."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from store_samples import ENVIRONMENT, H100, VERIFIED

from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import CacheState, Provenance
from autogemm.model.results.stored import StoredKernel
from autogemm.space import Family, load_family

# Two launches, a grid of three extents, a workspace, guards, vectors: all a launcher may need.
SPLIT_YAML = """
family: split
summary: Two kernels that share a workspace.
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32], doc: rows of C per thread block}
  SPLIT: {values: [1, 4], doc: parts of K}
  VEC: {values: [1, 4], doc: floats per load of A}
  SCRATCH: {values: [0, 1], default: 1, doc: whether there is a workspace}
derive:
  guard_m: M % BM != 0
  vec_a: VEC if lda % VEC == 0 else 1
  extent: BM * vec_a
  tiles_m: ceil_div(M, BM)
constraints:
  - {require: BM * SPLIT <= device.max_threads_per_block, because: the GPU allows no larger block}
launch:
  - kernel: gemm_kernel
    threads: [extent, 2]
    grid: [tiles_m, "ceil_div(N, 16)", "min(SPLIT, K)"]
    smem_bytes: 20000 * vec_a
  - {kernel: reduce_kernel, threads: 256, grid: "ceil_div(M * N, 256)", smem_bytes: 0}
workspace_bytes: 4 * SPLIT * M * N if SCRATCH else 0
seeds:
  - {BM: 16, SPLIT: 4, VEC: 4}
"""

SPLIT_TEMPLATE = """\
// BM = {{ config.BM }}, guard {{ derived.guard_m }}, vector {{ derived.vec_a }}
{% filter filled %}
extern "C" __global__ void gemm_kernel({{ signature.in_kernel(type_ab) }}) {}
{% endfilter %}

{% filter filled %}
extern "C" __global__ void reduce_kernel({{ signature.in_kernel(type_ab) }}) {}
{% endfilter %}
"""


def split_family(folder: Path, template: str = SPLIT_TEMPLATE) -> Family:
    folder.mkdir(exist_ok=True)
    (folder / "split.yaml").write_text(SPLIT_YAML)
    (folder / "split.cu.jinja").write_text(template)
    return load_family(folder)


def stored_kernel(
    family: Family, problem: Problem, config: Config | None = None, **facts: Any
) -> StoredKernel:
    """A measured winner, by default of the family's first seed."""
    kernel = StoredKernel(
        kernel_id=12,
        source=render(family, config or family.seeds[0], problem),
        problem=problem,
        device=H100,
        environment=ENVIRONMENT,
        provenance=Provenance.MEASURED,
        l2=CacheState.WARM,
        time_us=2655.0,
        ratio=1.0123,
        ratio_low=1.0111,
        ratio_high=1.0134,
        run_id=3,
        measured_at=datetime(2026, 11, 20, 12, 30, tzinfo=UTC),
        verification=VERIFIED,
        baseline="cuBLASLt proposal 3",
    )
    return replace(kernel, **facts)
