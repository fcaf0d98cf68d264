"""Runs one candidate a few times, with nothing else on the GPU, for a profiler to watch.

``python -m autogemm.targets.cuda.worker.profiled JOB``: the last run is the one to be
profiled. Inputs are random reals; results are not looked at.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from autogemm.model.elements import stored
from autogemm.model.problem import Problem
from autogemm.targets.cuda.tools.profiler import NUM_WARM_LAUNCHES
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.gpu.bare import BareGpu, others_placed, placed
from autogemm.targets.cuda.worker.gpu.launching import LoadedKernel, gemm_arguments


def run(job: Job) -> None:
    """All launches, one GEMM after the other."""
    problem = job.problem
    gpu = BareGpu(job.device_index)
    generator = np.random.default_rng(1)
    a, b, c = (
        placed(gpu, stored(generator.uniform(-1.0, 1.0, shape), element), ld, element)
        for shape, ld, element in zip(
            stacked_shapes(problem),
            (problem.lda, problem.ldb, problem.ldc),
            (problem.dtype.ab, problem.dtype.b, problem.dtype.c),
            strict=True,
        )
    )
    kernel = LoadedKernel(gpu, job.candidate)
    others = others_placed(gpu, job.candidate.plan, problem)
    places = {"A": a, "B": b, "C": c, **others}
    factors = (problem.alpha, problem.beta)
    arguments = gemm_arguments(job.candidate.plan, problem, factors, places)
    for _ in range(NUM_WARM_LAUNCHES + 1):
        kernel.queue(arguments)
    gpu.runtime.deviceSynchronize()


def stacked_shapes(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Rows and columns of A, B and C with all products' matrices in one."""
    columns = (problem.a_shape[1], problem.b_shape[1], problem.n)
    a, b, c = zip(problem.stacked_rows, columns, strict=True)
    return (a, b, c)


def main(path: str) -> None:
    """Run the job of a pickled file."""
    job: Any = pickle.loads(Path(path).read_bytes())
    run(job)


if __name__ == "__main__":
    main(sys.argv[1])
