"""The shim's part of CUDA: indices, shuffles, votes, barriers, atomics, memory, copies."""

import pytest
from handwritten import RIGHT, Tiny

from autogemm.emulator import Data, Emulator, FindingKind, Mode, RunOptions
from autogemm.model.kernel import KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Layout, Problem

pytestmark = pytest.mark.emulated

# `expect(condition)` spoils C where a condition does not hold.
EXPECT = (
    "if (t == 0) workspace[0] = 0; __syncthreads();\n"
    "auto expect = [&](bool good) { if (!good) atomicAdd(workspace, 1.0f); };\n"
)
SETTLE = (
    "\n__syncthreads();\nif (t == 0 && blockIdx.x == 0) C[0] = A[0] * B[0] + 100 * workspace[0];"
)


def expecting(body: str, threads: int = 64, smem_bytes: int = 4096, prelude: str = "") -> Tiny:
    text = EXPECT + body + SETTLE
    return Tiny(text, threads, 1, smem_bytes, workspace_bytes=4, prelude=prelude)


SEMANTICS = {
    "index shuffle": "expect(__shfl_sync(~0u, t, 5) == t / 32 * 32 + 5);",
    "index shuffle within a width": "expect(__shfl_sync(~0u, t, 3, 8) == t / 8 * 8 + 3);",
    "xor shuffle": "expect(__shfl_xor_sync(~0u, 2.5f * t, 16) == 2.5f * (t ^ 16));",
    "down shuffle keeps the last": "expect(__shfl_down_sync(~0u, t, 4) == "
    "(t % 32 < 28 ? t + 4 : t));",
    "up shuffle keeps the first": "expect(__shfl_up_sync(~0u, t, 4) == (t % 32 < 4 ? t : t - 4));",
    "64-bit shuffle": "expect(__shfl_xor_sync(~0u, 1e300 * t, 1) == 1e300 * (t ^ 1));",
    "two shuffles in a row": "int a = __shfl_xor_sync(~0u, t, 1);\n"
    "expect(__shfl_xor_sync(~0u, a, 2) == (t ^ 3));",
    "half a warp": "if (t % 32 < 16) expect(__shfl_xor_sync(0xffff, t, 1) == (t ^ 1));",
    "ballot": "expect(__ballot_sync(~0u, t % 2) == 0xaaaaaaaau);",
    "any": "expect(__any_sync(~0u, t == 40) == (t >= 32));",
    "all": "expect(__all_sync(~0u, t >= 32) == (t >= 32));",
    "count at a barrier": "expect(__syncthreads_count(t % 4 == 0) == 16);",
    "or at a barrier": "expect(__syncthreads_or(t == 9) && !__syncthreads_or(0));",
    "extents": "expect(blockDim.x == 64 && blockDim.y == 1 && gridDim.x == 1 && blockIdx.x == 0);",
    "atomic add returns what was": "__shared__ int n;\nif (t == 0) n = 0;\n__syncthreads();\n"
    "expect(atomicAdd(&n, 1) < 64);\n__syncthreads();\nexpect(n == 64);",
    "compare and swap": "__shared__ int n;\nif (t == 0) n = 7;\n__syncthreads();\n"
    "atomicCAS(&n, 7, 8 + t);\n__syncthreads();\nexpect(n >= 8);",
    "atomics wrap, subtract, swap": "__shared__ unsigned n;\nif (t == 0) {\nn = 3;\n"
    "expect(atomicInc(&n, 3u) == 3 && n == 0);\nexpect(atomicDec(&n, 3u) == 0 && n == 3);\n"
    "expect(atomicSub(&n, 1u) == 3 && n == 2);\nexpect(atomicExch(&n, 9u) == 2 && n == 9);\n"
    "expect(atomicAnd(&n, 8u) == 9 && atomicOr(&n, 3u) == 8 && n == 11); }",
    "minimum and maximum with and without sign": "__shared__ int n;\nif (t == 0) {\nn = -1;\n"
    "atomicMax(&n, 4);\nexpect(n == 4);\natomicMin((unsigned*)&n, ~0u);\nexpect(n == 4);\n"
    "atomicMin(&n, -2);\nexpect(n == -2);\natomicMax((unsigned*)&n, 5u);\nexpect(n == -2); }",
    "loads and stores with a cache policy": "float4* to = reinterpret_cast<float4*>(smem) + t;\n"
    "__stcg(to, make_float4(t, 1, 2, 3));\n"
    "expect(__ldcg(to).x == t && __ldcs(smem + 4 * t + 3) == 3 && __ldg(A) == A[0]);\n"
    "__stcs(smem + 4 * t, 5.0f);\nexpect(__ldca(to).x == 5);",
    "static shared arrays are apart": "__shared__ float a[64];\n__shared__ float b[64];\n"
    "a[t] = 1; b[t] = 2;\nsmem[t] = 3;\n__syncthreads();\n"
    "expect(a[t ^ 1] + b[t ^ 1] + smem[t ^ 1] == 6);",
    "vectors": "smem[t] = t;\n__syncthreads();\n"
    "float4 v = *reinterpret_cast<const float4*>(smem + t / 4 * 4);\n"
    "expect(v.x == t / 4 * 4 && v.w == v.x + 3);",
    "__syncwarp orders its lanes": "smem[t] = t;\n__syncwarp();\nexpect(smem[t ^ 1] == (t ^ 1));",
    "bits": "expect(__popc(0xf0) == 4 && __ffs(8) == 4 && __clz(1) == 31);",
    "min and max": "expect(min(3, t) <= 3 && max(3u, (unsigned)t) >= 3u && fmaxf(1, 2) == 2);",
    "a copy lands at its wait": "copy_async_4(smem + t, A, 4);\ncommit_copies();\n"
    "wait_for_copies(0);\nexpect(smem[t] == A[0]);",
    "a copy fills with zeros": "copy_async_16(smem + 4 * t, A, 4);\ncommit_copies();\n"
    "wait_for_copies(0);\nexpect(smem[4 * t] == A[0] && smem[4 * t + 1] == 0 && "
    "smem[4 * t + 3] == 0);",
    "a copy of nothing reads nothing": "copy_async_16(smem + 4 * t, A + 400, 0);\n"
    "commit_copies();\nwait_for_copies(0);\nexpect(smem[4 * t + 2] == 0);",
    "the older group lands first": "copy_async_4(smem + t, A);\ncommit_copies();\n"
    "copy_async_4(smem + 64 + t, B);\ncommit_copies();\nwait_for_copies(1);\n"
    "expect(smem[t] == A[0]);\nwait_for_copies(0);\nexpect(smem[64 + t] == B[0]);",
}


@pytest.mark.parametrize("name", SEMANTICS)
def test_the_shim_does_what_cuda_does(emulator: Emulator, name: str) -> None:
    tiny = expecting(SEMANTICS[name])
    for seed in (0, 3):
        report = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(seed=seed))
        assert report.ok, report.message


def test_an_expectation_that_fails_is_noticed(emulator: Emulator) -> None:
    tiny = expecting("expect(t != 37);")
    assert emulator.run(tiny.source, tiny.plan, tiny.problem).wrong_elements == 1


def test_wait_without_a_number_leaves_max_pending_copies(emulator: Emulator) -> None:
    body = (
        "copy_async_4(smem + t, A);\ncommit_copies();\ncopy_async_4(smem + 64 + t, B);\n"
        "commit_copies();\nwait_for_copies();\nexpect(smem[t] == A[0]);\n"
    )
    early = "expect(smem[64 + t] == B[0]);"
    prelude = "constexpr int MAX_PENDING_COPIES = 1;\n"
    tiny = expecting(body, prelude=prelude)
    assert emulator.run(tiny.source, tiny.plan, tiny.problem).ok
    tiny = expecting(body + early, prelude=prelude)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    assert report.findings[0].kind is FindingKind.IN_FLIGHT


@pytest.mark.parametrize("late", [True, False])
def test_fast_mode_has_both_schedules_of_copies(emulator: Emulator, late: bool) -> None:
    """A kernel that reads before its wait: right when copies land at once, wrong when late."""
    body = "copy_async_4(smem, A);\ncommit_copies();\nC[0] = smem[0] * B[0];\nwait_for_copies(0);"
    tiny = Tiny(body, 1, smem_bytes=4)
    options = RunOptions(mode=Mode.FAST, late_copies=late)
    assert emulator.run(tiny.source, tiny.plan, tiny.problem, options).ok is not late


def test_a_seed_changes_the_order_of_threads(emulator: Emulator) -> None:
    body = "if (t != 0) return;\n" + RIGHT
    order = (
        "__shared__ int turn;\nif (t == 0) turn = 0;\n__syncthreads();\n"
        "int mine = atomicAdd(&turn, 1);\nif (mine != t) atomicAdd(workspace + 1, 1.0f);\n"
        "__syncthreads();\nif (t == 0) C[0] = A[0] * B[0] + workspace[1];\n"
    )
    start = "if (t == 0) workspace[1] = 0;\n__syncthreads();\n"
    tiny = Tiny(start + order, 32, workspace_bytes=8)
    assert emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(seed=0)).ok
    assert not emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(seed=1)).ok
    assert emulator.run(Tiny(body).source, tiny.plan, tiny.problem, RunOptions(seed=1)).ok


def test_launches_share_the_workspace_in_order(emulator: Emulator) -> None:
    """Split-K in small: partial sums by one kernel, their sum by another."""
    arguments = (
        "(int M, int N, int K, float alpha, const float* A, int lda, const float* B, int ldb, "
        "float beta, float* C, int ldc, float* workspace)"
    )
    text = (
        f'extern "C" __global__ void part{arguments} {{ workspace[blockIdx.x] = '
        f'A[blockIdx.x] * B[blockIdx.x * ldb]; }}\nextern "C" __global__ void total{arguments} '
        "{ C[0] = 0; for (int i = 0; i < K; ++i) C[0] += workspace[i]; }\n"
    )
    source = KernelSource("hand-written", "", Tiny("").source.config, Layout.NN, text)
    one = (1, 1, 1)
    part, total = Launch("part", (5, 1, 1), one, 0), Launch("total", one, one, 0)
    problem = Problem(1, 1, 5)
    assert emulator.run(source, LaunchPlan((part, total), 20), problem).ok
    report = emulator.run(source, LaunchPlan((total, part), 20), problem)
    assert FindingKind.UNINITIALISED in {finding.kind for finding in report.findings}
    report = emulator.run(source, LaunchPlan((part, total), 16), problem)
    assert report.findings[0].kind is FindingKind.OUT_OF_BOUNDS


def test_grids_and_blocks_have_three_extents(emulator: Emulator) -> None:
    body = (
        "int i = (int)(blockIdx.y * gridDim.x + blockIdx.x), j = (int)(threadIdx.z * blockDim.y + "
        "threadIdx.y) * (int)blockDim.x + (int)threadIdx.x;\nC[i * ldc + j] = A[i] * B[j];"
    )
    problem = Problem(6, 24, 1)
    launch = Launch("gemm_kernel", (2, 3, 1), (2, 3, 4), 0)
    assert emulator.run(Tiny(body).source, LaunchPlan((launch,)), problem).ok


def test_misaligned_bases_break_vectors_but_not_floats(emulator: Emulator) -> None:
    problem = Problem(1, 4, 1)
    plan = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (1, 1, 1), 0),))
    floats = Tiny("for (int j = 0; j < N; ++j) C[j] = A[0] * B[j];").source
    vector = Tiny(
        "float4 b = *reinterpret_cast<const float4*>(B);\n"
        "C[0] = A[0] * b.x; C[1] = A[0] * b.y; C[2] = A[0] * b.z; C[3] = A[0] * b.w;"
    ).source
    off = RunOptions(misalign_bytes=4)
    assert emulator.run(floats, plan, problem, off).ok
    assert emulator.run(vector, plan, problem).ok
    assert emulator.run(vector, plan, problem, off).findings[0].kind is FindingKind.MISALIGNED


def test_reals_pass_within_the_bound_and_integers_must_be_exact(emulator: Emulator) -> None:
    problem = Problem(1, 1, 64)
    loop = "float sum = 0;\nfor (int k = 0; k < K; ++k) sum += A[k] * B[k];\nC[0] = sum"
    right, off = Tiny(loop + ";", 1), Tiny(loop + " * 1.000001f;", 1)
    for data in Data:
        assert emulator.run(right.source, right.plan, problem, RunOptions(data=data)).ok
    ratio = emulator.run(right.source, right.plan, problem, RunOptions(data=Data.REALS))
    assert 0 < ratio.max_error_ratio < 1
    report = emulator.run(off.source, off.plan, problem)
    assert report.findings[0].kind is FindingKind.WRONG_VALUE
