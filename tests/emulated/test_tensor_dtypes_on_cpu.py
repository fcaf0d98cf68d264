"""The CUDA worker's own code for the element types of tensor cores, on a simulated GPU."""

import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autogemm.bench.kernels import BenchRequest, Listener, named_kernels, run_bench
from autogemm.cli.bench.run import bench_rows
from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.benchmark import BenchEntry, BenchSpec, KernelKind, baseline_of
from autogemm.model.results.outcome import Outcome, Status
from autogemm.space import load_family
from autogemm.store import open_store
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget
from autogemm.targets.cuda.tools.sanitizer import Job
from autogemm.targets.cuda.worker.sanitized import run

pytestmark = [
    pytest.mark.emulated,
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]

OPTIONS = MeasureOptions(deadline_s=200.0, max_samples=2)
# One of each kind of 8-bit input. `test_fp8_output_worker.py` has C in 8 bits, which this kernel's
# conversions lack.
TENSOR_DTYPES = [
    dtype
    for dtype in DType
    if not dtype.has_fp32_products
    and dtype.c.size_bytes > 1
    and (dtype.size_bytes > 1 or dtype in DType.one_each())
]

# Element types by their C++ names; what is rounded where is a word that a test may replace.
KERNEL = """
struct bf16 {
    unsigned short bits;
    operator float() const { return __uint_as_float((unsigned)bits << 16); }
    bf16() = default;
    bf16(float value) {
        const unsigned u = __float_as_uint(value);
        bits = (u + NEAREST) >> 16;
    }
};
struct e4m3 {
    unsigned char bits;
    operator float() const {
        const unsigned size = bits & 0x7f;
        const float value = size == 0x7f ? NAN : __uint_as_float(size << 20) * 0x1p120f;
        return bits >> 7 ? -value : value;
    }
};
struct e5m2 {
    unsigned char bits;
    operator float() const { return __builtin_bit_cast(_Float16, (unsigned short)(bits << 8)); }
};
static float as_bf16(float value) { return __uint_as_float(__float_as_uint(value) & 0xffff0000u); }
static float as_half(float value) { return (_Float16)value; }
static float as_16_bits(float value) { return fminf(fmaxf(value, -32768.0f), 32767.0f); }
extern "C" int gemm_kernel(int M, int N, int K, float alpha, const AB *A, int lda,
                           const AB *B, int ldb, float beta, CC *C, int ldc) {
    for (long i = 0; i < M; ++i) {
        for (long j = 0; j < COLUMNS; ++j) {
            float sum = 0;
            for (long k = 0; k < DEPTH; ++k) {
                const float a = TRANS_A ? A[k * lda + i] : A[i * lda + k];
                const float b = TRANS_B ? B[j * ldb + k] : B[k * ldb + j];
                sum = ACCUMULATE(sum + INPUT(a) * INPUT(b));
            }
            CC &c = C[i * ldc + j];
            c = (CC)(alpha * sum + (beta != 0 ? beta * (float)c : 0.0f));
        }
    }
    return 0;
}
"""
NEAREST = "0x7fff + (u >> 16 & 1)"
RIGHT = {"COLUMNS": "N", "DEPTH": "K", "INPUT": "", "ACCUMULATE": "", "NEAREST": NEAREST}
C_NAMES = {"f32": "float", "tf32": "float", "f16": "_Float16", "bf16": "bf16"} | {
    **{name: name for name in ("e4m3", "e5m2")},
    **{"i8": "signed char", "i32": "int"},
}


def candidate(problem: Problem, **changes: str) -> Candidate:
    given = {
        "AB": C_NAMES[problem.dtype.ab.label],
        "CC": C_NAMES[problem.dtype.c.label],
        "TRANS_A": str(int(problem.layout.trans_a)),
        "TRANS_B": str(int(problem.layout.trans_b)),
    }
    text = KERNEL
    for name, value in {**RIGHT, **given, **changes}.items():
        text = text.replace(name, value)
    source = KernelSource("plain", "", Config.of("plain", dict(changes)), problem.layout, text)
    compiled = CompiledKernel(source.sha256, "sm_90", b"C++" + text.encode(), (), "", "", (), 0.0)
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (32, 1, 1), 0),))
    return Candidate(source, plan, compiled)


@pytest.fixture(scope="module")
def target(simulated_cuda: None) -> Iterator[CudaTarget]:
    with closing(CudaTarget()) as target:
        yield target


def outcome_of(target: CudaTarget, problem: Problem, **changes: str) -> Outcome:
    target.prepare(problem, OPTIONS)
    return target.measure(candidate(problem, **changes), None)


# The first launch is on integers, the second on reals.
OFF_BY = (
    "[](float x) { static int calls = 0; return ++calls > M_N ? x * (1 + SHARE * 0x1p-8f) : x; }"
)


@pytest.mark.parametrize(("share", "status"), [(0.0, Status.OK), (2.5, Status.WRONG_RESULT)])
def test_bf16_may_be_off_by_one_rounding_and_no_more(
    target: CudaTarget, share: float, status: Status
) -> None:
    """One rounding is 2^-8 of the number: 2.5 of them are above it however C is rounded."""
    problem = Problem(37, 21, 50, dtype=DType.BF16)
    off = OFF_BY.replace("M_N", str(37 * 21)).replace("SHARE", str(share))
    outcome = outcome_of(target, problem, **{"(bf16)(alpha": f"(bf16)({off})(alpha"})
    assert outcome.status is status, outcome.reason
    assert status is Status.OK or "on real inputs" in outcome.reason


@pytest.mark.parametrize("dtype", TENSOR_DTYPES, ids=str)
@pytest.mark.parametrize(
    "problem",
    [
        Problem(37, 21, 50, Layout.NN, alpha=-0.3, beta=0.7, ldc=23),
        Problem(30, 20, 40, Layout.TT, lda=51, ldb=52, ldc=53),
    ],
    ids=["nn", "tt"],
)
def test_a_right_kernel_passes(target: CudaTarget, problem: Problem, dtype: DType) -> None:
    outcome = outcome_of(target, with_dtype(problem, dtype))
    assert (outcome.status, outcome.reason) == (Status.OK, "")
    assert outcome.verification is not None
    # Rounding C to 16 bits may come near the bound; sums of FP32 may not.
    least = 1.0 if dtype.c.size_bytes == 2 else 0.25
    assert (outcome.verification.max_error_ratio > 0) != dtype.has_exact_sums
    assert outcome.verification.max_error_ratio <= least


@pytest.mark.parametrize(
    ("dtype", "changes", "complaint"),
    [
        (DType.BF16_F32, {"DEPTH": "K - 1"}, "integer inputs"),
        (DType.BF16, {"DEPTH": "K - 1"}, "integer inputs"),
        (DType.F16, {"ACCUMULATE": "as_half"}, "real inputs"),
        (DType.TF32, {"INPUT": "as_bf16"}, "real inputs"),
        # Cut off instead of rounded to nearest.
        (DType.BF16, {"NEAREST": "0"}, "integer inputs"),
        (DType.F16, {"COLUMNS": "N + 1"}, "outside C"),
        (DType.BF16_F32, {"COLUMNS": "N + 1"}, "outside C"),
        (DType.E4M3, {"DEPTH": "K - 1"}, "integer inputs"),
        (DType.E5M2, {"NEAREST": "0"}, "integer inputs"),
        (DType.I8, {"DEPTH": "K - 1"}, "integer inputs"),
        (DType.I8, {"COLUMNS": "N + 1"}, "outside C"),
        (DType.I8, {"INPUT": "(unsigned char)"}, "integer inputs"),
        (DType.I8, {"ACCUMULATE": "as_16_bits"}, "real inputs"),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_a_wrong_kernel_is_caught(
    target: CudaTarget, dtype: DType, changes: dict[str, str], complaint: str
) -> None:
    outcome = outcome_of(target, Problem(48, 40, 512, dtype=dtype, ldc=44), **changes)
    assert outcome.status is Status.WRONG_RESULT
    assert complaint in outcome.reason


LARGEST = "fminf(fmaxf(alpha * sum, -65504.0f), 65504.0f) + (beta"


@pytest.mark.parametrize(
    ("alpha", "changes", "status"),
    [
        # Most sums of real inputs are too large for FP16, and some are not.
        (300_000.0, {}, Status.OK),
        (300_000.0, {"alpha * sum + (beta": LARGEST}, Status.WRONG_RESULT),
        (300_000.0, {"alpha * sum": "fabsf(alpha * sum)"}, Status.WRONG_RESULT),
        (1.0, {"alpha * sum": "1e6f * sum"}, Status.WRONG_RESULT),
    ],
    ids=["infinite", "largest", "sign", "finite"],
)
def test_a_result_beyond_the_type_is_infinite(
    target: CudaTarget, alpha: float, changes: dict[str, str], status: Status
) -> None:
    problem = Problem(37, 21, 50, dtype=DType.F16, alpha=alpha)
    outcome = outcome_of(target, problem, **changes)
    assert outcome.status is status, outcome.reason
    assert status is not Status.OK or outcome.verification is not None


def test_the_baseline_is_the_fastest_right_call_of_cublas(target: CudaTarget) -> None:
    # The simulated library proposes a wrong algorithm, a slow one, and one like GemmEx.
    problem = Problem(64, 64, 64, dtype=DType.BF16)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], rounds=3, seed=0)
    assert finals.baseline.name in ("cuBLAS GemmEx", "cuBLASLt proposal 3")
    assert finals.winner.verification is not None


@pytest.mark.parametrize(
    ("k", "expected"), [(96, "cuBLASLt proposal 3 (FP32 reduction)"), (97, "cuBLASLt proposal 3")]
)
def test_a_call_of_cublas_that_is_wrong_at_times_is_no_baseline(
    target: CudaTarget, k: int, expected: str
) -> None:
    problem = Problem(64, 64, k, dtype=DType.BF16)
    target.prepare(problem, OPTIONS)
    finals = target.finals([candidate(problem)], rounds=3, seed=0)
    assert finals.baseline.name == expected


def test_without_a_baseline_candidates_are_verified(target: CudaTarget) -> None:
    problem = Problem(64, 64, 96, dtype=DType.BF16)
    target.prepare(problem, replace(OPTIONS, compares=False))
    assert target.baseline_us is None
    for _ in range(2):  # a wrong one costs the worker, and the next one gets another
        wrong = target.measure(candidate(problem, DEPTH="K - 1"), None)
        assert wrong.status is Status.WRONG_RESULT
        assert target.measure(candidate(problem), None).status is Status.OK
    assert target.baseline_us is None


@pytest.mark.parametrize("dtype", TENSOR_DTYPES, ids=str)
def test_what_the_sanitizer_watches_is_checked_too(target: CudaTarget, dtype: DType) -> None:
    problem = Problem(9, 7, 33, Layout.TN, dtype=dtype, ldc=8, beta=1.0)
    assert run(Job(candidate(problem), problem, 0)) == "right"
    wrong = run(Job(candidate(problem, DEPTH="K - 1"), problem, 0))
    assert wrong.startswith("wrong: ")


def with_dtype(problem: Problem, dtype: DType) -> Problem:
    values = {name: getattr(problem, name) for name in ("lda", "ldb", "ldc")}
    alpha, beta = dtype.legal_factors(problem.alpha, problem.beta)
    values |= {"alpha": alpha, "beta": beta}
    return Problem(problem.m, problem.n, problem.k, problem.layout, dtype, **values)


class PlainCompiler:
    """Makes the plain loop of every source."""

    version = "g++"

    def __init__(self, problem: Problem) -> None:
        self._compiled = candidate(problem).compiled

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        future: Future[CompiledKernel] = Future()
        assert self._compiled is not None
        future.set_result(replace(self._compiled, source_sha256=source.sha256))
        return future


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16_F32], ids=str)
def test_a_benchmark_of_these_types_compares_with_cublas_in_the_same(
    target: CudaTarget, tmp_path: Path, dtype: DType
) -> None:
    problem = Problem(64, 64, 64, dtype=dtype)
    family = load_family("gemm_mma")
    source = render(family, family.seeds[0], problem)
    ours = baseline_of(dtype)
    with open_store(str(tmp_path / "a.db")) as store:
        spec = BenchSpec(target.device, target.environment, target.provenance, "autogemm bench")
        entry = BenchEntry("kernel 1", KernelKind.STORED, problem, Status.OK)
        entry = replace(entry, config=source.config, kernel_sha256=source.sha256)
        store.record_entries(store.begin_bench(spec), [entry], {source.sha256: source})
        request = BenchRequest(
            named_kernels(("kernel:1", "winner", "naive", "cublas_f32", ours)),
            sizes=((64, 64, 64),),
            dtype=dtype,
            rounds=3,
        )
        compiler: Any = PlainCompiler(problem)
        done = run_bench(request, target, compiler, store, Listener())
    stored, winner, naive, other, baseline = done.entries
    assert (stored.status, stored.reason, stored.problem) == (Status.OK, "", problem)
    assert stored.ratio is not None and not stored.is_baseline
    assert f"autogemm tune --size 64 --dtype {dtype}" in winner.reason
    assert (naive.status, "dtype" in naive.reason) == (Status.REJECTED, True), naive.reason
    # FP32 is timed as well, and takes another share of the baseline's time.
    assert other.problem.dtype is DType.F32
    assert other.ratio is not None and not other.is_baseline
    assert (baseline.ratio, baseline.is_baseline, baseline.problem) == (1.0, True, problem)
    shown = bench_rows(done)
    assert [row["ratio"] == 1.0 for row in shown[-2:]] == [False, True]
    assert str(shown[-1]["library"]).startswith(("cuBLAS GemmEx", "cuBLASLt"))
