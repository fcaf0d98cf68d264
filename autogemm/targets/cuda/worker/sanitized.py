"""Runs one candidate once, with nothing else on the GPU, for compute-sanitizer to watch.

``python -m autogemm.targets.cuda.worker.sanitized JOB`` prints ``right`` or ``wrong: ...``.
Each matrix is an allocation of its own of exactly its size, so that one element beyond it is out of
bounds; and nothing is written to what a kernel must not read: C at beta = 0, unless TMA writes it,
which initcheck does not see: then it holds NaN.
"""

import pickle
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from autogemm.model.elements import Floats, loaded, not_a_number, rounded, stored
from autogemm.model.problem import Problem
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.gpu.bare import BareGpu, others_placed, placed
from autogemm.targets.cuda.worker.gpu.launching import LoadedKernel, gemm_arguments
from autogemm.targets.cuda.worker.problem.inputs import exact_scalar


def run(job: Job) -> str:
    """``right``, or what is wrong."""
    problem = job.problem
    gpu = BareGpu(job.device_index)
    generator = np.random.default_rng(1)
    a, b, c = (integers(generator, shape) for shape in stacked_shapes(problem))
    alpha, beta = exact_scalar(problem.alpha, 2.0), exact_scalar(problem.beta, 0.5)
    dtype = problem.dtype
    a_address = placed(gpu, stored(a, dtype.ab), problem.lda, dtype.ab)
    b_address = placed(gpu, stored(b, dtype.ab), problem.ldb, dtype.ab)
    got = stored(c, dtype.c)
    before = got
    if beta == 0 and job.writes_c_by_tma:
        before = not_a_number(got.size, dtype.c).reshape(got.shape)
    blank = beta == 0 and not job.writes_c_by_tma
    c_address = placed(gpu, before, problem.ldc, dtype.c, blank=blank)
    others = others_placed(gpu, job.candidate.plan, problem)
    places = {"A": a_address, "B": b_address, "C": c_address, **others}
    gpu.free_guards()
    kernel = LoadedKernel(gpu, job.candidate)
    kernel.queue(gemm_arguments(job.candidate.plan, problem, (alpha, beta), places))
    gpu.runtime.deviceSynchronize()
    expected = reference(problem, a, b, c, (alpha, beta))
    gpu.read_rows(c_address, got, problem.ldc)
    result = loaded(got, dtype.c)
    # Memory between products, and rows of no group, do not belong to the kernel.
    own = np.arange(len(result)) % problem.batch_rows[2] < problem.used_rows
    wrong = np.argwhere((result != expected) & own[:, None])
    if not len(wrong):
        return "right"
    row, col = wrong[0]
    return (
        f"wrong: {len(wrong)} of {c.size} elements, first C[{row}, {col}]: "
        f"got {result[row, col]:g}, expected {expected[row, col]:g}"
    )


def integers(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Return integers so small that every sum is exact, and never 0."""
    return generator.choice(np.array([-3, -2, -1, 1, 2, 3], np.float32), shape)


def reference(
    problem: Problem, a: Floats, b: Floats, c: Floats, scalars: tuple[float, float]
) -> Floats:
    """alpha op(A) op(B) + beta C in float64, exact for these integers, then rounded to C's type.

    For a batch, the matrices of all products are stacked as they lie in memory, for groups those of
    B; so is the result.
    """
    alpha, beta = scalars
    found = beta * c.astype(np.float64)
    for number, (first, end) in enumerate(pairwise(problem.groups.offsets(problem.m))):
        from_b = number * problem.b_shape[0]
        of_b = b[from_b : from_b + problem.b_shape[0]].astype(np.float64)
        right = of_b.T if problem.layout.trans_b else of_b
        found[first:end] += alpha * (a[first:end].astype(np.float64) @ right)
    if not problem.groups.is_none:
        return rounded(found, problem.dtype.c)
    for number in range(problem.batch.count):
        from_a, from_b, from_c = (number * rows for rows in problem.batch_rows)
        of_a = a[from_a : from_a + problem.a_shape[0]].astype(np.float64)
        of_b = b[from_b : from_b + problem.b_shape[0]].astype(np.float64)
        left = of_a.T if problem.layout.trans_a else of_a
        right = of_b.T if problem.layout.trans_b else of_b
        found[from_c : from_c + problem.m] += alpha * (left @ right)
    return rounded(found, problem.dtype.c)


def stacked_shapes(problem: Problem) -> tuple[tuple[int, int], ...]:
    """Rows and columns of A, B and C with all products' matrices in one."""
    columns = (problem.a_shape[1], problem.b_shape[1], problem.n)
    a, b, c = zip(problem.stacked_rows, columns, strict=True)
    return (a, b, c)


def main(path: str) -> None:
    """Print the line that the parent looks for."""
    job: Any = pickle.loads(Path(path).read_bytes())
    print(run(job), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
