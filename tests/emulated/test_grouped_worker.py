"""Groups of rows in the CUDA worker, run on the CPU: references, guards, baselines."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_cuda_worker_on_cpu import OPTIONS

from autogemm.model.config import Config
from autogemm.model.groups import Groups
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.targets.cuda import CudaTarget

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

KERNEL = """
extern "C" int is_grouped = 1;
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           int groups, const int *offsets) {
    for (long g = 0; g < GROUPS; ++g) {
        for (long m = offsets[g]; m < END; ++m) {
            for (long n = 0; n < N; ++n) {
                float sum = 0;
                for (long k = 0; k < K; ++k) {
                    sum = fmaf(A[m * lda + k], B[(OF * N + n) * ldb + k], sum);
                }
                float &c = C[m * ldc + n];
                c = alpha * sum + (beta != 0 ? beta * c : 0.0f);
            }
        }
    }
    return 0;
}
"""
RIGHT = {"GROUPS": "groups", "END": "offsets[g + 1]", "OF": "g"}
# Empty groups, a short one, and rows of none.
UNEVEN = Problem(
    *(29, 17, 33, Layout.NT),
    ldc=19,
    alpha=1.5,
    beta=0.5,
    groups=Groups.parse("0,9,0,1,16"),
)
WRONG = {
    "the last group left out": {"GROUPS": "groups - 1"},
    "the last row of a group left out": {"END": "offsets[g + 1] - (g == 1)"},
    "B of the first group": {"OF": "0"},
    "B of the next group": {"OF": "(g + 1 < groups ? g + 1 : g)"},
}
ONE_MORE = {"END": "offsets[g + 1] + (g + 1 == groups)"}


def candidate(problem: Problem, **edits: str) -> Candidate:
    text = KERNEL
    for name, formula in (RIGHT | edits).items():
        text = text.replace(name, formula)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    launch = Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0)
    return Candidate(source, LaunchPlan((launch,), grouped=True), compiled)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CudaTarget]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).with_name("cuda_on_cpu")))
        patch.setenv("CUDA_ON_CPU_FOLDER", str(tmp_path_factory.mktemp("built")))
        target = CudaTarget()
        yield target
        target.close()


def measured(target: CudaTarget, one: Candidate) -> Outcome:
    return target.measure(one, None)


def test_every_group_is_compared_and_rows_of_none_are_watched(target: CudaTarget) -> None:
    target.prepare(UNEVEN, OPTIONS)
    right = measured(target, candidate(UNEVEN))
    assert (right.status, right.reason) == (Status.OK, "")
    for name, edits in WRONG.items():
        wrong = measured(target, candidate(UNEVEN, **edits))
        assert wrong.status is Status.WRONG_RESULT, name
    # On a CPU half of a NaN has the bits of the NaN.
    written = replace(UNEVEN, beta=0.0)
    target.prepare(written, OPTIONS)
    assert "outside C" in measured(target, candidate(written, **ONE_MORE)).reason


def test_loops_of_calls_for_each_group_compete(target: CudaTarget) -> None:
    target.prepare(UNEVEN, OPTIONS)
    finals = target.finals([candidate(UNEVEN)], 2, 0)
    assert finals.disqualified == ()
    names = {finals.baseline.name, *(one.name for one in finals.calls)}
    at_once = "cuBLAS GemmGroupedBatchedEx"
    assert {"cuBLAS SGEMM, looped", "cuBLAS GemmEx, looped", at_once} <= names
    assert all(name.endswith(", looped") for name in names - {at_once})


def test_a_call_for_all_groups_that_leaves_one_out_is_no_baseline(target: CudaTarget) -> None:
    problem = Problem(29, 17, 93, Layout.NT, groups=UNEVEN.groups)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], 2, 0)
    wrong = [one for one in finals.calls if one.name == "cuBLAS GemmGroupedBatchedEx"]
    assert [one.status for one in wrong] == [Status.WRONG_RESULT]


def test_one_group_that_takes_all_is_the_plain_product(target: CudaTarget) -> None:
    problem = replace(UNEVEN, groups=Groups.parse("0,29,0"))
    target.prepare(problem, OPTIONS)
    assert measured(target, candidate(problem)).status is Status.OK
    assert problem.flops == replace(problem, groups=Groups()).flops
