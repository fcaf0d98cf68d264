"""Runs one candidate once, with nothing else on the GPU, for compute-sanitizer to watch.

``python -m autogemm.targets.cuda.worker.sanitized JOB`` prints ``right`` or ``wrong: ...``.
Each matrix is an allocation of its own of exactly its size, so that one element beyond it is out of
bounds; and nothing is written to what a kernel must not read: C at beta = 0, unless TMA writes it,
which initcheck does not see: then it holds NaN.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

from autogemm.model.elements import arrays_of_groups, used_rows
from autogemm.model.problem import Problem
from autogemm.reference import Data, Inputs, compare, make_inputs
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.gpu.bare import BareGpu
from autogemm.targets.cuda.worker.gpu.launching import LoadedKernel, gemm_arguments
from autogemm.targets.cuda.worker.problem.inputs import exact_scalar


def run(job: Job) -> str:
    """``right``, or what is wrong."""
    problem, plan = with_exact_factors(job.problem), job.candidate.plan
    inputs = make_inputs(problem, plan, Data.INTEGERS, seed=1)
    gpu = BareGpu(job.device_index)
    must_not_read_c = not problem.reads_c and not job.writes_c_by_tma
    places = {
        "A": gpu.place(inputs.a),
        "B": gpu.place(inputs.b),
        "C": gpu.allocate(inputs.c.nbytes) if must_not_read_c else gpu.place(inputs.c),
        "workspace": gpu.place_workspace(plan),
    }
    for extra, values in zip(plan.arrays, inputs.extras, strict=True):
        places[extra.argument.name] = gpu.place(values)
    for name, rows in arrays_of_groups(problem).items():
        places[name] = gpu.place(rows)
    gpu.free_guards()
    kernel = LoadedKernel(gpu, job.candidate)
    kernel.queue(gemm_arguments(plan, problem, (problem.alpha, problem.beta), places))
    gpu.runtime.deviceSynchronize()
    complaint = complaint_of(gpu, places["C"], problem, inputs)
    if not complaint and inputs.output is not None:
        (second,) = (extra.argument.name for extra in plan.arrays if extra.is_output)
        complaint = complaint_of(gpu, places[second], problem.of_output, inputs.of_output)
    return f"wrong: {complaint}" if complaint else "right"


def with_exact_factors(problem: Problem) -> Problem:
    """The problem with factors by which small integers stay exact; an epilogue keeps its own."""
    if not problem.epilogue.is_plain:
        return problem
    return problem.with_factors(exact_scalar(problem.alpha, 2.0), exact_scalar(problem.beta, 0.5))


def complaint_of(gpu: BareGpu, address: int, problem: Problem, inputs: Inputs) -> str:
    """The difference of C from what it must be; empty if there is none.

    Memory that may be unwritten is not read, because initcheck would report it.
    """
    c = inputs.c.copy()
    for product in range(problem.num_products):
        for row in used_rows(problem):
            first = (product * problem.batch_rows[2] + int(row)) * problem.ldc
            gpu.read(address + first * c.itemsize, c[first : first + problem.n])
    found = compare(problem, inputs, c)
    if found.first_wrong is None:
        return found.complaint
    _, row, column = found.first_wrong
    return (
        f"{found.wrong_elements} of {inputs.expected.size} elements, first C[{row}, {column}]: "
        f"got {found.got:g}, expected {found.expected:g}"
    )


def main(path: str) -> None:
    """Print the line that the parent looks for."""
    job: Any = pickle.loads(Path(path).read_bytes())
    print(run(job), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
