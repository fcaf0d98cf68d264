"""The CUDA worker's own code, run on the CPU with CuPy and cuBLAS simulated (cuda_on_cpu/).

Tests that need a GPU are in tests/gpu; this holds inputs, references, bounds, checks, the
choice of method and the finals to what they promise, on machines that have no GPU.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, CompiledKernel, Extra, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective, Outcome, Status
from autogemm.model.signature import Argument, ArgumentKind, ProblemType
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.worker.backend import BASELINE_INTERVAL
from autogemm.targets.cuda.worker.gpu.timing import MIN_SAMPLES

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

PROBLEM = Problem(40, 31, 17, ldc=36, alpha=1.5, beta=0.5)
# A few hundred additions: far below the time from which events are enough, whatever the machine.
SHORT = Problem(8, 9, 5, alpha=1.5, beta=0.5)
# The simulated GPU runs g++ for what it is given, which takes its time on a busy machine.
OPTIONS = MeasureOptions(deadline_s=200.0)

KERNEL = """
static float tf32(float value) {
    unsigned bits = __float_as_uint(value) & 0xffffe000u;
    memcpy(&value, &bits, 4);
    return value;
}
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const float *A, int lda,
                           const float *B, int ldb, float beta, float *C, int ldc) {
    static int calls = 0;
    ++calls;
    BEFORE
    for (long i = 0; i < M; ++i) {
        for (long j = 0; j < COLUMNS; ++j) {
            float sum = 0;
            for (long k = 0; k < DEPTH; ++k) {
                const float a = TRANS_A ? A[k * lda + i] : A[i * lda + k];
                const float b = TRANS_B ? B[j * ldb + k] : B[k * ldb + j];
                sum = fmaf(ROUND(a), ROUND(b), sum);
            }
            float &c = C[i * ldc + j];
            c = alpha * sum + (beta != 0 ? beta * c : 0.0f);
        }
    }
    AFTER
    return 0;
}
"""
RIGHT = {"BEFORE": "", "AFTER": "", "COLUMNS": "N", "DEPTH": "K", "ROUND": ""}


def candidate(problem: Problem, launch: Launch | None = None, **changes: str) -> Candidate:
    text = KERNEL
    transposed = {
        "TRANS_A": str(int(problem.layout.trans_a)),
        "TRANS_B": str(int(problem.layout.trans_b)),
    }
    for name, value in {**RIGHT, **transposed, **changes}.items():
        text = text.replace(name, value)
    source = KernelSource("plain", "", Config.of("plain", dict(changes)), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    plan = LaunchPlan((launch or Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0),))
    return Candidate(source, plan, compiled)


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


@pytest.fixture
def prepared(target: CudaTarget) -> CudaTarget:
    target.prepare(PROBLEM, OPTIONS)
    return target


def assert_fine(outcome: Outcome) -> None:
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.verification is not None
    # Far inside: the bound must not be one that a right kernel may break.
    assert 0 < outcome.verification.max_error_ratio < 0.25
    assert outcome.verification.error < 1e-5


def test_the_baseline_is_timed_again_beside_a_new_best(prepared: CudaTarget) -> None:
    # On the simulated GPU no two measurements are the same.
    first_us = prepared.baseline_us
    best = prepared.measure(candidate(PROBLEM), None)
    assert best.time_us is not None
    beside_us = prepared.baseline_us
    assert beside_us != first_us
    no_best = [best.time_us / 1000] * (BASELINE_INTERVAL - 1)
    for best_us in no_best:
        prepared.measure(candidate(PROBLEM), best_us)
        assert prepared.baseline_us == beside_us
    prepared.measure(candidate(PROBLEM), no_best[0])
    assert prepared.baseline_us != beside_us


def test_what_is_too_large_is_infinite(target: CudaTarget) -> None:
    """Of sums of many products and of few; the baseline's results are infinite, too."""
    large = replace(PROBLEM, alpha=3e38, beta=0.0)
    target.prepare(large, OPTIONS)
    outcome = target.measure(candidate(large), None)
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    # The largest number in place of infinity.
    wrong = candidate(large, AFTER="for (long i = 0; i < N; ++i) C[i] = fminf(C[i], 3.4e38f);")
    assert target.measure(wrong, None).status is Status.WRONG_RESULT


def test_arrays_of_a_familys_own_are_neutral_and_have_guards(prepared: CudaTarget) -> None:
    bias = Argument("bias", ArgumentKind.EXTRA, "", ProblemType.C, is_array=True, is_const=True)

    def measured(used: str) -> Outcome:
        plain = candidate(PROBLEM, AFTER="C[0] += " + used)
        text = plain.source.text.replace("int ldc)", "int ldc, const float* bias)")
        assert "bias)" in text
        assert plain.compiled is not None
        cubin = b'C++extern "C" int num_arrays = 1;\n' + text.encode()
        compiled = replace(plain.compiled, cubin=cubin)
        plan = replace(plain.plan, extras=(Extra(bias, PROBLEM.n, 0.0),))
        return prepared.measure(replace(plain, plan=plan, compiled=compiled), None)

    assert_fine(measured(f"bias[0] + bias[{PROBLEM.n - 1}];"))
    for beyond in (-1, PROBLEM.n):
        assert measured(f"bias[{beyond}];").status is Status.WRONG_RESULT


def test_the_error_of_the_baseline_is_that_of_the_finals(prepared: CudaTarget) -> None:
    # The error on reals, against float64: not zero, and far from what a wrong result has.
    assert prepared.baseline_error is not None
    assert 0 < prepared.baseline_error < 1e-6
    checked = prepared.finals([candidate(PROBLEM)], 2, 0).baseline.verification
    assert checked is not None
    assert checked.error == prepared.baseline_error


def test_device_and_environment_are_read_from_the_gpu(target: CudaTarget) -> None:
    assert (target.device.name, target.device.arch, target.device.num_sms) == ("a CPU", 90, 132)
    assert target.device.max_smem_per_block_bytes == 227 * 1024
    environment = target.environment
    assert (environment.driver, environment.cuda_runtime) == ("13.0", "12.9")
    assert (environment.cublas, environment.cupy) == ("13.0.0", "0-on-cpu")


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize(
    "problem",
    [
        Problem(1, 1, 1),
        Problem(37, 21, 50, alpha=-0.3, beta=0.7),
        Problem(30, 20, 40, lda=51, ldb=52, ldc=53, alpha=2.0, beta=-1.0),
        # Deeper than a tile: the reference is summed over several.
        Problem(3, 2, 9000, beta=1.0),
    ],
    ids=lambda problem: problem.label.replace(" ", "-"),
)
def test_a_right_kernel_passes(target: CudaTarget, problem: Problem, layout: Layout) -> None:
    packed = problem.lda == problem.a_shape[1]
    lda, ldb = (0, 0) if packed else (problem.lda, problem.ldb)
    problem = replace(problem, layout=layout, lda=lda, ldb=ldb)
    target.prepare(problem, OPTIONS)
    assert_fine(target.measure(candidate(problem), None))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"DEPTH": "K - 1"}, "1240 of 1240 elements are wrong on integer inputs"),
        ({"COLUMNS": "N - 1"}, ", 30]: got"),
        ({"AFTER": "C[(M - 2) * ldc + N] = 1;"}, "1 elements outside C"),
        ({"AFTER": "C[(M - 1) * ldc + N + 9] = 1;"}, "1 elements outside C"),
        ({"AFTER": "C[-1] = 1;"}, "1 elements outside C"),
        ({"BEFORE": "if (calls > 1) alpha *= 1.001f;"}, "on real inputs"),
        ({"ROUND": "tf32"}, "on real inputs"),
        ({"AFTER": "C[0] = NAN;"}, "1 of 1240 elements are wrong"),
        ({"AFTER": "const_cast<float *>(A)[0] = 1;"}, "writes to its inputs"),
        ({"AFTER": "const_cast<float *>(B)[-1] = 1;"}, "writes to its inputs"),
    ],
)
def test_a_wrong_kernel_is_found_and_described(
    prepared: CudaTarget, changes: dict[str, str], says: str
) -> None:
    outcome = prepared.measure(candidate(PROBLEM, **changes), None)
    assert outcome.status is Status.WRONG_RESULT
    assert outcome.measurement is None
    assert says in outcome.reason
    assert_fine(prepared.measure(candidate(PROBLEM), None))


# Numbers and sums have fewer bits than FP32: rounded to nearest, or made of two BF16 each.
COARSE = """
static float to_bits(float value, int num_bits) {
    unsigned bits = __float_as_uint(value), dropped = 24 - num_bits;
    bits = (bits + (1u << (dropped - 1))) >> dropped << dropped;
    memcpy(&value, &bits, 4);
    return value;
}
static float sum20(float a, float b, float sum) { return to_bits(fmaf(a, b, sum), 20); }
static float bf16x3(float a, float b, float sum) {
    const float x = to_bits(a, 8), y = to_bits(b, 8);
    const float rest_x = to_bits(a - x, 8), rest_y = to_bits(b - y, 8);
    return fmaf(x, y, fmaf(x, rest_y, fmaf(rest_x, y, sum)));
}
static float tf32_products(float a, float b, float sum) {
    return fmaf(to_bits(a, 11), to_bits(b, 11), sum);
}
"""


@pytest.mark.parametrize(
    ("problem", "arithmetic", "inputs"),
    [
        # Errors that the bound of each element lets pass.
        (Problem(16, 16, 65536), "tf32_products", "real"),
        (Problem(16, 16, 65536), "bf16x3", "sparse"),
        (Problem(48, 40, 1500, lda=50, alpha=-0.7, beta=0.3, layout=Layout.TT), "bf16x3", "sparse"),
        (Problem(48, 40, 1500, ldb=1600, ldc=43, alpha=0.7, layout=Layout.NT), "bf16x3", "sparse"),
        (Problem(48, 40, 20, layout=Layout.TN), "sum20", "real"),
        (Problem(16, 16, 65536), "fmaf", ""),
    ],
    ids=lambda value: value.label.replace(" ", "-") if isinstance(value, Problem) else value,
)
def test_what_is_less_exact_than_fp32_is_told_at_every_depth(
    target: CudaTarget, problem: Problem, arithmetic: str, inputs: str
) -> None:
    target.prepare(problem, OPTIONS)
    plain = candidate(problem)
    assert plain.compiled is not None
    text = COARSE + plain.source.text.replace("fmaf(", f"{arithmetic}(")
    compiled = replace(plain.compiled, cubin=b"C++" + text.encode())
    outcome = target.measure(replace(plain, compiled=compiled), 1e-3)
    if inputs:
        assert outcome.status is Status.WRONG_RESULT
        assert f"on {inputs} inputs" in outcome.reason
        # The inputs are as they were: what comes next is judged on the same.
        outcome = target.measure(plain, 1e-3)
    assert_fine(outcome)


# One element of the second launch, that on real inputs, is off by a share of what FP32 is allowed:
# 2 ln(2 M N K / 1e-6) u sqrt(K) |alpha| sqrt(sum (a b)^2) and four roundings of the product.
OFF = """
if (calls == 2) {
    double sum = 0, squares = 0;
    for (long k = 0; k < K; ++k) {
        const double product = (double)A[(M - 1) * lda + k] * B[k * ldb + N - 1];
        sum += product;
        squares += product * product;
    }
    const double factor = 2 * log(2e6 * M * N * K) * 0x1p-24 * sqrt(K);
    const double allowed = fabs(alpha) * (factor * sqrt(squares) + 4 * 0x1p-24 * fabs(sum));
    C[(M - 1) * ldc + N - 1] = alpha * sum + SHARE * allowed;
}
"""


@pytest.mark.parametrize(("share", "status"), [(0.9, Status.OK), (1.1, Status.WRONG_RESULT)])
def test_an_error_above_the_bound_of_fp32_is_wrong_and_one_below_is_not(
    target: CudaTarget, share: float, status: Status
) -> None:
    problem = replace(PROBLEM, beta=0.0)
    target.prepare(problem, OPTIONS)
    outcome = target.measure(candidate(problem, AFTER=OFF.replace("SHARE", str(share))), None)
    assert outcome.status is status, outcome.reason
    if outcome.verification is not None:
        assert outcome.verification.max_error_ratio == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 300_000), "300000 bytes"),
        (Launch("gemm_kernel", (1, 1, 1), (2048, 1, 1), 0), "2048 threads"),
        (Launch("other_kernel", (1, 1, 1), (32, 1, 1), 0), "other_kernel"),
    ],
)
def test_a_refused_launch_is_no_crash(prepared: CudaTarget, launch: Launch, says: str) -> None:
    outcome = prepared.measure(candidate(PROBLEM, launch), None)
    assert outcome.status is Status.LAUNCH_FAILED
    assert says in outcome.reason


def test_what_is_no_machine_code_is_refused(prepared: CudaTarget) -> None:
    right = candidate(PROBLEM)
    assert right.compiled is not None
    for broken in (replace(right, compiled=replace(right.compiled, cubin=b"?")), None):
        outcome = prepared.measure(broken or replace(right, compiled=None), None)
        assert outcome.status is Status.LAUNCH_FAILED


@pytest.mark.parametrize("crash", ["return 1;", "*(volatile int *)0 = 1;"])
def test_a_crash_poisons_nothing_for_the_next(prepared: CudaTarget, crash: str) -> None:
    outcome = prepared.measure(candidate(PROBLEM, BEFORE=crash), None)
    assert outcome.status is Status.CRASHED
    assert_fine(prepared.measure(candidate(PROBLEM), None))


def waiting(seconds: float) -> str:
    """By the GPU's clock, which no other program slows down."""
    return f"wait_s({seconds});"


def test_short_kernels_are_timed_in_a_graph_and_long_ones_by_events(target: CudaTarget) -> None:
    target.prepare(SHORT, OPTIONS)
    short = target.measure(candidate(SHORT), None).measurement
    assert short is not None
    assert short.method == "graph"
    assert short.launches_per_sample > 1
    assert MIN_SAMPLES <= len(short.samples_us) <= OPTIONS.max_samples
    long = target.measure(candidate(SHORT, BEFORE=waiting(3e-3)), None).measurement
    assert long is not None
    assert (long.method, long.launches_per_sample) == ("events", 1)
    assert 3000 < long.time_us < 6000


def test_a_hopeless_candidate_is_timed_once(prepared: CudaTarget) -> None:
    for wait in ("", waiting(3e-3)):
        outcome = prepared.measure(candidate(PROBLEM, BEFORE=wait), best_us=1e-3)
        assert_fine(outcome)
        assert outcome.measurement is not None
        assert len(outcome.measurement.samples_us) == 1


def test_a_kernel_too_slow_to_repeat_says_so(target: CudaTarget) -> None:
    target.prepare(PROBLEM, OPTIONS)
    outcome = target.measure(candidate(PROBLEM, BEFORE=waiting(150)), None)
    assert outcome.status is Status.TOO_SLOW
    assert "one launch takes 150 s" in outcome.reason
    assert outcome.measurement is not None
    assert outcome.time_us is None


def test_with_a_cold_cache_each_launch_is_timed_alone(target: CudaTarget) -> None:
    target.prepare(PROBLEM, replace(OPTIONS, l2=CacheState.COLD))
    measurement = target.measure(candidate(PROBLEM), None).measurement
    assert measurement is not None
    assert (measurement.method, measurement.launches_per_sample) == ("events", 1)
    assert measurement.l2 is CacheState.COLD


def test_finals_verify_time_and_leave_out_who_is_wrong(target: CudaTarget) -> None:
    target.prepare(SHORT, OPTIONS)
    right, slow = candidate(SHORT), candidate(SHORT, BEFORE=waiting(5e-4))
    wrong = candidate(SHORT, DEPTH="K - 1")
    late = candidate(SHORT, BEFORE="if (calls > 9) alpha *= 2;")
    finals = target.finals([slow, wrong, right, late], rounds=6, seed=1)
    assert [entry.config for entry in finals.entries] == [right.config, slow.config]
    assert (finals.rounds, finals.method) == (6, "graph")
    for entry in (*finals.entries, finals.baseline):
        assert len(entry.samples_us) == 6
        assert entry.verification is not None
    with pytest.raises(DeviceError, match="no finalist"):
        target.finals([wrong], rounds=2, seed=1)


# Wrong once in ten launches. Which of the ten is chosen so that neither of a candidate's first two
# launches, its verification, is it.
ONE_IN_TEN = "if (calls % 10 == 7) alpha *= 1.5f;"


@pytest.mark.parametrize("problem", [PROBLEM, replace(PROBLEM, beta=0.0)], ids=["beta", "no beta"])
@pytest.mark.parametrize("rounds", [2, 30])
def test_a_kernel_that_is_wrong_once_in_ten_launches_is_caught_in_the_finals(
    target: CudaTarget, problem: Problem, rounds: int
) -> None:
    target.prepare(problem, OPTIONS)
    right, flaky = candidate(problem, BEFORE=waiting(2e-4)), candidate(problem, BEFORE=ONE_IN_TEN)
    finals = target.finals([flaky, right], rounds=rounds, seed=1)
    assert [entry.config for entry in finals.entries] == [right.config]
    (lost,) = finals.disqualified
    assert (lost.config, lost.kernel_sha256) == (flaky.config, flaky.source.sha256)
    assert lost.status is Status.WRONG_RESULT
    assert "of 1240 elements are wrong" in lost.reason
    (entry,) = finals.entries
    assert len(entry.samples_us) == rounds


def test_energy_is_measured_of_contenders_and_in_the_finals(
    simulated_cuda: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).with_name("nvml_on_cpu")))
    slow, right = (candidate(PROBLEM, BEFORE=waiting(seconds)) for seconds in (3e-3, 1e-3))
    with closing(CudaTarget()) as target:
        target.prepare(PROBLEM, replace(OPTIONS, objective=Objective.ENERGY))
        measurement = target.measure(right, None).measurement
        hopeless = target.measure(slow, best_us=1000.0).measurement
        finals = target.finals([slow, right], rounds=1, seed=1)
        target.prepare(PROBLEM, OPTIONS)
        quick = target.finals([slow, right], rounds=2, seed=1)
        sustained = target.sustained(right, quick, 0.3)
    assert measurement is not None
    # How exactly is tested with a clock of its own: a busy machine times anything.
    assert measurement.energy_mj is not None
    assert measurement.energy_mj > 0
    assert hopeless is not None
    assert hopeless.energy_mj is None
    assert [entry.config for entry in finals.entries] == [right.config, slow.config]
    for entry in (*finals.entries, finals.baseline):
        assert len(entry.samples_mj) == 1
    energies = [entry.energy_mj or 0.0 for entry in finals.entries]
    assert energies == sorted(energies)
    # Where time is minimised, of winner and baseline alone, behind all times.
    assert [len(entry.samples_mj) for entry in quick.entries] == [1, 0]
    assert len(quick.baseline.samples_mj) == 1
    assert quick.winner.config == right.config
    assert sustained is not None
    assert sustained.sustained_mj is not None
    assert sustained.sustained_baseline_mj is not None


def test_the_baseline_is_the_fastest_call_over_the_rounds(target: CudaTarget) -> None:
    """Where K is 95 SGEMM is far slower, and GemmEx the fastest call only at first."""
    problem = Problem(8, 4, 95)
    target.prepare(problem, OPTIONS)
    right = candidate(problem, BEFORE=waiting(18e-3))
    finals = target.finals([right], rounds=60, seed=1)
    assert finals.baseline.name == "cuBLASLt proposal 3"
    # Beside GemmEx, the fastest before the finals, it would be 1.16, beside SGEMM 2.1.
    assert finals.winner.ratio == pytest.approx(20 / 18, rel=0.02)
    by_name = {call.name: call for call in finals.calls}
    gemm_ex, sgemm = by_name["cuBLAS GemmEx"], by_name["cuBLAS SGEMM"]
    assert (gemm_ex.status, len(gemm_ex.samples_us)) == (Status.OK, 60)
    assert min(gemm_ex.samples_us) < finals.baseline.time_us < (gemm_ex.time_us or 0)
    assert (sgemm.status, sgemm.samples_us) == (Status.TOO_SLOW, ())
    assert 1.7 < float(sgemm.reason.split()[0]) < 2.1
    assert by_name["cuBLASLt proposal 1"].status is Status.WRONG_RESULT
    assert by_name["cuBLASLt proposal 2"].status is Status.TOO_SLOW
    # Each alone, and by the GPU's own clock.
    sustained = target.sustained(right, finals, 0.02)
    assert sustained is not None
    assert sustained.sustained_ratio == pytest.approx(20 / 18, rel=0.02)
    assert (sustained.sustained_s, sustained.sustained_mj) == (0.02, None)
    broken = candidate(problem, BEFORE="return 1;")
    with pytest.raises(DeviceError, match="illegal memory access"):
        target.sustained(broken, finals, 0.02)
    # The worker that replaces it knows the calls.
    assert target.sustained(right, finals, 0.02) is not None


def test_tf32_that_was_left_on_is_no_baseline_of_fp32(target: CudaTarget) -> None:
    """In the simulated GemmEx it is, where K is 98, and it is the fastest."""
    problem = Problem(8, 4, 98)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], rounds=2, seed=1)
    (gemm_ex,) = (call for call in finals.calls if call.name == "cuBLAS GemmEx")
    assert gemm_ex.status is Status.WRONG_RESULT
    assert "on real inputs" in gemm_ex.reason
    assert finals.baseline.name in ("cuBLAS SGEMM", "cuBLASLt proposal 3")


def test_energy_without_a_counter_is_one_clear_line(target: CudaTarget) -> None:
    with pytest.raises(DeviceError, match=r"tells no energy \(NVML.*: use --objective time"):
        target.prepare(PROBLEM, replace(OPTIONS, objective=Objective.ENERGY))
    target.prepare(PROBLEM, OPTIONS)
    assert_fine(target.measure(candidate(PROBLEM), None))


def test_finals_go_on_without_one_that_crashes(prepared: CudaTarget) -> None:
    right, crashing = candidate(PROBLEM), candidate(PROBLEM, BEFORE="return 1;")
    finals = prepared.finals([crashing, right], rounds=2, seed=1)
    assert [entry.config for entry in finals.entries] == [right.config]


def test_a_problem_larger_than_the_gpu_names_both_sizes(target: CudaTarget) -> None:
    with pytest.raises(UsageError, match=r"needs 17\.\d GiB .*, 4\.0 GiB are free"):
        target.prepare(Problem(30_000, 30_000, 3), OPTIONS)


# The matrix A of a kernel that is timed, where `calls` counts from 1 and two calls are verified.
FINDS = {
    Fill.UNIFORM: "a != (int)a && a >= -1 && a < 1",
    Fill.NORMAL: "a != (int)a && a > -8 && a < 8",
    Fill.INTEGERS: "a == (int)a && a != 0 && a >= -3 && a <= 3",
    Fill.ZEROS: "a == 0",
}


@pytest.mark.parametrize("fill", list(Fill))
def test_kernels_are_timed_on_what_was_asked_for(target: CudaTarget, fill: Fill) -> None:
    problem = Problem(40, 31, 17, beta=0.5)
    target.prepare(problem, replace(OPTIONS, fill=fill, max_samples=2))
    # Far more than 1 in absolute value is rare among normal numbers, and there must be some.
    wide = "float most = 0; for (int i = 0; i < M * lda; ++i) most = fmaxf(most, fabsf(A[i]));"
    check = f"{wide} const float a = A[5]; if (calls > 3 && !({FINDS[fill]})) return 1;"
    if fill is Fill.NORMAL:
        check += " if (calls > 3 && most < 1.5f) return 1;"
    assert_fine(target.measure(candidate(problem, BEFORE=check), None))


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_rotating_cache_never_sees_the_same_inputs_twice_in_a_row(
    target: CudaTarget, beta: float
) -> None:
    # 0.6 MiB of A: with 4 MiB of L2 it is 14 copies before one comes again.
    problem = Problem(1024, 1, 160, beta=beta)
    check = """
        static const void *seen[13];
        static const void *last_c = nullptr;
        if (calls > 2) {
            for (const void *one : seen) { if (one == A) return 1; }
            seen[calls % 13] = A;
            if (beta != 0 && C == last_c) return 1;
            last_c = C;
        }
    """
    rotated = replace(OPTIONS, l2=CacheState.ROTATE, max_samples=6)
    target.prepare(problem, rotated)
    outcome = target.measure(candidate(problem, BEFORE=check), None)
    assert_fine(outcome)
    assert outcome.measurement is not None
    assert outcome.measurement.l2 is CacheState.ROTATE
    target.prepare(problem, replace(rotated, l2=CacheState.WARM))
    assert target.measure(candidate(problem, BEFORE=check), None).status is Status.CRASHED
