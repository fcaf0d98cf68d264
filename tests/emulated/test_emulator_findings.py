"""Each kind of error, planted in a kernel of a few lines: found, named, with its line."""

from dataclasses import replace

import pytest
from handwritten import RIGHT, Tiny

from autogemm.emulator import Emulator, FindingKind, Mode, RunOptions
from autogemm.model.batch import Batch
from autogemm.model.problem import Problem

pytestmark = pytest.mark.emulated

FOUR = Problem(4, 4, 4)
WIDE = Problem(4, 4, 4, lda=6)

COPIED = "reinterpret_cast<float4*>(workspace)[0] = reinterpret_cast<float4*>(smem)[1];"

# Name: kernel, kind, line (2 is the first line of the body), part of the message.
PLANTED: dict[str, tuple[Tiny, FindingKind, int, str]] = {
    "write then read without a barrier": (
        Tiny(f"smem[t] = 1.0f;\nC[0] = smem[t ^ 1];\n{RIGHT}", smem_bytes=128),
        FindingKind.RACE,
        3,
        "smem float",
    ),
    "read then write without a barrier": (
        Tiny(
            "smem[t] = 1.0f;\n__syncthreads();\nfloat x = smem[t ^ 1];\nsmem[t] = x + 1;\n" + RIGHT,
            smem_bytes=128,
        ),
        FindingKind.RACE,
        5,
        "smem float",
    ),
    # Of the words of a vector the first is right: each that differs from it is looked at.
    "a vector whose third word another thread wrote": (
        Tiny(
            "smem[4 + t] = 1.0f;\n__syncthreads();\nif (t == 0) smem[6] = 2.0f;\n"
            f"if (t == 1) {COPIED}\n{RIGHT}",
            smem_bytes=256,
            workspace_bytes=16,
        ),
        FindingKind.RACE,
        5,
        "smem float 6",
    ),
    "a vector written over a word that another thread reads": (
        Tiny(
            "smem[4 + t] = 1.0f;\n__syncthreads();\nif (t == 0) workspace[0] = smem[6];\n"
            f"if (t == 1) reinterpret_cast<float4*>(smem)[1] = make_float4(0, 0, 0, 0);\n{RIGHT}",
            smem_bytes=256,
            workspace_bytes=16,
        ),
        FindingKind.RACE,
        5,
        "smem float 6",
    ),
    "a vector whose last word was never written": (
        Tiny(
            f"if (t < 3) smem[4 + t] = 1.0f;\n__syncthreads();\nif (t == 0) {COPIED}\n{RIGHT}",
            smem_bytes=256,
            workspace_bytes=16,
        ),
        FindingKind.UNINITIALISED,
        4,
        "smem float 7",
    ),
    "two writers of one word": (
        Tiny(f"smem[t / 2] = t;\n{RIGHT}", smem_bytes=128),
        FindingKind.RACE,
        2,
        "smem float 0",
    ),
    "__syncwarp does not order other warps": (
        Tiny(f"smem[t] = t;\n__syncwarp();\nC[0] = smem[t ^ 32];\n{RIGHT}", 64, smem_bytes=256),
        FindingKind.RACE,
        4,
        "smem float",
    ),
    "a shuffle orders no memory": (
        Tiny(
            f"smem[t] = t;\n__shfl_xor_sync(~0u, t, 1);\nif (smem[t ^ 1] < 0) C[0] = 0;\n{RIGHT}",
            smem_bytes=128,
        ),
        FindingKind.RACE,
        4,
        "smem float",
    ),
    "a partial __syncwarp orders only its lanes": (
        Tiny(
            "smem[t] = t;\nif (t < 16) { __syncwarp(0xffff);\n"
            f"if (smem[t + 16] < 0) C[0] = 0; }}\n{RIGHT}",
            smem_bytes=128,
        ),
        FindingKind.RACE,
        4,
        "smem float 16",
    ),
    "blocks write the same element": (
        Tiny("if (t == 0) C[0] = A[0] * B[0];", grid=2),
        FindingKind.RACE,
        2,
        "C[0,0] write by thread 0 of block 1",
    ),
    "a block reads what another wrote": (
        Tiny(
            f"if (t == 0) workspace[blockIdx.x] = 1;\nif (blockIdx.x == 1 && t == 1)\n"
            f"smem[0] = workspace[0];\n{RIGHT}",
            grid=2,
            smem_bytes=4,
            workspace_bytes=8,
        ),
        FindingKind.RACE,
        4,
        "workspace float 0",
    ),
    "a plain write beside atomics": (
        Tiny(
            f"if (t == 0) workspace[0] = 0;\nelse atomicAdd(workspace, 1.0f);\n{RIGHT}",
            workspace_bytes=4,
        ),
        FindingKind.RACE,
        3,
        "workspace float 0",
    ),
    "shared memory read before it is written": (
        Tiny(f"if (smem[t] == 0) C[0] = 1;\n{RIGHT}", smem_bytes=128),
        FindingKind.UNINITIALISED,
        2,
        "smem float 0",
    ),
    "shared memory of the block before": (
        Tiny(
            "if (blockIdx.x == 0) smem[t] = 0;\n__syncthreads();\n"
            f"if (blockIdx.x == 1 && smem[t] == 1) C[0] = 1;\n{RIGHT}",
            grid=2,
            smem_bytes=128,
        ),
        FindingKind.UNINITIALISED,
        4,
        "block 1",
    ),
    "static shared memory not written": (
        Tiny(
            f"__shared__ float tile[32];\nif (t == 0) tile[M] = 0;\n"
            f"if (tile[t] == 1) C[0] = 1;\n{RIGHT}"
        ),
        FindingKind.UNINITIALISED,
        4,
        "static smem float",
    ),
    "padding between rows": (
        Tiny("C[t] = A[t];", 16, problem=WIDE),
        FindingKind.UNINITIALISED,
        2,
        "A[0,4] (padding between rows)",
    ),
    "workspace not written": (
        Tiny(f"if (workspace[t] == 0) C[0] = 1;\n{RIGHT}", workspace_bytes=128),
        FindingKind.UNINITIALISED,
        2,
        "workspace float 0",
    ),
    "one element behind A": (
        Tiny("C[t] = A[t + 1];", 16, problem=FOUR),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "A[4,0] read of 4 bytes",
    ),
    "one element behind the last A of a batch": (
        Tiny("C[t] = A[t + 17];", 16, problem=replace(FOUR, batch=Batch(2))),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "A[4,0] of product 1 read of 4 bytes",
    ),
    "a row between two products": (
        Tiny("C[t] = A[t + 4];", 16, problem=replace(FOUR, batch=Batch(2, rows_a=5))),
        FindingKind.UNINITIALISED,
        2,
        "A[4,0] (gap between products)",
    ),
    "one element before B": (
        Tiny("C[t] = B[t - 1];", 16, problem=FOUR),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "B[-1,3] read of 4 bytes",
    ),
    "a vector across the end of A": (
        Tiny(
            "float4 x = reinterpret_cast<const float4*>(A)[t];\nC[0] = x.x;",
            1,
            problem=Problem(1, 1, 3),
        ),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "A[0,0] read of 16 bytes",
    ),
    "shared memory beyond what the launch asked for": (
        Tiny(f"smem[t] = 1;\n{RIGHT}", smem_bytes=124),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "smem float 31 write",
    ),
    "padding of C written": (
        Tiny("C[t] = 1;", 16, problem=Problem(4, 4, 4, ldc=5)),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "C[0,4] (padding between rows) write",
    ),
    "a wild pointer": (
        Tiny(f"if (t == 3) C[1ll << 40] = 1;\n{RIGHT}"),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "write of 4 bytes by thread 3",
    ),
    "a null pointer": (
        Tiny(f"if (t == 3) *(volatile float*)nullptr = 1;\n{RIGHT}"),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "write of 4 bytes by thread 3",
    ),
    "an index outside a local array": (
        Tiny(f"float local[4] = {{}};\nlocal[t] = 1;\nif (local[t] == 0) C[0] = 1;\n{RIGHT}"),
        FindingKind.OUT_OF_BOUNDS,
        3,
        "index outside its array by thread 4",
    ),
    "a float4 at a float's address": (
        Tiny(
            f"*reinterpret_cast<float4*>(smem + t) = make_float4(0, 0, 0, 0);\n{RIGHT}",
            smem_bytes=256,
        ),
        FindingKind.MISALIGNED,
        2,
        "smem float 1 write of 16 bytes",
    ),
    "a float2 at an odd column": (
        Tiny("float2 x = *reinterpret_cast<const float2*>(A + 1);\nC[0] = x.x;", 1, problem=FOUR),
        FindingKind.MISALIGNED,
        2,
        "A[0,1] read of 8 bytes",
    ),
    "an input written": (
        Tiny(f"if (t == 0) const_cast<float*>(B)[0] = B[0] + 0.0f;\n{RIGHT}"),
        FindingKind.INPUT_WRITTEN,
        2,
        "B[0,0]",
    ),
    "C read at beta = 0": (
        Tiny("if (t == 0) C[0] = A[0] * B[0] + (beta == 0 ? 0 * C[0] : 0);"),
        FindingKind.READS_C,
        2,
        "C[0,0]",
    ),
    "a barrier in one branch, another in the other": (
        Tiny(f"if (t < 16) {{\n__syncthreads(); }} else {{\n__syncthreads(); }}\n{RIGHT}"),
        FindingKind.BARRIER_DIVERGENCE,
        4,
        "others wait at line 3",
    ),
    "a barrier that some left behind": (
        Tiny(f"{RIGHT}\nif (t < 8) return;\n__syncthreads();"),
        FindingKind.BARRIER_DIVERGENCE,
        4,
        "others have left the kernel",
    ),
    "a shuffle that half the warp misses": (
        Tiny(f"if (t < 16) __shfl_xor_sync(~0u, t, 1);\n__syncthreads();\n{RIGHT}"),
        FindingKind.WARP_DIVERGENCE,
        2,
        "not all lanes of the mask take part",
    ),
    "a shuffle by a lane outside its mask": (
        Tiny(f"__shfl_xor_sync(0xff, t, 1);\n{RIGHT}"),
        FindingKind.WARP_DIVERGENCE,
        2,
        "by thread 8",
    ),
    "a shuffle from a lane outside the mask": (
        Tiny(f"if (t < 16) __shfl_down_sync(0xffff, t, 8);\n{RIGHT}"),
        FindingKind.WARP_DIVERGENCE,
        2,
        "by thread 15",
    ),
    "a copy used by its own thread before the wait": (
        Tiny(
            f"copy_async_4(smem + t, A);\ncommit_copies();\nif (smem[t] == 0) C[0] = 1;\n{RIGHT}",
            smem_bytes=128,
        ),
        FindingKind.IN_FLIGHT,
        4,
        "copy by thread 0 of block 0 at line 2",
    ),
    "a wait for the wrong group": (
        Tiny(
            "copy_async_4(smem + t, A);\ncommit_copies();\ncopy_async_4(smem + 32 + t, A);\n"
            "commit_copies();\nwait_for_copies(1);\n__syncthreads();\n"
            f"if (smem[32 + t] == 0) C[0] = 1;\n{RIGHT}",
            smem_bytes=256,
        ),
        FindingKind.IN_FLIGHT,
        8,
        "at line 4",
    ),
    "a copy never committed": (
        Tiny(
            "copy_async_4(smem + t, A);\nwait_for_copies(0);\n__syncthreads();\n"
            f"if (smem[t] == 0) C[0] = 1;\n{RIGHT}",
            smem_bytes=128,
        ),
        FindingKind.IN_FLIGHT,
        5,
        "at line 2",
    ),
    "another thread's copy, waited for without a barrier": (
        Tiny(
            "copy_async_4(smem + t, A);\ncommit_copies();\nwait_for_copies(0);\n"
            f"if (smem[t ^ 1] == 0) C[0] = 1;\n{RIGHT}",
            smem_bytes=128,
        ),
        # Whether the other one still flies or has landed unordered is a matter of schedule.
        FindingKind.RACE,
        5,
        "smem float",
    ),
    "a copy over what others still read": (
        Tiny(
            "smem[t] = 0;\n__syncthreads();\nif (smem[t ^ 1] == 1) C[0] = 1;\n"
            f"copy_async_4(smem + t, A);\ncommit_copies();\nwait_for_copies(0);\n{RIGHT}",
            smem_bytes=128,
        ),
        FindingKind.RACE,
        5,
        "smem float",
    ),
    "a copy from an odd address": (
        Tiny(f"copy_async_8(smem + 2 * t, A + 1, 8);\n{RIGHT}", 1, smem_bytes=8, problem=FOUR),
        FindingKind.MISALIGNED,
        2,
        "A[0,1] read of 8 bytes",
    ),
    "a copy beyond A": (
        Tiny(
            f"copy_async_16(smem, A + 4, 16);\n{RIGHT}", 1, smem_bytes=16, problem=Problem(1, 1, 5)
        ),
        FindingKind.OUT_OF_BOUNDS,
        2,
        "A[0,4] read of 16 bytes",
    ),
    "a copy of more bytes than it has": (
        Tiny(f"copy_async_4(smem, A, 8);\n{RIGHT}", 1, smem_bytes=4),
        FindingKind.BAD_COPY,
        2,
        "valid_bytes out of range",
    ),
    "an element of C left out": (
        Tiny("if (t != 5) C[t] = 0;", 16, problem=FOUR),
        FindingKind.NEVER_WRITTEN,
        0,
        "C[1,1]",
    ),
    "a local array never written": (
        Tiny("float x[4];\nif (M > 5) x[K] = 0;\nC[0] = A[0] * B[0] + x[K];", 1),
        FindingKind.WRONG_VALUE,
        0,
        "C[0,0] is",
    ),
    "a division by zero": (
        Tiny("C[0] = A[0] * B[0] + 7 / (M - 1);", 1),
        FindingKind.CRASHED,
        2,
        "SIGFPE",
    ),
    "a stack that overflows": (
        Tiny(
            f"C[0] = deep(M);\n{RIGHT}",
            1,
            prelude="__noinline__ float deep(int n) { volatile float x[999]; x[0] = n; "
            "return n < 0 ? 0 : deep(n + 1) + x[0]; } ",
        ),
        FindingKind.CRASHED,
        0,
        "SIGSEGV",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_found_with_its_line(emulator: Emulator, name: str) -> None:
    tiny, kind, line, words = PLANTED[name]
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    matching = [finding for finding in report.findings if finding.kind is kind]
    assert matching, [str(finding) for finding in report.findings]
    if line:
        assert line in [finding.line for finding in matching], [str(f) for f in report.findings]
        matching = [finding for finding in matching if finding.line == line]
    assert any(words in str(finding) for finding in matching), [str(f) for f in matching]
    assert not report.ok
    assert report.message


RACY = [name for name, (_, kind, _, _) in PLANTED.items() if kind is FindingKind.RACE]


@pytest.mark.parametrize("name", RACY)
@pytest.mark.parametrize("seed", [1, 2])
def test_races_are_found_whatever_the_schedule(emulator: Emulator, name: str, seed: int) -> None:
    tiny = PLANTED[name][0]
    report = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(seed=seed))
    kinds = {finding.kind for finding in report.findings}
    assert kinds & {FindingKind.RACE, FindingKind.IN_FLIGHT}, report.message


def test_a_kernel_that_does_not_end_is_stopped(emulator: Emulator) -> None:
    tiny = Tiny("while (M > 0) {\nC[0] = 1; }", 1)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(deadline_s=1))
    finding = report.findings[0]
    assert finding.kind is FindingKind.TIMED_OUT
    assert "within 1 s" in finding.detail


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("C[0] = A[0] * B[0]; C[1] = 1;", FindingKind.OUT_OF_BOUNDS),
        ("C[0] = A[0] * B[0]; smem[0] = 1;", FindingKind.OUT_OF_BOUNDS),
        ("C[0] = A[0] * B[0]; const_cast<float*>(A)[0] = 9;", FindingKind.INPUT_WRITTEN),
        ("C[0] = A[0] * B[0] + 1;", FindingKind.WRONG_VALUE),
        ("C[0] = 0 * C[0];", FindingKind.WRONG_VALUE),
        ("C[0] = 0 * smem[-1];", FindingKind.WRONG_VALUE),
        ("*(volatile float*)nullptr = 1;", FindingKind.CRASHED),
        ("C[1ll << 40] = 1;", FindingKind.CRASHED),
        ("if (t < 8) __syncthreads(); C[0] = A[0] * B[0];", FindingKind.BARRIER_DIVERGENCE),
    ],
)
def test_fast_mode_sees_what_was_left_behind(
    emulator: Emulator, body: str, kind: FindingKind
) -> None:
    tiny = Tiny(body)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem, RunOptions(mode=Mode.FAST))
    assert kind in {finding.kind for finding in report.findings}, report.message


def test_one_line_is_one_finding_with_a_count(emulator: Emulator) -> None:
    tiny = Tiny("C[t] = A[t + 16];", 16, problem=FOUR)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    (finding,) = [f for f in report.findings if f.kind is FindingKind.OUT_OF_BOUNDS]
    assert finding.count == 16
    assert finding.text == "C[t] = A[t + 16];"


def test_a_finding_in_an_inlined_function_names_its_callers(emulator: Emulator) -> None:
    prelude = "__device__ __forceinline__ float get(const float* p, int i) { return p[i]; }\n"
    tiny = Tiny(f"C[0] = get(A, 5);\n{RIGHT}", 1, prelude=prelude)
    report = emulator.run(tiny.source, tiny.plan, tiny.problem)
    finding = report.findings[0]
    assert (finding.line, finding.called_from) == (1, (3,))
