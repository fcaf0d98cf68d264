"""Runs one candidate a few times, with nothing else on the card, for a profiler to watch.

``python -m autogemm.targets.cuda.profiled JOB``: the last run is the one to be profiled. Inputs are
random reals; results are not looked at.
"""

import ctypes
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np

from autogemm.elements import stored
from autogemm.targets.cuda.launching import Arguments, LoadedKernel
from autogemm.targets.cuda.profiler import NUM_WARM_LAUNCHES
from autogemm.targets.cuda.sanitized import BareCard, placed
from autogemm.targets.cuda.sanitizer import Job


def run(job: Job) -> None:
    """All launches, one GEMM after the other."""
    problem = job.problem
    card = BareCard(job.device_index)
    generator = np.random.default_rng(1)
    a, b, c = (
        placed(card, stored(generator.uniform(-1.0, 1.0, shape), element), ld, element)
        for shape, ld, element in (
            (problem.a_shape, problem.lda, problem.dtype.ab),
            (problem.b_shape, problem.ldb, problem.dtype.ab),
            ((problem.m, problem.n), problem.ldc, problem.dtype.c),
        )
    )
    workspace: list[ctypes.c_void_p] = []
    if num_bytes := job.candidate.plan.workspace_bytes:
        address = card.allocate(num_bytes)
        card.write(address, np.zeros(num_bytes, np.uint8))
        workspace = [ctypes.c_void_p(address)]
    kernel = LoadedKernel(card, job.candidate)
    arguments = Arguments(
        *(ctypes.c_int(extent) for extent in (problem.m, problem.n, problem.k)),
        ctypes.c_float(problem.alpha),
        *(ctypes.c_void_p(a), ctypes.c_int(problem.lda)),
        *(ctypes.c_void_p(b), ctypes.c_int(problem.ldb)),
        ctypes.c_float(problem.beta),
        *(ctypes.c_void_p(c), ctypes.c_int(problem.ldc)),
        *workspace,
    )
    for _ in range(NUM_WARM_LAUNCHES + 1):
        kernel.queue(arguments)
    card.runtime.deviceSynchronize()


def main(path: str) -> None:
    """Run the job of a pickled file."""
    job: Any = pickle.loads(Path(path).read_bytes())
    run(job)


if __name__ == "__main__":
    main(sys.argv[1])
