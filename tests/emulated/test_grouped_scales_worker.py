"""Scales of blocks where rows belong to groups, in the CUDA worker on the CPU: references, and
calls of cuBLASLt with the same scales, in a loop over groups.
"""

import shutil
from dataclasses import replace

import pytest
from test_block_scales_worker import KERNEL
from test_cuda_worker_on_cpu import OPTIONS
from test_epilogue_worker import candidate, measured, target

from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
# A fixture.
__all__ = ["target"]

GROUPED = (
    KERNEL.replace("num_arrays = 2;", 'num_arrays = 2;\nextern "C" int is_grouped = 1;')
    .replace("float *sa,", "int groups, const int *offsets, float *sa,")
    .replace(
        "(long m = 0; m < M; ++m) {",
        "(long g = 0; g < groups; ++g) for (long m = offsets[g]; m < offsets[g + 1]; ++m) {",
    )
    .replace("B[n * ldb", "B[(g * N + n) * ldb")
)
PRODUCT = "acc * sa[k / 128, m] * sb[g, n / 128, k / 128]"
# Two blocks of columns and three of K, of which the last are partial; a group without rows.
PROBLEM = Problem(
    *(30, 150, 300), Layout.NT, DType.E4M3_F32, groups=Groups.parse("7,0,13,9")
).with_epilogue(Epilogue(PRODUCT))
OF_GROUP = "sa[block * M + m] * sb[(g * 2 + n / 128) * blocks + block]"
WRONG = {
    "scales of the first group": OF_GROUP.replace("g * 2", "0"),
    "scales of the next group": OF_GROUP.replace("g * 2", "(g < 3 ? g + 1 : g) * 2"),
    "groups without the partial block": OF_GROUP.replace("g * 2", "g"),
    "scales of rows of the group alone": OF_GROUP.replace("+ m]", "+ m - offsets[g]]"),
}


def grouped(problem: Problem, scales: str = OF_GROUP, kernel: str = GROUPED) -> Candidate:
    text = kernel.replace("BLOCKS", "blocks").replace("SCALES", scales)
    made = candidate(problem, "acc", kernel=text)
    blocks = -(-problem.k // 128)
    counts = (blocks * problem.m, 4 * 2 * blocks)
    extras = tuple(
        replace(one, count=count) for one, count in zip(made.plan.extras, counts, strict=True)
    )
    masked = problem.groups.masked
    plan = replace(made.plan, extras=extras, grouped=True, masked=masked)
    return replace(made, plan=plan)


def test_each_group_has_scales_of_its_own(target: CudaTarget) -> None:
    target.prepare(PROBLEM, replace(OPTIONS, compares=False))
    right = measured(target, grouped(PROBLEM))
    assert (right.status, right.reason) == (Status.OK, "")
    assert right.verification is not None and right.verification.max_error_ratio < 0.1
    for name, scales in WRONG.items():
        wrong = measured(target, grouped(PROBLEM, scales))
        assert wrong.status is Status.WRONG_RESULT, name


MASKED = GROUPED.replace("m = offsets[g]", "m = M / groups * g").replace(
    "offsets[g + 1]", "M / groups * g + offsets[g]"
)
OF_E5M2 = (
    GROUPED.replace("bits & 0x78", "bits & 0x7c")
    .replace(
        "ldexp(8 + (bits & 7), (bits >> 3 & 15) - 10)",
        "ldexp(4 + (bits & 3), (bits >> 2 & 31) - 17)",
    )
    .replace("ldexp(bits & 7, -9)", "ldexp(bits & 3, -16)")
)
LOOPED = "cuBLASLt proposal 3, looped"


EVEN = replace(PROBLEM, m=32, groups=Groups.parse("8,0,20,4"))
CONVERTED = "conversion to bf16 + cuBLAS GemmEx, looped"


@pytest.mark.parametrize(
    ("problem", "kernel", "name"),
    [
        (EVEN, GROUPED, LOOPED),
        (replace(EVEN, k=512, lda=0, ldb=0), GROUPED, LOOPED),
        (replace(EVEN, m=80, groups=Groups.parse("8,0,20,4 masked")), MASKED, LOOPED),
        (PROBLEM, GROUPED, CONVERTED),
        (replace(PROBLEM, dtype=DType.E5M2_F32), OF_E5M2, CONVERTED),
    ],
    ids=["partial", "whole", "masked", "odd rows", "converted"],
)
def test_loops_of_calls_have_the_same_scales(
    target: CudaTarget, problem: Problem, kernel: str, name: str
) -> None:
    """A call with other scales would be wrong: all that are timed are compared with the reference.
    The first proposal is wrong whatever its scales, and there is none for rows that are no multiple
    of 4.
    """
    target.prepare(problem, OPTIONS)
    finals = target.finals([grouped(problem, kernel=kernel)], 2, 0)
    assert finals.disqualified == ()
    calls = {one.name: one.status for one in finals.calls}
    calls[finals.baseline.name] = Status.OK
    # A right one may be slower than others beside other work.
    assert calls[name] in (Status.OK, Status.TOO_SLOW), calls
    assert [one for one, status in calls.items() if status is Status.WRONG_RESULT] in (
        [],
        [name.replace("cuBLAS GemmEx", "cuBLASLt proposal 1").replace("3", "1")],
    ), calls
