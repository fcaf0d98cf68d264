"""A million legal configs are built and searched in little memory and time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from space_families import write_family

FAMILY = """
family: mine
summary: a million configs
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32, 64, 128, 256], doc: rows of C per block}
  BN: {values: [16, 32, 64, 128, 256], doc: columns of C per block}
  TM: {values: [1, 2, 4, 8, 16], doc: rows of C per thread}
  TN: {values: [1, 2, 4, 8, 16], doc: columns of C per thread}
  P0: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], doc: padding}
  P1: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], doc: padding}
  P2: {values: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], doc: padding}
  P3: {values: [1, 2, 4, 8], doc: elements per load}
derive:
  threads: (BM // TM) * (BN // TN)
  area: BM * BN
  smem_bytes: 4 * (BM + BN) * P3 + P0
constraints:
  - {require: BM % TM == 0 and BN % TN == 0, because: tiles divide one another}
  - {require: threads >= 32 and threads <= 1024, because: a block is of a useful size}
launch:
  - {kernel: gemm_kernel, threads: threads, grid: 1, smem_bytes: smem_bytes}
"""

# Optuna imports cmaes, and that SciPy, when it needs it: two seconds that are no proposal's.
SEARCH = """
import json, math, resource, sys, time
from pathlib import Path
import cmaes
from fake_search_space import ok
from store_samples import H100
from autogemm.model.problem import Problem
from autogemm.search.study import Search
from autogemm.space import build_space, load_family

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def time_us(config):
    return 50 + sum((math.log2(1 + v) - 3) ** 2 for _, v in config)

family = load_family(sys.argv[1])
before_mb = peak_mb()
space = build_space(family, Problem(4096, 4096, 4096), H100)
search = Search(space, sys.argv[2], 0)
start = time.process_time()
for _ in range(60):
    proposal = search.ask()
    search.tell(proposal, ok(proposal.config, time_us(proposal.config)))
print(json.dumps({
    "configs": len(space),
    "mb": peak_mb() - before_mb,
    "ms": (time.process_time() - start) / 60 * 1e3,
    "best": search.best[1],
}))
"""


@pytest.mark.parametrize("sampler", ["surrogate", "cmaes"])
def test_a_million_configs_take_little_memory_and_time(tmp_path: Path, sampler: str) -> None:
    family = write_family(tmp_path / "families", FAMILY) / "mine.yaml"
    here = Path(__file__).parent
    paths = [str(here.parents[1]), str(here), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, str(family), sampler],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stdout)
    assert found["configs"] > 1_000_000
    # 60 bytes a config are 0.6 GB for ten million; all features of all configs would take 88.
    assert found["mb"] < 100 + 60e-6 * found["configs"]
    # 15 ms by themselves, but tests share the cores.
    assert found["ms"] < 150
    # Chance comes to 61.
    assert found["best"] < 58
