"""Kernels for the GPU tests: a plain one, right or with a fault planted, and the family's first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Verdict
from autogemm.model.results.outcome import Outcome
from autogemm.space import broken_constraints, build_space, launch_plan, load_family
from autogemm.targets import MeasureOptions
from autogemm.targets.cuda import CudaTarget

# One thread per element of C, 16 x 16 threads per block; capitals are replaced.
PLAIN = """
typedef unsigned long long uint64;
__device__ unsigned arrivals;

__device__ uint64 nanoseconds() {
    uint64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ float tf32(float value) {
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

// Calls itself so often that any stack is too small.
__device__ __noinline__ float deep(float x, int depth) {
    volatile float kept[64];
    kept[depth & 63] = x;
    return depth == 0 ? x : deep(x + 1.0f, depth - 1) + kept[(depth + 1) & 63];
}

extern "C" __global__ void gemm_kernel(int M, int N, int K, float alpha, const float* A, int lda,
                                       const float* B, int ldb, float beta, float* C, int ldc) {
    const int row = blockIdx.y * 16 + threadIdx.y;
    const int col = blockIdx.x * 16 + threadIdx.x;
    BEFORE
    if (row >= M || col >= COLUMNS) {
        return;
    }
    float sum = 0.0f;
    for (int k = 0; k < DEPTH; ++k) {
        const float a = TRANS_A ? A[(long long)k * lda + row] : A[(long long)row * lda + k];
        const float b = TRANS_B ? B[(long long)col * ldb + k] : B[(long long)k * ldb + col];
        sum = fmaf(ROUND(a), ROUND(b), sum);
    }
    float* c = &C[(long long)row * ldc + col];
    *c = alpha * sum + (beta != 0.0f ? beta * *c : 0.0f);
    AFTER
}
"""

THIS_LAUNCH = """
    __shared__ unsigned launch;
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        launch = atomicAdd(&arrivals, 1u) / (gridDim.x * gridDim.y);
    }
    __syncthreads();
"""
FIRST_LAUNCH_ONLY = f"{THIS_LAUNCH} alpha = launch == 0 ? alpha : 1.001f * alpha;"
# One launch in ten, at random, but not the three that verify.
ONE_IN_TEN = "launch > 2 && (launch * 2654435761u >> 16) % 10 == 0"

ONE_LAUNCH_IN_TEN = FIRST_LAUNCH_ONLY.replace("launch == 0", "launch % 10 != 7")


@dataclass(frozen=True)
class Fault:
    """The difference from the right kernel."""

    before: str = ""
    after: str = ""
    depth: str = "K"
    columns: str = "N"
    round: str = ""
    smem_bytes: int = 0
    threads: tuple[int, int, int] = (16, 16, 1)
    kernel: str = "gemm_kernel"


FINE = Fault()
FAULTS = {
    "one product too few": Fault(depth="K - 1"),
    "last column not computed": Fault(columns="N - 1"),
    "writes beyond N into ldc": Fault(after="if (col == N - 1) { c[1] = 1.0f; }"),
    "writes behind C": Fault(after="if (row == M - 1 && col == N - 1) { c[70] = 1.0f; }"),
    "writes before C": Fault(after="if (row == 0 && col == 0) { C[-3] = 1.0f; }"),
    "right only at the first launch": Fault(before=FIRST_LAUNCH_ONLY),
    "rounds its inputs to TF32": Fault(round="tf32"),
    "writes to A": Fault(after="if (row == 0 && col == 0) { const_cast<float*>(A)[0] = 1.0f; }"),
}
FLAKY = Fault(before=ONE_LAUNCH_IN_TEN)
HANG = Fault(before="while (clock64() != 0) {}")
ILLEGAL_ADDRESS = Fault(after="C[1ll << 40] = 1.0f;")
MISALIGNED = Fault(after="*reinterpret_cast<double2*>(reinterpret_cast<char*>(c) + 1) = {1, 1};")
TRAP = Fault(before="__trap();")
# Each of these leaves the context in an error that every later call reports.
ASSERTION = Fault(before='if (M > 0) { __assertfail("no", "kernel.cu", 1, "f", 1); }')
STACK_OVERFLOW = Fault(before="if (deep(alpha, 1 << 20) == 0.5f) { return; }")
WILD_JUMP = Fault(before="((void (*)())(0x10ull + M))();")
WRONG_ONCE_IN_TEN = Fault(before=f"{THIS_LAUNCH} alpha *= {ONE_IN_TEN} ? 1.001f : 1.0f;")
CRASHES_ONCE_IN_TEN = Fault(before=f"{THIS_LAUNCH} if ({ONE_IN_TEN}) {{ __trap(); }}")
# Faults that only compute-sanitizer sees: the result is right.
READS_C_AT_BETA_0 = Fault(before="alpha = C[0] == 1.2345f ? alpha + 1e-9f : alpha;")
RACES = Fault(
    before="__shared__ volatile int last; last = threadIdx.x; alpha += last > 999 ? 1.0f : 0.0f;"
)
READS_BEHIND_A = Fault(before="alpha = A[(long long)M * K] == 1.2345f ? alpha + 1e-9f : alpha;")
JUST_OVER_48_KIB = Fault(smem_bytes=48 * 1024 + 1)
TOO_MUCH_SMEM = Fault(smem_bytes=300_000)
TOO_MANY_THREADS = Fault(threads=(16, 128, 1))
NO_SUCH_KERNEL = Fault(kernel="other_kernel")


def sleeping(seconds: float) -> Fault:
    """Right, but every block waits so long."""
    wait = f"const uint64 end = nanoseconds() + {int(1e9 * seconds)}ull;"
    return Fault(before=f"{wait} while (nanoseconds() < end) {{}}")


Build = Callable[[Problem, Fault], Candidate]


def plain_candidate(
    problem: Problem, fault: Fault, compiler: Compiler, device: Device
) -> Candidate:
    """The plain kernel with that fault, compiled and with its launch plan."""
    layout = problem.layout
    text = PLAIN
    replacements = {
        "BEFORE": fault.before,
        "AFTER": fault.after,
        "DEPTH": fault.depth,
        "COLUMNS": fault.columns,
        "ROUND": fault.round,
        "TRANS_A": str(layout.trans_a).lower(),
        "TRANS_B": str(layout.trans_b).lower(),
    }
    for name, value in replacements.items():
        text = text.replace(name, value)
    values = {field.name: str(getattr(fault, field.name)) for field in fields(fault)}
    source = KernelSource("plain", "", Config.of("plain", values), layout, text)
    grid = (-(-problem.n // 16), -(-problem.m // 16), 1)
    launch = Launch(fault.kernel, grid, fault.threads, fault.smem_bytes)
    return Candidate(source, LaunchPlan((launch,)), compiler.compile(source, device.sm))


def family_candidate(problem: Problem, compiler: Compiler, device: Device) -> Candidate:
    """The first seed of the family that ships."""
    family = load_family("sgemm_simt")
    # With its tiles fixed: to list millions of configs takes longer than the test.
    seed = family.seeds[0].as_dict()
    tiles = {name: (seed[name],) for name in ("BM", "BN", "WM", "WN", "TM", "TN")}
    space = build_space(family, problem, device, tiles)
    config = space.config(space.seeds[0])
    source = render(family, config, problem)
    plan = launch_plan(family, config, problem)
    return Candidate(source, plan, compiler.compile(source, device.sm))


@dataclass(frozen=True)
class Edited:
    """Measures and sanitizes kernels of one family, right ones or with a fault planted."""

    family: str
    target: CudaTarget
    compiler: Compiler

    def outcome(
        self, values: Mapping[str, Value], problem: Problem, edit: tuple[str, str] = ("", "")
    ) -> Outcome:
        """What a measurement says of the kernel."""
        self.target.prepare(problem, MeasureOptions(deadline_s=10.0, compares=False))
        return self.target.measure(self._candidate(values, problem, edit), None)

    def findings(self, values: Mapping[str, Value], problem: Problem) -> list[str]:
        """The lines of sanitizers that did not pass."""
        checks = self.target.sanitize(self._candidate(values, problem), problem, 100.0)
        return [one.line for one in checks if one.verdict is not Verdict.PASSED]

    def _candidate(
        self, values: Mapping[str, Value], problem: Problem, edit: tuple[str, str] = ("", "")
    ) -> Candidate:
        """The kernel of a legal config, with the first text of ``edit`` replaced by the other."""
        family, device = load_family(self.family), self.target.device
        config = family.completed(Config.of(self.family, dict(values)))
        assert broken_constraints(family, config, problem, device) == []
        source = render(family, config, problem)
        assert edit[0] in source.text
        source = replace(source, text=source.text.replace(*edit)) if edit[0] else source
        compiled = self.compiler.compile(source, device.sm)
        return Candidate(source, launch_plan(family, config, problem), compiled)
