"""Bugs to plant in the PTX of emitted kernels, for which the emulator has twins.

`tests/gpu/test_wrappers.py` shows that the checks that a user gets refuse each of them on a GPU;
`tests/unit/test_ptx_wrappers.py` that each applies, and which wrappers have none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from golden_cases import GOLDEN_CASES
from handover import KERNELS
from ptx_wrappers import wrappers_of

from autogemm.codegen import render
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family

CASES = {str(case): case for case in GOLDEN_CASES}


@dataclass(frozen=True)
class Golden:
    """The config of a golden source, and problems that need its wrappers."""

    name: str
    problems: tuple[Problem, ...]

    def runs(self) -> Iterator[tuple[Problem, KernelSource, LaunchPlan]]:
        """Each problem with its source and plan; few blocks, so that each has several tiles."""
        case = CASES[self.name]
        family = load_family(case.family)
        for problem in self.problems:
            plan = launch_plan(family, case.config, problem, few_blocks=True)
            yield problem, render(family, case.config, problem), plan


@dataclass(frozen=True)
class Handwritten:
    """A kernel of tests/handover, or one of its edits that are right."""

    name: str
    edit: str = ""

    def runs(self) -> Iterator[tuple[Problem, KernelSource, LaunchPlan]]:
        kernel = KERNELS[self.name]
        assert not self.edit or self.edit in kernel.right
        yield kernel.problem, kernel.for_a_gpu(self.edit), kernel.plan


@dataclass(frozen=True)
class Bug:
    """Within the wrapper of that name, ``old`` becomes ``new``; ``name`` says what it is."""

    base: str
    wrapper: str
    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.wrapper}: {self.name}"

    def planted_in(self, source: KernelSource) -> KernelSource:
        """The mutant. Fails where the wrapper is not there or no longer has the text to edit."""
        text, applied = source.text, False
        for one in reversed(wrappers_of(text)):
            if one.name == self.wrapper and self.old in one.text:
                text = text[: one.start] + one.text.replace(self.old, self.new) + text[one.end :]
                applied = True
        assert applied, f"{self.base}: {self.wrapper} no longer has {self.old!r}"
        return replace(source, text=text)


def exchanged(base: str, wrapper: str, name: str, first: str, second: str) -> Bug:
    """Two operands side by side, the other way round."""
    return Bug(base, wrapper, name, f"{first}, {second}", f"{second}, {first}")


def tensor(m: int, n: int, k: int, dtype: DType, layout: Layout = Layout.NN) -> Problem:
    return Problem(m, n, k, layout, dtype)


BASES: dict[str, Golden | Handwritten] = {
    "simt": Golden("sgemm_simt_pipeline", (Problem(256, 256, 512), Problem(512, 512, 2048))),
    "simt by 4 bytes": Golden("sgemm_simt_pipeline_any_size", (Problem(131, 129, 77),)),
    "simt by 8 bytes": Golden(
        "sgemm_simt_pipeline_one_fragment_any_k",
        (Problem(128, 128, 1000, Layout.TN, lda=130, ldb=1002, ldc=130),),
    ),
    "simt by 16 bytes": Golden(
        "sgemm_simt_pipeline_separate_any_size",
        (Problem(250, 251, 1003, Layout.TT, lda=252, ldb=1004, ldc=252),),
    ),
    "slices": Golden("sgemm_simt_double_buffer_separate_inward", (Problem(257, 259, 1023),)),
    "split": Golden("sgemm_simt_pipeline_split", (Problem(128, 128, 4096),)),
    "mma bf16": Golden("gemm_mma_bf16", (tensor(256, 256, 512, DType.BF16),)),
    "mma f16": Golden(
        "gemm_mma_f16_any_columns",
        (replace(tensor(256, 200, 512, DType.F16, Layout.TN), alpha=0.3, beta=0.7),),
    ),
    "mma f16 twice": Golden("gemm_mma_f16_through_registers", (tensor(256, 256, 512, DType.F16),)),
    "mma fused": Golden(
        "gemm_mma_fused",
        (
            replace(
                tensor(256, 256, 512, DType.F16),
                epilogue=Epilogue("relu(silu(acc + bias[n]) + c[m, n])"),
            ),
        ),
    ),
    "mma tf32": Golden("gemm_mma_tf32", (tensor(256, 256, 512, DType.TF32),)),
    "emulated": Golden("sgemm_emulated_bf16x9", (Problem(128, 128, 256, Layout.NT),)),
    "few rows": Golden("gemm_skinny_bf16", (tensor(8, 256, 2048, DType.BF16, Layout.NT),)),
    "few rows by 8 bytes": Golden(
        "gemm_skinny_bf16_f32_columns", (tensor(1, 256, 1000, DType.BF16_F32),)
    ),
    "few rows by 4 bytes": Golden(
        "gemm_skinny_f16_f32_pairs", (tensor(8, 264, 2048, DType.F16_F32, Layout.TN),)
    ),
    "few rows e4m3": Golden("gemm_skinny_e4m3", (tensor(8, 256, 2048, DType.E4M3, Layout.NT),)),
    "few rows e5m2": Golden(
        "gemm_skinny_e5m2_f32_any_size", (tensor(3, 101, 1003, DType.E5M2_F32, Layout.NT),)
    ),
    "few rows i8": Golden("gemm_skinny_i8_split", (tensor(8, 256, 2064, DType.I8, Layout.NT),)),
    "wgmma": Golden("gemm_wgmma_bf16", (tensor(512, 512, 512, DType.BF16),)),
    "wgmma alone": Golden(
        "gemm_wgmma_bf16_alone", (tensor(256, 512, 1536, DType.BF16, Layout.TT),)
    ),
    "wgmma groups": Golden(
        "gemm_wgmma_grouped_in_pairs",
        (
            replace(
                tensor(600, 512, 512, DType.BF16, Layout.NT), groups=Groups.parse("300,1,0,299")
            ),
        ),
    ),
    "wgmma groups of few rows": Golden(
        "gemm_wgmma_grouped_few_rows",
        (replace(tensor(64, 512, 512, DType.BF16, Layout.NT), groups=Groups.parse("40,0,1,23")),),
    ),
    "wgmma swapped": Golden("gemm_wgmma_bf16_swapped", (tensor(800, 512, 512, DType.BF16),)),
    "wgmma f16": Golden("gemm_wgmma_f16_pingpong", (tensor(512, 512, 512, DType.F16, Layout.NT),)),
    "wgmma tf32": Golden("gemm_wgmma_tf32", (tensor(512, 512, 512, DType.TF32),)),
    "wgmma tf32 packed": Golden("gemm_wgmma_tf32_packed_b", (tensor(512, 512, 512, DType.TF32),)),
    "wgmma e4m3": Golden("gemm_wgmma_e4m3", (tensor(512, 512, 512, DType.E4M3, Layout.NT),)),
    "wgmma e5m2 by e4m3": Golden(
        "gemm_wgmma_e5m2_by_e4m3", (tensor(512, 512, 512, DType.E5M2_BY_E4M3, Layout.NT),)
    ),
    "wgmma e4m3 to e4m3": Golden(
        "gemm_wgmma_e4m3_e4m3",
        (
            replace(
                tensor(512, 512, 512, DType.E4M3_E4M3, Layout.NT), epilogue=Epilogue("acc * scale")
            ),
        ),
    ),
    "wgmma e5m2 to e5m2": Golden(
        "gemm_wgmma_e5m2_e5m2_by_threads",
        (replace(tensor(512, 510, 512, DType.E5M2_E5M2, Layout.NT), beta=0.5),),
    ),
    "wgmma i8": Golden("gemm_wgmma_i8", (tensor(512, 512, 512, DType.I8, Layout.NT),)),
    "wgmma split": Golden("gemm_wgmma_bf16_split", (tensor(64, 512, 1024, DType.BF16),)),
    "emulated wgmma": Golden("sgemm_emulated_wgmma_f16x3", (Problem(512, 512, 512),)),
    "cluster": Handwritten("cluster"),
    "cluster, relaxed": Handwritten("cluster", "a fence, then a relaxed arrival"),
    "cluster, pushed": Handwritten("cluster", "pushed instead of pulled"),
    "bulk copies": Handwritten("bulk copies"),
    "bulk copies, exchanged": Handwritten("bulk copies", "a barrier of the consumers"),
    "multicast": Handwritten("multicast"),
    "split by hand": Handwritten("split K", "an atomic that releases and acquires"),
}

CP_16 = "cp.async.cg.shared.global [%0], [%1], 16"
CP_8 = "cp.async.ca.shared.global [%0], [%1], 8"
CP_4 = "cp.async.ca.shared.global [%0], [%1], 4"
WAIT = '"n"(MAX_PENDING_COPIES)'
NOTHING = '""'

BUGS: tuple[Bug, ...] = (
    # Copies of a few bytes.
    Bug("simt by 16 bytes", "copy_async_16", "valid bytes ignored", f"{CP_16}, %2;", f"{CP_16};"),
    Bug("mma bf16", "copy_async_16", "zeros", f"{CP_16};", f"{CP_16}, 0;"),
    Bug("simt by 8 bytes", "copy_async_8", "valid bytes ignored", f"{CP_8}, %2;", f"{CP_8};"),
    Bug("simt by 8 bytes", "copy_async_8", "half", f"{CP_8}, %2;", f"{CP_8}, 4;"),
    Bug("simt by 4 bytes", "copy_async_4", "valid bytes ignored", f"{CP_4}, %2;", f"{CP_4};"),
    Bug("simt", "commit_copies", "nothing committed", '"cp.async.commit_group;"', NOTHING),
    Bug("simt", "wait_for_copies", "one group too few", WAIT, '"n"(MAX_PENDING_COPIES + 1)'),
    Bug("simt", "wait_for_copies", "no wait", '"cp.async.wait_group %0;"', '"// %0"'),
    # Counters and flags in global memory.
    Bug("split", "atomic_add_acq_rel", "keeps the larger", "atom.add", "atom.max"),
    Bug(
        "split by hand",
        "atomic_add_acq_rel",
        "not atomic",
        "atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;",
        "{ .reg .u32 a; ld.relaxed.gpu.global.u32 %0, [%1]; add.u32 a, %0, %2; "
        "st.relaxed.gpu.global.u32 [%1], a; }",
    ),
    Bug("split", "load_acquire", "another word", "[%1]", "[%1+4]"),
    # Named barriers.
    Bug("slices", "named_barrier_sync", "does not wait", "barrier.sync", "barrier.arrive"),
    Bug("slices", "named_barrier_sync", "one for all", '"r"(number)', '"r"(1)'),
    Bug("wgmma", "named_barrier_sync", "does not wait", "barrier.sync", "barrier.arrive"),
    Bug(
        "bulk copies, exchanged",
        "named_barrier_sync",
        "32 threads too many",
        '"r"(num_threads)',
        '"r"(num_threads + 32)',
    ),
    # Elements of 16 bits.
    Bug("mma f16", "float_from_f16", "read as bf16", "cvt.f32.f16", "cvt.f32.bf16"),
    Bug("mma f16", "f16_from_float", "rounded to zero", "cvt.rn", "cvt.rz"),
    Bug("mma bf16", "bf16_from_float", "rounded to zero", "cvt.rn", "cvt.rz"),
    exchanged("wgmma", "bf16_pair", "exchanged", '"f"(high)', '"f"(low)'),
    Bug("wgmma", "bf16_pair", "rounded to zero", "cvt.rn", "cvt.rz"),
    exchanged("wgmma f16", "f16_pair", "exchanged", '"f"(high)', '"f"(low)'),
    Bug("wgmma f16", "f16_pair", "rounded to zero", "cvt.rn", "cvt.rz"),
    # Functions of epilogues.
    Bug("mma fused", "fast_exp2", "the logarithm", "ex2", "lg2"),
    Bug("mma fused", "fast_reciprocal", "of the root", "rcp", "rsqrt"),
    # Elements of 8 bits.
    exchanged("wgmma e4m3 to e4m3", "e4m3_pair", "exchanged", '"f"(high)', '"f"(low)'),
    Bug("wgmma e4m3 to e4m3", "e4m3_pair", "the other type", "e4m3x2", "e5m2x2"),
    Bug("wgmma e5m2 to e5m2", "e5m2_pair", "negative ones to 0", "satfinite", "satfinite.relu"),
    Bug("wgmma e5m2 to e5m2", "float_from_e5m2", "the upper one", "low, high }", "high, low }"),
    Bug("wgmma e5m2 to e5m2", "float_from_e5m2", "the other type", "e5m2x2", "e4m3x2"),
    # Loads of weights.
    exchanged("few rows", "load_streamed_16", "words exchanged", '"=r"(to[1])', '"=r"(to[2])'),
    exchanged(
        "few rows by 8 bytes", "load_streamed_8", "words exchanged", '"=r"(to[0])', '"=r"(to[1])'
    ),
    Bug("few rows by 4 bytes", "load_streamed_4", "the word behind", "[%1]", "[%1+4]"),
    # Weights of 8 bits.
    Bug("few rows e4m3", "half_pairs_from_e4m3", "the other type", "e4m3x2", "e5m2x2"),
    Bug("few rows e4m3", "half_pairs_from_e4m3", "the first pair twice", "%1, high", "%1, low"),
    Bug("few rows e4m3", "half_pairs_from_e4m3", "zeros", "{ low, high }, %2", "{ low, high }, 0"),
    Bug("few rows e5m2", "half_pairs_from_e5m2", "the other type", "e5m2x2", "e4m3x2"),
    # Products of a warp.
    exchanged("mma bf16", "mma_bf16_k16", "registers of B exchanged", '"r"(b[0])', '"r"(b[1])'),
    exchanged("mma bf16", "mma_bf16_k16", "registers of A exchanged", '"r"(a[1])', '"r"(a[2])'),
    Bug("mma bf16", "mma_bf16_k16", "read as f16", "bf16.bf16", "f16.f16"),
    exchanged("mma bf16", "mma_bf16_k16", "accumulators exchanged", '"+f"(d[0])', '"+f"(d[1])'),
    exchanged("mma f16", "mma_f16_k16", "registers of B exchanged", '"r"(b[0])', '"r"(b[1])'),
    Bug("mma f16", "mma_f16_k16", "read as bf16", "f16.f16.f32", "bf16.bf16.f32"),
    Bug("mma f16 twice", "mma_f16_k8_twice", "halves of B exchanged", "b[half]", "b[1 - half]"),
    exchanged(
        "mma f16 twice",
        "mma_f16_k8_twice",
        "rows of A exchanged",
        '"r"(a[2 * half])',
        '"r"(a[2 * half + 1])',
    ),
    exchanged("mma tf32", "mma_tf32_k8", "registers of B exchanged", '"r"(b[0])', '"r"(b[1])'),
    Bug(
        "mma tf32",
        "mma_tf32_k8",
        "the last product only",
        "{ %8, %9 }, { %0, %1, %2, %3 };",
        "{ %8, %9 }, { 0f00000000, 0f00000000, 0f00000000, 0f00000000 };",
    ),
    exchanged("few rows i8", "mma_i8_k32", "registers of B exchanged", '"r"(b[0])', '"r"(b[1])'),
    exchanged("few rows i8", "mma_i8_k32", "registers of A exchanged", '"r"(a[1])', '"r"(a[2])'),
    Bug("few rows i8", "mma_i8_k32", "unsigned", "s8.s8", "u8.s8"),
    Bug("mma bf16", "load_matrices", "transposed", "x4.shared", "x4.trans.shared"),
    exchanged("mma bf16", "load_matrices", "matrices exchanged", '"=r"(to[1])', '"=r"(to[2])'),
    Bug("mma bf16", "load_transposed", "not transposed", "x4.trans.shared", "x4.shared"),
    exchanged(
        "mma bf16", "load_transposed", "matrices exchanged", '"=r"(first[1])', '"=r"(second[0])'
    ),
    Bug("emulated", "rest_of", "the other way round", "sub.rn.f32 c, a, b", "sub.rn.f32 c, b, a"),
    Bug("emulated", "rest_of", "added", "sub.rn.f32", "add.rn.f32"),
    # Clusters of blocks.
    Bug("cluster", "cluster_rank", "always 0", "%%cluster_ctarank", "0"),
    Bug("wgmma", "cluster_rank", "the number of blocks", "%%cluster_ctarank", "%%cluster_nctarank"),
    Bug("cluster", "cluster_arrive_release", "no arrival", "barrier.cluster.arrive.release;", ""),
    Bug("cluster", "cluster_wait_acquire", "no wait", "barrier.cluster.wait.acquire;", ""),
    Bug(
        "cluster",
        "address_in_rank",
        "the block's own",
        "mapa.shared::cluster.u32 %0, %1, %2;",
        "mov.u32 %0, %1; // %2",
    ),
    Bug(
        "cluster", "load_from_rank", "floats exchanged", "{ %0, %1, %2, %3 }", "{ %1, %0, %2, %3 }"
    ),
    Bug(
        "cluster, pushed",
        "store_to_rank",
        "floats exchanged",
        "{ %1, %2, %3, %4 }",
        "{ %2, %1, %3, %4 }",
    ),
    Bug(
        "wgmma split",
        "store_async_to_rank",
        "floats exchanged",
        "{ %1, %2, %3, %4 }",
        "{ %2, %1, %3, %4 }",
    ),
    Bug(
        "wgmma split",
        "store_async_to_rank",
        "the sender's own memory",
        "address_in_rank(shared, rank)",
        "(unsigned)__cvta_generic_to_shared(shared)",
    ),
    Bug(
        "wgmma split",
        "store_async_to_rank",
        "counted by the first block",
        "address_in_rank(mbarrier, rank)",
        "address_in_rank(mbarrier, 0)",
    ),
    Bug(
        "cluster, relaxed",
        "cluster_arrive_relaxed",
        "no arrival",
        "barrier.cluster.arrive.relaxed;",
        "",
    ),
    # Barriers in shared memory.
    Bug(
        "wgmma",
        "mbarrier_init",
        "an arrival too many",
        '"r"(num_arrivals)',
        '"r"(num_arrivals + 1)',
    ),
    Bug("wgmma", "mbarrier_init", "one arrival is enough", '"r"(num_arrivals)', '"r"(1)'),
    Bug("wgmma", "fence_before_bulk_copies", "no fence", "fence.proxy.async.shared::cta;", ""),
    Bug(
        "wgmma alone",
        "mbarrier_arrive",
        "no arrival",
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];",
        "// %0",
    ),
    Bug("wgmma alone", "mbarrier_arrive", "counts as two", "_, [%0];", "_, [%0], 2;"),
    Bug("wgmma alone", "mbarrier_arrive_expect", "expects nothing", '"r"(num_bytes)', '"r"(0)'),
    Bug(
        "wgmma alone",
        "mbarrier_arrive_expect",
        "expects too much",
        '"r"(num_bytes)',
        '"r"(num_bytes + 16)',
    ),
    Bug(
        "wgmma alone",
        "mbarrier_arrive_expect",
        "does not arrive",
        "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;",
    ),
    Bug("wgmma", "mbarrier_wait", "the other parity", '"r"(parity)', '"r"(parity ^ 1)'),
    Bug("wgmma", "mbarrier_wait", "no wait", "done == 0", "done > 1"),
    Bug(
        "multicast", "mbarrier_arrive_at_rank", "at the first", "(mbarrier, rank)", "(mbarrier, 0)"
    ),
    Bug(
        "wgmma",
        "mbarrier_arrive_relaxed_at_rank",
        "at the first",
        "(mbarrier, rank)",
        "(mbarrier, 0)",
    ),
    Bug("wgmma", "mbarrier_wait", "asks once", "done == 0", "false"),
    # Bulk copies and tiles.
    Bug("bulk copies", "copy_bulk", "16 bytes too few", '"r"(num_bytes)', '"r"(num_bytes - 16)'),
    Bug("emulated wgmma", "copy_bulk", "16 bytes too few", '"r"(num_bytes)', '"r"(num_bytes - 16)'),
    Bug(
        "emulated wgmma",
        "copy_bulk_to_ranks",
        "to the first alone",
        '"h"((unsigned short)ranks)',
        '"h"((unsigned short)1)',
    ),
    exchanged("wgmma alone", "copy_tile", "row and column exchanged", '"r"(column)', '"r"(row)'),
    exchanged("wgmma", "copy_tile_to_ranks", "row and column exchanged", '"r"(column)', '"r"(row)'),
    Bug(
        "wgmma",
        "copy_tile_to_ranks",
        "to the first alone",
        '"h"((unsigned short)ranks)',
        '"h"((unsigned short)1)',
    ),
    exchanged("wgmma", "store_tile", "row and column exchanged", '"r"(column)', '"r"(row)'),
    *(
        Bug(base, wrapper, name, old, new)
        for base, wrapper in (
            *(("wgmma groups", "copy_tile"), ("wgmma groups", "store_tile")),
            ("wgmma groups of few rows", "copy_tile_to_ranks"),
        )
        for name, old, new in (
            ("no end of a group", '"r"(map.end)', '"r"(0)'),
            ("a row later", "LAST_ROW + row - map.end", "LAST_ROW + 1 + row - map.end"),
        )
    ),
    Bug("wgmma", "commit_tile_stores", "nothing committed", "cp.async.bulk.commit_group;", ""),
    Bug("wgmma", "wait_for_tile_reads", "no wait", "cp.async.bulk.wait_group.read %0;", "// %0"),
    Bug("wgmma", "wait_for_tile_reads", "a group left", '"n"(num_left)', '"n"((num_left) + 1)'),
    # Products of a warpgroup.
    Bug("wgmma", "is_elected", "all but one", "selp.u32 %0, 1, 0", "selp.u32 %0, 0, 1"),
    Bug("wgmma", "is_elected", "none", "selp.u32 %0, 1, 0", "selp.u32 %0, 0, 0"),
    exchanged("wgmma", "wgmma_bf16_km", "operands exchanged", '"l"(a)', '"l"(b)'),
    Bug("wgmma", "wgmma_bf16_km", "adds where it should not", "setp.ne.b32", "setp.eq.b32"),
    Bug(
        "wgmma",
        "wgmma_bf16_km",
        "B not transposed",
        "accumulate, 1, 1, 0, 1;",
        "accumulate, 1, 1, 0, 0;",
    ),
    Bug(
        "wgmma", "wgmma_bf16_km", "A negated", "accumulate, 1, 1, 0, 1;", "accumulate, -1, 1, 0, 1;"
    ),
    Bug("wgmma", "wgmma_bf16_km", "read as f16", ".bf16.bf16 ", ".f16.f16 "),
    Bug(
        "wgmma alone",
        "wgmma_bf16_mk",
        "A not transposed",
        "accumulate, 1, 1, 1, 0;",
        "accumulate, 1, 1, 0, 0;",
    ),
    Bug("wgmma f16", "wgmma_f16_kk", "read as bf16", ".f16.f16 ", ".bf16.bf16 "),
    exchanged("wgmma tf32", "wgmma_tf32_rk", "registers of A exchanged", '"r"(a[1])', '"r"(a[2])'),
    exchanged("wgmma tf32 packed", "wgmma_tf32_kk", "operands exchanged", '"l"(a)', '"l"(b)'),
    exchanged("wgmma e4m3", "wgmma_e4m3_kk", "operands exchanged", '"l"(a)', '"l"(b)'),
    Bug("wgmma e4m3", "wgmma_e4m3_kk", "read as e5m2", ".e4m3.e4m3 ", ".e5m2.e5m2 "),
    Bug("wgmma e5m2 by e4m3", "wgmma_e5m2xe4m3_kk", "exchanged", ".e5m2.e4m3 ", ".e4m3.e5m2 "),
    Bug("wgmma e5m2 by e4m3", "wgmma_e5m2xe4m3_kk", "B as A", ".e5m2.e4m3 ", ".e5m2.e5m2 "),
    exchanged("wgmma i8", "wgmma_i8_kk", "operands exchanged", '"l"(a)', '"l"(b)'),
    Bug("wgmma i8", "wgmma_i8_kk", "a read as unsigned", ".s8.s8 ", ".u8.s8 "),
    Bug("wgmma i8", "wgmma_i8_kk", "b read as unsigned", ".s8.s8 ", ".s8.u8 "),
    Bug("wgmma", "give_up_registers", "none given up", "setmaxnreg.dec.sync.aligned.u32 40;", ""),
    Bug(
        "wgmma",
        "take_registers",
        "more than there are",
        "setmaxnreg.inc.sync.aligned.u32 232;",
        "setmaxnreg.inc.sync.aligned.u32 256;",
    ),
    Bug("wgmma", "store_matrices", "transposed", "x4.shared", "x4.trans.shared"),
    exchanged("wgmma", "store_matrices", "matrices exchanged", '"r"(from[1])', '"r"(from[2])'),
    Bug(
        "wgmma swapped",
        "store_matrices_transposed",
        "not transposed",
        "x4.trans.shared",
        "x4.shared",
    ),
    exchanged(
        "wgmma swapped",
        "store_matrices_transposed",
        "matrices exchanged",
        '"r"(from[1])',
        '"r"(from[2])',
    ),
)
