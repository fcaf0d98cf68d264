"""Problems with an epilogue in the CUDA worker, run on the CPU: references, bounds, baselines."""

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest
from test_cuda_worker_on_cpu import OPTIONS

from autogemm.model.config import Config
from autogemm.model.epilogue import Epilogue
from autogemm.model.kernel import Candidate, CompiledKernel, Extra, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.space import epilogue_rules, output_rules
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.sanitized import run

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

KERNEL = """
extern "C" int num_arrays = 3;
static float relu(float x) { return x < 0 ? 0 : x; }
static float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.707106781f)); }
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc,
                           float *bias, float *scale, float *rest) {
    BEFORE
    for (long m = 0; m < M; ++m) {
        for (long n = 0; n < N; ++n) {
            float acc = 0;
            for (long k = 0; k < K DEPTH; ++k) {
                acc = fmaf(A[m * lda + k], B[k * ldb + n], acc);
            }
            float &c = C[m * ldc + n];
            c = FORMULA;
        }
    }
    return 0;
}
"""
TEXT = "gelu(alpha * acc + bias[n]) * scale[m] + rest[m, n] + beta * c[m, n]"
PROBLEM = Problem(40, 31, 17, ldc=36, alpha=1.5, beta=0.5, epilogue=Epilogue(TEXT))
FORMULA = "gelu(alpha * acc + bias[n]) * scale[m] + rest[m * N + n] + beta * c"


GATED = (
    KERNEL.replace(
        "acc = fmaf(A[m * lda + k], B[k * ldb + n], acc);",
        """acc = fmaf(A[m * lda + k], B[k * ldb + FIRST], acc);
                second = fmaf(A[m * lda + k], B[k * ldb + FIRST + APART], second);""",
    )
    .replace("float acc = 0;", "float acc = 0, second = 0;")
    .replace("num_arrays = 3", "num_arrays = 1")
)
GATED = GATED.replace(", float *scale, float *rest", "")


SECOND = (
    KERNEL.replace("float *rest)", "float *aux)")
    .replace("num_arrays = 3", "num_arrays = 2")
    .replace("float *scale, ", "")
    .replace("float &c =", "WRITE\n            float &c =")
)


def candidate(
    problem: Problem,
    formula: str = FORMULA,
    depth: str = "",
    before: str = "",
    kernel: str = KERNEL,
) -> Candidate:
    text = kernel.replace("FORMULA", formula).replace("DEPTH", depth).replace("BEFORE", before)
    source = KernelSource("plain", "", Config.of("plain", {}), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    counts = (problem.n, problem.m, problem.m * problem.n)
    extras = tuple(
        Extra(rule.argument, count, rule.neutral, is_input=True)
        for rule, count in zip(epilogue_rules(problem), counts, strict=False)
    )
    extras += tuple(
        Extra(rule.argument, counts[2], 0.0, is_output=True) for rule in output_rules(problem)
    )
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0),), extras=extras)
    return Candidate(source, plan, compiled)


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


def measured(target: CudaTarget, one: Candidate) -> Outcome:
    return target.measure(one, None)


def test_a_right_kernel_passes_and_wrong_ones_do_not(target: CudaTarget) -> None:
    target.prepare(PROBLEM, OPTIONS)
    assert target.baseline_us is not None and target.baseline_us > 0
    right = measured(target, candidate(PROBLEM))
    assert (right.status, right.reason) == (Status.OK, "")
    assert right.verification is not None and 0 < right.verification.max_error_ratio < 0.25
    for wrong in (
        candidate(PROBLEM, depth="- 1"),
        candidate(PROBLEM, FORMULA.replace("bias[n]", "bias[n + (n == N - 1)]")),
        candidate(PROBLEM, FORMULA.replace("scale[m]", "scale[n]")),
        candidate(PROBLEM, FORMULA.replace("rest[m * N + n]", "rest[m * ldc + n]")),
        candidate(PROBLEM, FORMULA.replace(" + beta * c", "")),
        candidate(PROBLEM, "1.001f * (" + FORMULA + ")"),
        candidate(PROBLEM, before="scale[0] += 1;"),
        candidate(PROBLEM, before="bias[N] = 1;"),
    ):
        assert measured(target, wrong).status is Status.WRONG_RESULT, wrong.source.text


def test_a_right_kernel_is_right_to_compute_sanitizer_too(target: CudaTarget) -> None:
    def watched(problem: Problem, one: Candidate) -> str:
        return run(Job(one, problem, 0))

    assert watched(PROBLEM, candidate(PROBLEM)) == "right"
    late = FORMULA.replace("bias[n]", "bias[n + (n == N - 1)]")
    assert "elements, first C[0, 30]: " in watched(PROBLEM, candidate(PROBLEM, late))
    gated = Problem(20, 24, 17, epilogue=Epilogue("gelu(acc[n] + bias[n]) * acc[n + N]"))
    kernel = GATED.replace("FIRST", "n").replace("APART", "N")
    formula = "gelu(acc + bias[n]) * second"
    assert watched(gated, candidate(gated, formula, kernel=kernel)) == "right"
    wrong = candidate(gated, "gelu(second + bias[n]) * acc", kernel=kernel)
    assert watched(gated, wrong).startswith("wrong: ")
    both = Problem(8, 7, 17, ldc=9, epilogue=Epilogue("aux[m, n] = acc + bias[n]; relu(aux)"))
    for write, verdict in (("bias[n]", "right"), ("0", "wrong: ")):
        kernel = SECOND.replace("WRITE", f"aux[m * N + n] = acc + {write};")
        one = candidate(both, "relu(acc + bias[n])", kernel=kernel)
        assert watched(both, one).startswith(verdict)


def test_finals_compare_with_a_call_that_does_the_same(target: CudaTarget) -> None:
    target.prepare(PROBLEM, OPTIONS)
    finals = target.finals([candidate(PROBLEM)], 2, 0)
    assert finals.baseline.name.endswith(" + pointwise kernel")
    assert finals.baseline.verification is not None
    assert finals.disqualified == ()


@pytest.mark.parametrize(
    ("text", "first", "apart"),
    [
        ("gelu(acc[n] + bias[n]) * acc[n + N]", "n", "N"),
        ("gelu(acc[2 * n] + bias[n]) * acc[2 * n + 1]", "2 * n", "1"),
    ],
)
def test_two_columns_of_the_product_make_one_of_c(
    target: CudaTarget, text: str, first: str, apart: str
) -> None:
    problem = Problem(20, 24, 17, ldb=50, epilogue=Epilogue(text))
    target.prepare(problem, OPTIONS)
    kernel = GATED.replace("FIRST", first).replace("APART", apart)
    formula = "gelu(acc + bias[n]) * second"
    right = candidate(problem, formula, kernel=kernel)
    assert (measured(target, right).status, measured(target, right).reason) == (Status.OK, "")
    for wrong in ("gelu(second + bias[n]) * acc", "gelu(acc + bias[n]) * acc"):
        outcome = measured(target, candidate(problem, wrong, kernel=kernel))
        assert outcome.status is Status.WRONG_RESULT
    # The baseline, a product of all columns and a kernel behind it, was right.
    finals = target.finals([right], 2, 0)
    assert finals.baseline.name.endswith(" + pointwise kernel")


def test_a_second_output_is_checked_as_c_is(target: CudaTarget) -> None:
    text = "aux[m, n] = acc + bias[n]; gelu(aux)"
    problem = Problem(40, 31, 17, ldc=36, epilogue=Epilogue(text))
    target.prepare(problem, OPTIONS)

    def with_write(write: str, before: str = "") -> Candidate:
        kernel = SECOND.replace("WRITE", write)
        return candidate(problem, "gelu(acc + bias[n])", before=before, kernel=kernel)

    right = with_write("aux[m * N + n] = acc + bias[n];")
    assert (measured(target, right).status, measured(target, right).reason) == (Status.OK, "")
    for write, reason in {
        # Left out in the last column; apart as rows of C are; what C is; not rounded as FP32 is.
        "if (n + 1 < N) aux[m * N + n] = acc + bias[n];": "worst aux[",
        "aux[m * ldc + n] = acc + bias[n];": "aux",
        "aux[m * N + n] = gelu(acc + bias[n]);": "worst aux[",
        "aux[m * N + n] = 1.001f * (acc + bias[n]);": "worst aux[",
        "aux[m * N + n] = acc + bias[n]; aux[-1] = 0;": "outside aux",
    }.items():
        outcome = measured(target, with_write(write))
        assert outcome.status is Status.WRONG_RESULT
        assert reason in outcome.reason, (write, outcome.reason)
    # The baseline writes it too: a product, and a kernel behind it.
    finals = target.finals([right], 2, 0)
    assert finals.baseline.name.endswith(" + pointwise kernel")
    assert finals.disqualified == ()


BEYOND = {
    "acc / 0": "acc / 0.0f",
    "1 / acc": "1.0f / acc",
    "acc * 1e38 * 1e38 / 1e38": "acc * 1e38f * 1e38f / 1e38f",
    "exp(acc * 300)": "expf(acc * 300.0f)",
    "1 / exp(acc * 300)": "1.0f / expf(acc * 300.0f)",
}
PLAIN = KERNEL.replace(
    ",\n                           float *bias, float *scale, float *rest)", ")"
).replace("num_arrays = 3", "num_arrays = 0")


@pytest.mark.parametrize("text", BEYOND)
def test_what_is_too_large_is_infinite(target: CudaTarget, text: str) -> None:
    problem = Problem(20, 24, 17, epilogue=Epilogue(text))
    target.prepare(problem, OPTIONS)
    right = measured(target, candidate(problem, BEYOND[text], kernel=PLAIN))
    assert (right.status, right.reason) == (Status.OK, "")
    finite = "m ? 3.4e38f : " + BEYOND[text]
    for formula in (f"-({BEYOND[text]})", "c", "0.0f / 0.0f", finite):
        wrong = measured(target, candidate(problem, formula, kernel=PLAIN))
        assert wrong.status is Status.WRONG_RESULT, formula
