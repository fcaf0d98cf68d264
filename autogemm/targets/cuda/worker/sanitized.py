"""Runs one candidate once, with nothing else on the card, for compute-sanitizer to watch.

``python -m autogemm.targets.cuda.worker.sanitized JOB`` prints ``right`` or ``wrong: ...``.
Each matrix is an allocation of its own of exactly its size, so that one element beyond it is out of
bounds; and nothing is written to what a kernel must not read: C at beta = 0, unless TMA writes it,
which initcheck does not see: then it holds NaN.
"""

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from autogemm.model.dtypes import Element
from autogemm.model.elements import (
    Floats,
    Stored,
    loaded,
    neutral_array,
    not_a_number,
    rounded,
    stored,
)
from autogemm.model.problem import Problem
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.inputs import exact_scalar
from autogemm.targets.cuda.worker.launching import LoadedKernel, gemm_arguments

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
# Without a gap one allocation may begin where another ends, and a step across is not seen.
GUARD_BYTES = 2**16


class BareCard:
    """What launching needs of a card, without helpers, memory pool and stream of its own."""

    def __init__(self, device_index: int) -> None:
        from cupy.cuda import driver, runtime

        self.driver, self.runtime = driver, runtime
        self.cuda_errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
        self.stream = SimpleNamespace(ptr=0)
        runtime.setDevice(device_index)
        runtime.memGetInfo()  # makes the context
        self._guards = [int(runtime.malloc(GUARD_BYTES))]

    def allocate(self, num_bytes: int) -> int:
        """The address of exactly so many bytes, with a guard behind them."""
        address = int(self.runtime.malloc(num_bytes))
        self._guards.append(int(self.runtime.malloc(GUARD_BYTES)))
        return address

    def free_guards(self) -> None:
        """What is around each allocation is nobody's from now on."""
        for guard in self._guards:
            self.runtime.free(guard)

    def write(self, address: int, values: Stored) -> None:
        """Copy to the card."""
        self.runtime.memcpy(address, values.ctypes.data, values.nbytes, HOST_TO_DEVICE)

    def read_rows(self, address: int, rows: Stored, ld: int) -> None:
        """Copy from a matrix whose rows lie ``ld`` apart; what is between is not touched."""
        for number, row in enumerate(rows):
            source = address + rows.itemsize * number * ld
            self.runtime.memcpy(row.ctypes.data, source, row.nbytes, DEVICE_TO_HOST)


def run(job: Job) -> str:
    """``right``, or what is wrong."""
    problem = job.problem
    card = BareCard(job.device_index)
    generator = np.random.default_rng(1)
    a, b = (integers(generator, shape) for shape in (problem.a_shape, problem.b_shape))
    c = integers(generator, (problem.m, problem.n))
    alpha, beta = exact_scalar(problem.alpha, 2.0), exact_scalar(problem.beta, 0.5)
    dtype = problem.dtype
    a_address = placed(card, stored(a, dtype.ab), problem.lda, dtype.ab)
    b_address = placed(card, stored(b, dtype.ab), problem.ldb, dtype.ab)
    got = stored(c, dtype.c)
    before = got
    if beta == 0 and job.writes_c_by_tma:
        before = not_a_number(got.size, dtype.c).reshape(got.shape)
    blank = beta == 0 and not job.writes_c_by_tma
    c_address = placed(card, before, problem.ldc, dtype.c, blank=blank)
    places = {"A": a_address, "B": b_address, "C": c_address, **others_placed(card, job)}
    card.free_guards()
    kernel = LoadedKernel(card, job.candidate)
    kernel.queue(gemm_arguments(job.candidate.plan, problem, (alpha, beta), places))
    card.runtime.deviceSynchronize()
    expected = reference(problem, a, b, c, (alpha, beta))
    card.read_rows(c_address, got, problem.ldc)
    result = loaded(got, dtype.c)
    wrong = np.argwhere(result != expected)
    if not len(wrong):
        return "right"
    row, col = wrong[0]
    return (
        f"wrong: {len(wrong)} of {c.size} elements, first C[{row}, {col}]: "
        f"got {result[row, col]:g}, expected {expected[row, col]:g}"
    )


def others_placed(card: BareCard, job: Job) -> dict[str, int]:
    """Addresses of the workspace, zero once as kernels may expect of their counters, and of a
    family's own arrays; by name, 0 for no workspace.
    """

    def place(values: Stored) -> int:
        address = card.allocate(values.nbytes)
        card.write(address, values)
        return address

    plan = job.candidate.plan
    workspace = np.zeros(plan.workspace_bytes, np.uint8)
    return {
        "workspace": place(workspace) if workspace.size else 0,
        **{
            extra.argument.name: place(neutral_array(extra, job.problem.dtype))
            for extra in plan.arrays
        },
    }


def integers(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """So small that every sum is exact, and never 0."""
    return generator.choice(np.array([-3, -2, -1, 1, 2, 3], np.float32), shape)


def placed(card: BareCard, rows: Stored, ld: int, element: Element, *, blank: bool = False) -> int:
    """The address of a matrix on the card, NaN between its rows; nothing is written if blank."""
    num_rows, columns = rows.shape
    count = (num_rows - 1) * ld + columns
    address = card.allocate(element.size_bytes * count)
    if not blank:
        spread = not_a_number(num_rows * ld, element).reshape(num_rows, ld)
        spread[:, :columns] = rows
        card.write(address, spread.reshape(-1)[:count])
    return address


def reference(
    problem: Problem, a: Floats, b: Floats, c: Floats, scalars: tuple[float, float]
) -> Floats:
    """alpha op(A) op(B) + beta C in float64, exact for these integers, then rounded to C's type."""
    left = (a.T if problem.layout.trans_a else a).astype(np.float64)
    right = (b.T if problem.layout.trans_b else b).astype(np.float64)
    alpha, beta = scalars
    return rounded(alpha * (left @ right) + beta * c, problem.dtype.c)


def main(path: str) -> None:
    """Print the line that the parent looks for."""
    job: Any = pickle.loads(Path(path).read_bytes())
    print(run(job), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
