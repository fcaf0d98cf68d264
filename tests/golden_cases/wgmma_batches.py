"""Golden sources of gemm_wgmma for many products in a launch: batches, groups of rows or of K."""

from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, batched, fused, grouped
from golden_cases.wgmma import GATED, IN_PAIRS

CASES = (
    GoldenCase(
        "batched_overlapped",
        batched(Problem(1024, 1024, 1024, Layout.NT, DType.BF16), rows_a=0),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "batched_one_tile_a_block",
        batched(Problem(128, 128, 128, Layout.NN, DType.BF16)),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "STAGES": 2, "BOX_M": 16, "GROUP_M": 1}
        | {"BLOCKS": 0, "EPILOGUE": "after", "CLUSTER_M": 1, "LOAD_WARPS": 1}
        | {"EVICT": "inputs_first"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "batched_in_pairs",
        batched(Problem(1024, 1024, 1024, Layout.NT, DType.BF16)),
        IN_PAIRS | {"GROUP_M": 1, "EVICT": "inputs_first"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "batched_packed_overlapped",
        batched(Problem(1023, 1023, 1023, Layout.NN, DType.BF16)),
        {"PACK": "both", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "batched_packed_split_k",
        batched(Problem(1024, 1024, 1023, Layout.NN, DType.BF16)),
        {"BM": 128, "BN": 128, "WN": 128, "STAGES": 6, "SPLIT_K": 2, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "CLUSTER_M": 1, "PACK": "a"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_overlapped",
        grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "128 zipf=1.1"),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_in_pairs",
        grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16)),
        {"CLUSTER_M": 2, "BN": 128, "WN": 128, "BOX_M": 16, "GROUP_M": 1} | {"EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_last_wave",
        grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16)),
        {"CLUSTER_M": 1, "CLUSTER_N": 2, "SPLIT_K": 8, "PARTIALS": "last_wave"}
        | {"EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_few_rows",
        grouped(Problem(64, 4096, 4096, Layout.NT, DType.BF16), "128 zipf=1.1"),
        {"BM": 64, "WM": 64, "BN": 128, "WN": 128, "SWAP_AB": 1, "STAGES": 8, "BOX_M": 64}
        | {"GROUP_M": 1, "CLUSTER_N": 2, "EPILOGUE": "after", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_gated",
        fused(
            grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16)), "silu(acc[n]) * acc[n + N]"
        ),
        GATED,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_masked",
        grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "8 uniform masked=2048"),
        IN_PAIRS,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_bias",
        fused(
            grouped(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "8 uniform masked"),
            "relu(acc * scale[g] + bias[g, n])",
        ),
        {"CLUSTER_M": 1, "GROUP_M": 16},
        family="gemm_wgmma",
        least_arch=90,
    ),
    # Groups that divide K.
    GoldenCase(
        "divided",
        grouped(Problem(1536, 2048, 16384, Layout.TN, DType.BF16), "128 uniform"),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "divided_in_pairs",
        grouped(Problem(4096, 14336, 8192, Layout.TN, DType.BF16_F32)),
        IN_PAIRS,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "divided_masked_pingpong",
        fused(
            grouped(Problem(1536, 2048, 16384, Layout.TN, DType.F16), "32 uniform masked=8192"),
            "acc * scale[m] + c[m, n]",
        ),
        {"BN": 128, "WM": 128, "WN": 128, "STAGES": 6, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"CLUSTER_M": 1, "GROUP_M": 8, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
)
