"""Golden sources for few rows or columns."""

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, batched, fused, grouped

TILE_32_DEEP: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 128, "TM": 8, "TN": 4, "SLICE_K": 16, "STAGES": 4},
}

CASES = (
    GoldenCase(
        "split",
        Problem(16, 4096, 4096),
        {"BM": 16, "BN": 128, "BK": 64, "TM": 16, "SLICE_K": 8, "SPLIT_K": 4},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "two_levels_any_size",
        Problem(31, 33, 65533, layout=Layout.NT),
        TILE_32_DEEP | {"SPLIT_K": 132, "FAN_IN": 12},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "half_warps",
        Problem(32, 32, 65536),
        TILE_32_DEEP | {"TN": 8, "SPLIT_K": 132, "FAN_IN": 64, "STAGES": 2},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "half_warps_side_by_side",
        Problem(8, 64, 4096, layout=Layout.TT),
        {"BM": 8, "BN": 64, "TM": 8, "SLICE_K": 8},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "half_warps_chains",
        Problem(16, 4096, 4096),
        {"BM": 8, "BN": 64, "TM": 8, "SLICE_K": 8, "CHAIN_K": 64},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "chains_any_size",
        Problem(15, 4093, 4094, layout=Layout.NT, ldb=4096, ldc=4096),
        {"BM": 8, "BN": 64, "TM": 4, "SLICE_K": 8, "CHAIN_K": 64},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "wide_any_columns",
        Problem(64, 4098, 4096, layout=Layout.TN),
        {"BM": 64, "TM": 16, "TN": 8, "SLICE_K": 8, "STAGES": 2},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "through_registers",
        Problem(32, 4096, 4096, layout=Layout.TT),
        TILE_32_DEEP | {"SPLIT_K": 1, "STAGES": 1},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "dependent",
        Problem(16, 4096, 4096, layout=Layout.NT),
        {"BM": 16, "BN": 128, "BK": 64, "TM": 16, "SLICE_K": 8, "SPLIT_K": 4, "PDL": "late"},
        family="sgemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "bf16",
        Problem(8, 4096, 4096, Layout.NT, DType.BF16),
        {"BK": 512, "SLICE_K": 8, "STAGES": 4, "PREFETCH_A": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "bf16_dependent",
        Problem(8, 4096, 4096, Layout.NN, DType.BF16),
        {"BK": 64, "SLICE_K": 2, "STAGES": 4, "MIN_BLOCKS": 1, "PDL": "early"},
        family="gemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_dependent_ahead",
        Problem(
            *(8, 7168, 2048, Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        ),
        {"BK": 1024, "SLICE_K": 8, "STAGES": 1, "PDL": "late", "L2_AHEAD": 1},
        family="gemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_dependent_split",
        Problem(8, 2112, 7168, Layout.NT, DType.BF16),
        {"BK": 256, "SLICE_K": 4, "SPLIT_K": 4, "MIN_BLOCKS": 1, "PDL": "early", "L2_AHEAD": 2},
        family="gemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_cluster",
        Problem(
            *(16, 2112, 7168, Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        ),
        {"BM": 16, "BK": 1792, "SLICE_K": 7, "SPLIT_K": 2, "PARTIALS": "cluster", "STAGES": 1}
        | {"PREFETCH_A": 1, "MIN_BLOCKS": 1, "PDL": "early", "L2_AHEAD": 1},
        family="gemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "gated_cluster",
        Problem(
            11, 1000, 2048, Layout.NN, DType.BF16, epilogue=Epilogue("silu(acc[n]) * acc[n + N]")
        ),
        {"BM": 16, "BN": 64, "BK": 128, "WN": 64, "SLICE_K": 2, "SPLIT_K": 8, "STAGES": 1}
        | {"PARTIALS": "cluster", "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_split",
        Problem(13, 28672, 4104, Layout.NT, DType.BF16),
        {
            "BM": 16,
            "BN": 64,
            "BK": 512,
            "WN": 64,
            "SLICE_K": 8,
            "SPLIT_K": 4,
            "STAGES": 2,
            "MIN_BLOCKS": 1,
        },
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "f16_columns",
        Problem(8, 4104, 4096, Layout.NN, DType.F16),
        {"BN": 128, "BK": 256, "WN": 64, "SLICE_K": 4, "SPLIT_K": 24, "STAGES": 2, "PREFETCH_A": 1}
        | {"MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "f16_f32_any_size",
        Problem(33, 1001, 1003, Layout.TT, DType.F16_F32),
        {"BM": 32, "BN": 64, "BK": 256, "WN": 64, "SLICE_K": 4, "PREFETCH_A": 1, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "bf16_f32_columns",
        Problem(1, 4096, 1000, Layout.NN, DType.BF16_F32),
        {"BN": 32, "BK": 256, "WN": 32, "SLICE_K": 8, "STAGES": 2, "PREFETCH_A": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "f16_f32_pairs",
        Problem(8, 4104, 4096, Layout.TN, DType.F16_F32),
        {"BK": 256, "SLICE_K": 8, "STAGES": 2, "PREFETCH_A": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "bf16_any_columns",
        Problem(3, 1001, 1003, Layout.NN, DType.BF16),
        {"BK": 128, "SLICE_K": 4, "SPLIT_K": 2, "PREFETCH_A": 1, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    # 8-bit floats.
    GoldenCase(
        "e4m3",
        Problem(8, 4096, 4096, Layout.NT, DType.E4M3),
        {"SLICE_K": 8, "PREFETCH_A": 1, "MIN_BLOCKS": 3},
        family="gemm_skinny",
        least_arch=89,
    ),
    GoldenCase(
        "e4m3_block_scales",
        fused(
            Problem(13, 2112, 7184, Layout.NT, DType.E4M3),
            "acc * sa[k / 128, m] * sb[n / 128, k / 128]",
        ),
        {"BM": 16, "BN": 64, "WN": 32, "SLICE_K": 4, "SPLIT_K": 3, "STAGES": 2, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=89,
    ),
    GoldenCase(
        "e4m3_by_e5m2",
        Problem(8, 4096, 4096, Layout.NT, DType.E4M3_BY_E5M2),
        {"SLICE_K": 8, "PREFETCH_A": 1, "MIN_BLOCKS": 3},
        family="gemm_skinny",
        least_arch=89,
    ),
    GoldenCase(
        "e5m2_f32_any_size",
        Problem(3, 1001, 1003, Layout.NT, DType.E5M2_F32),
        {"BK": 256, "SLICE_K": 4, "STAGES": 2, "MIN_BLOCKS": 3},
        family="gemm_skinny",
        least_arch=89,
    ),
    GoldenCase(
        "through_registers_any_size",
        Problem(5, 4093, 4094, ldb=4096, ldc=4096),
        {"BN": 128, "TM": 8, "SPLIT_K": 4, "STAGES": 1},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "batched_split",
        batched(Problem(16, 4096, 4096), count=2),
        {"BM": 16, "BN": 128, "BK": 64, "TM": 16, "SLICE_K": 8, "SPLIT_K": 4},
        family="sgemm_skinny",
    ),
    GoldenCase(
        "batched_split",
        batched(Problem(16, 4096, 4096, Layout.NT, DType.BF16), count=2),
        {"BK": 128, "SLICE_K": 4, "SPLIT_K": 2, "PREFETCH_A": 1, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "batched",
        batched(Problem(16, 4096, 4096, Layout.NT, DType.BF16), count=2),
        {"BK": 128, "SLICE_K": 4, "SPLIT_K": 1, "PREFETCH_A": 1, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "i8_split",
        Problem(8, 4096, 4112, Layout.NT, DType.I8),
        {"SLICE_K": 8, "SPLIT_K": 2, "PREFETCH_A": 1, "MIN_BLOCKS": 3},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "i8_bf16_any_size",
        fused(Problem(3, 1001, 1003, Layout.NT, DType.I8_BF16), "acc * sa[m] * sb[n]"),
        {"BK": 256, "SLICE_K": 4, "STAGES": 2, "MIN_BLOCKS": 3},
        family="gemm_skinny",
        least_arch=80,
    ),
    # Two columns of the product for each of C.
    GoldenCase(
        "gated_split",
        fused(Problem(8, 14336, 4096, Layout.NT, DType.BF16), "silu(acc[n]) * acc[n + N]"),
        {"BK": 512, "SLICE_K": 8, "SPLIT_K": 2, "PREFETCH_A": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "gated_interleaved",
        fused(Problem(3, 1000, 1000, Layout.NT, DType.F16), "silu(acc[2 * n]) * acc[2 * n + 1]"),
        {"BN": 32, "BK": 256, "SLICE_K": 4, "STAGES": 2, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "gated_columns",
        fused(Problem(16, 4104, 4096, Layout.NN, DType.BF16_F32), "acc[n] * sigmoid(acc[n + N])"),
        {"BM": 16, "BN": 64, "BK": 256, "WN": 64, "SLICE_K": 4, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    # Experts of which each has few rows.
    GoldenCase(
        "grouped",
        grouped(Problem(64, 1536, 2048, Layout.NT, DType.BF16), "128 uniform used=8"),
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "grouped_masked",
        fused(
            grouped(Problem(128, 2048, 768, Layout.NN, DType.BF16), "16 uniform masked=20"),
            "acc * scale[g] + bias[g, n]",
        ),
        {"SPLIT_K": 2, "BK": 256, "BN": 64, "WN": 64, "SLICE_K": 4, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=80,
    ),
    GoldenCase(
        "grouped_block_scales",
        fused(
            grouped(Problem(64, 4096, 7168, Layout.NT, DType.E4M3), "128 uniform used=8"),
            "acc * sa[k / 128, m] * sb[g, n / 128, k / 128]",
        ),
        {"BK": 256, "BN": 64, "WN": 64, "SLICE_K": 4, "MIN_BLOCKS": 1},
        family="gemm_skinny",
        least_arch=89,
    ),
)
