"""Builds a space of ten million legal configs, searches it, and prints time and memory.

    python benchmarks/large_space.py --trials 200

The times are invented. Memory is the peak of the whole process, imports and building included.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import math
import resource
import tempfile
import time
from pathlib import Path

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status
from autogemm.search import SAMPLERS, Search
from autogemm.space import build_space, load_family

FAMILY = """
family: large
summary: block and thread tiles with many switches
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
parameters:
  BM: {values: [16, 32, 64, 128, 256], doc: rows of C per block}
  BN: {values: [16, 32, 64, 128, 256], doc: columns of C per block}
  BK: {values: [8, 16, 32, 64], doc: depth of a k_tile}
  TM: {values: [1, 2, 4, 8, 16], doc: rows of C per thread}
  TN: {values: [1, 2, 4, 8, 16], doc: columns of C per thread}
  STAGES: {values: [1, 2, 3, 4, 5], doc: k_tiles in shared memory}
  PAD_A: {values: [0, 1, 2, 4], doc: padding}
  PAD_B: {values: [0, 1, 2, 4], doc: padding}
  VEC_A: {values: [1, 2, 4], doc: elements per load}
  VEC_B: {values: [1, 2, 4], doc: elements per load}
  S0: {values: [0, 1], doc: a switch}
  S1: {values: [0, 1], doc: a switch}
  S2: {values: [0, 1], doc: a switch}
  S3: {values: [0, 1], doc: a switch}
derive:
  threads: (BM // TM) * (BN // TN)
  accumulators: TM * TN
  smem_bytes: 4 * STAGES * BK * (BM + BN + PAD_A + PAD_B)
constraints:
  - {require: BM % TM == 0 and BN % TN == 0, because: tiles divide one another}
  - {require: threads >= 64 and threads <= 512, because: a block is of a useful size}
  - {require: accumulators <= 64, because: registers}
  - {require: smem_bytes <= device.max_smem_per_block_bytes, because: shared memory}
launch:
  - {kernel: gemm_kernel, threads: threads, grid: 1, smem_bytes: smem_bytes}
"""
DEVICE = Device(
    name="like an H100",
    arch=90,
    num_sms=132,
    max_threads_per_block=1024,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    max_registers_per_thread=255,
    registers_per_sm=65536,
    max_smem_per_block_bytes=232448,
    smem_per_sm_bytes=233472,
    reserved_smem_per_block_bytes=1024,
    l2_bytes=52428800,
    memory_bytes=85017493504,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    memory_bus_bits=5120,
    fp32_cores_per_sm=128,
)


def invented_time_us(config: Config) -> float:
    """A bowl over the logarithms of the values, deepest where nothing is at an end."""
    steps = (
        0.02 * (1 + position % 3) * (math.log2(max(float(value), 0.5)) - 1 - position % 5) ** 2
        for position, (_, value) in enumerate(config)
    )
    return 100.0 * math.exp(sum(steps))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--sampler", choices=SAMPLERS, default="surrogate")
    options = parser.parse_args()
    print(f"imports: {peak_mb():.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "large.yaml").write_text(FAMILY)
        (Path(folder) / "large.cu.jinja").write_text("// no kernel\n")
        family = load_family(str(Path(folder) / "large.yaml"))
    start = time.perf_counter()
    space = build_space(family, Problem(4096, 4096, 4096), DEVICE)
    built_s = time.perf_counter() - start
    print(f"{len(space)} legal of {space.raw_count}: {built_s:.1f} s, {peak_mb():.0f} MB")
    start = time.process_time()
    search = Search(space, options.sampler)
    for done in range(1, options.trials + 1):
        proposal = search.ask()
        assert proposal is not None
        measured = Measurement((invented_time_us(proposal.config),), Provenance.RECORDED)
        search.tell(proposal, Outcome(proposal.config, Status.OK, measurement=measured))
        if done in (10, 50, 100, 200, 400) or done == options.trials:
            ms = (time.process_time() - start) / done * 1e3
            print(f"{done} trials: {ms:.1f} ms of CPU a proposal, {peak_mb():.0f} MB")


if __name__ == "__main__":
    main()
