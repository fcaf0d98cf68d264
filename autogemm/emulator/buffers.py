"""The buffers of a run, from its inputs."""

import numpy as np

from autogemm.emulator.exchange import Buffer
from autogemm.model.elements import arrays_of_groups
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem
from autogemm.reference import Inputs, with_near_rows


def buffers_of(
    inputs: Inputs, problem: Problem, plan: LaunchPlan, misalign_bytes: int = 0
) -> list[Buffer]:
    """Return A, B, C, the workspace and a family's own arrays for one run.

    The workspace is zero, as at its allocation.
    """
    workspace = np.zeros(-(-plan.workspace_bytes // 4), np.float32)
    has_old_c = problem.reads_c
    near = with_near_rows(problem)
    a, b, c = zip(problem.own_rows, problem.batch_rows, strict=True)
    # Rows of C that belong to no group are nothing of the kernel's.
    counted = plan.masked and not problem.divides_k
    if counted:
        c = (0, problem.m // problem.groups.count)
    elif plan.grouped:
        c = (problem.used_rows, problem.m)
    off = misalign_bytes
    return [
        Buffer(inputs.a, problem.a_shape[1], near.lda, True, off, problem.lda, *a),
        Buffer(inputs.b, problem.b_shape[1], near.ldb, True, off, problem.ldb, *b),
        Buffer(inputs.c, problem.n, near.ldc, has_old_c, off, problem.ldc, *c, counted),
        Buffer(workspace, 0, 0, False),
        *(
            Buffer(extra, extra.size, extra.size, not of_plan.is_output)
            for extra, of_plan in zip(inputs.extras, plan.arrays, strict=True)
        ),
        *(Buffer(one, one.size, one.size, True) for one in arrays_of_groups(problem).values()),
    ]
