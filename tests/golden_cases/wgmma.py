"""Golden sources of gemm_wgmma: tensor cores of Hopper, one product."""

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, fused, tensor

# Tiles of which each column of C takes two of the product.
GATED: dict[str, Value] = {
    **{"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 4, "CLUSTER_M": 1, "CLUSTER_N": 1},
    **{"SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 2, "GROUP_M": 8, "BLOCKS": 132},
    **{"SCHEDULE": "cooperative", "EPILOGUE": "overlapped", "K_ORDER": "forward"},
}
# Columns of tiles with one more, some of which are short.
TWO_HEIGHTS: dict[str, Value] = {
    **{"BM": 256, "BN": 128, "WM": 256, "WN": 64, "GROUP_M": 8, "CLUSTER_M": 1},
    **{"SWAP_AB": 1, "SHORT_BY": 24},
}
# Clusters of two blocks.
IN_PAIRS: dict[str, Value] = {"CLUSTER_M": 2, "GROUP_M": 8, "EPILOGUE": "after"}

CASES = (
    GoldenCase("bf16", tensor(4096, DType.BF16), IN_PAIRS, family="gemm_wgmma", least_arch=90),
    GoldenCase(
        "bf16_overlapped",
        tensor(4096, DType.BF16),
        {"CLUSTER_M": 1, "GROUP_M": 16},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3",
        Problem(4096, 4096, 4096, Layout.NT, DType.E4M3),
        {"BN": 128, "WN": 128, "CLUSTER_M": 2, "GROUP_M": 8, "EPILOGUE": "after"}
        | {"STAGES": 6, "PROMOTE": 128},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_block_scales",
        Problem(
            *(4096, 7168, 2048),
            *(Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        ),
        {"BM": 256, "BN": 128, "WM": 128, "WN": 128, "CLUSTER_M": 1, "BOX_M": 16, "C_BUFFERS": 1}
        | {"GROUP_M": 8, "EPILOGUE": "after", "STAGES": 4, "PROMOTE": 128},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e5m2_block_scales_pingpong",
        Problem(
            *(512, 2112, 7168),
            *(Layout.NT, DType.E5M2_F32),
            epilogue=Epilogue("relu(acc * sa[k / 128, m] * sb[n / 128, k / 128] + bias[n])"),
        ),
        {"BM": 64, "BN": 192, "WM": 64, "WN": 192, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"C_BUFFERS": 1, "GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after", "STAGES": 5}
        | {"PROMOTE": 128},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_block_scales_split",
        Problem(
            *(16, 7168, 2048),
            *(Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        ),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "CLUSTER_M": 1, "SPLIT_K": 4, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "STAGES": 8, "PROMOTE": 128},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_block_scales_alternating",
        Problem(
            *(512, 4096, 7168),
            *(Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]"),
        ),
        {"BN": 128, "WN": 128, "CLUSTER_M": 1, "CLUSTER_N": 2, "BOX_M": 16, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "STAGES": 6, "PROMOTE": 128}
        | {"PROMOTION": "alternating"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_dependent",
        Problem(512, 4096, 4096, Layout.NT, DType.BF16),
        {"BN": 128, "WN": 128, "CLUSTER_M": 2, "GROUP_M": 8, "C_BUFFERS": 1, "STAGES": 6}
        | {"EPILOGUE": "after", "PDL": "late"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_dependent_split",
        Problem(64, 4096, 4096, Layout.NT, DType.F16),
        {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 12, "CLUSTER_M": 1, "SPLIT_K": 2}
        | {"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "PDL": "early"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e5m2_block_scales_alternating_split",
        Problem(
            *(128, 2112, 7168),
            *(Layout.NT, DType.E5M2_F32),
            epilogue=Epilogue("relu(acc * sa[k / 128, m] * sb[n / 128, k / 128] + bias[n])"),
        ),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "CLUSTER_M": 1, "SPLIT_K": 4, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "STAGES": 6, "PROMOTE": 128}
        | {"PROMOTION": "alternating"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_overlapped",
        Problem(4096, 4096, 4096, Layout.NT, DType.E4M3),
        {"CLUSTER_M": 1, "GROUP_M": 16, "PROMOTE": 0},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_f32_split",
        Problem(64, 4096, 4096, Layout.NT, DType.E4M3_F32),
        {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 12, "CLUSTER_M": 1, "SPLIT_K": 2}
        | {"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "PROMOTE": 256},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "grouped_block_scales",
        Problem(
            *(8192, 4096, 7168),
            *(Layout.NT, DType.E4M3),
            epilogue=Epilogue("acc * sa[k / 128, m] * sb[g, n / 128, k / 128]"),
            groups=Groups.parse("32 zipf=1.1 seed=1"),
        ),
        {"BN": 128, "WN": 128, "CLUSTER_M": 1, "BOX_M": 16, "C_BUFFERS": 1, "GROUP_M": 8}
        | {"EPILOGUE": "after", "STAGES": 6, "PROMOTE": 128, "PROMOTION": "alternating"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e5m2_by_e4m3",
        Problem(4096, 4096, 4096, Layout.NT, DType.E5M2_BY_E4M3),
        {"BN": 128, "WN": 128, "CLUSTER_M": 2, "GROUP_M": 8, "EPILOGUE": "after"}
        | {"C_BUFFERS": 1, "STAGES": 6, "PROMOTE": 128},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_e4m3",
        Problem(
            *(4096, 4096, 4096, Layout.NT, DType.E4M3_E4M3),
            epilogue=Epilogue("acc * scale"),
        ),
        {"BN": 128, "WN": 128, "CLUSTER_M": 2, "GROUP_M": 8, "EPILOGUE": "after"}
        | {"C_BUFFERS": 1, "STAGES": 6, "PROMOTE": 128, "PROMOTION": "alternating"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e4m3_e4m3_split",
        Problem(
            *(64, 4096, 4096, Layout.NT, DType.E4M3_E4M3),
            epilogue=Epilogue("aux[m, n] = acc * scale; relu(aux) * next"),
        ),
        {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 12, "CLUSTER_M": 1, "SPLIT_K": 2}
        | {"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "PROMOTE": 256},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e5m2_e5m2_by_threads",
        Problem(8192, 8190, 8192, Layout.NT, DType.E5M2_E5M2, beta=0.5),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after", "STAGES": 6, "PROMOTE": 128}
        | {"C_BUFFERS": 1, "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "e5m2_f16_pingpong",
        Problem(8192, 8192, 8192, Layout.NT, DType.E5M2_F16),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after", "STAGES": 6, "PROMOTE": 512},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "i8",
        Problem(4096, 4096, 4096, Layout.NT, DType.I8),
        {"BN": 256, "WN": 256, "CLUSTER_M": 1, "GROUP_M": 8, "EPILOGUE": "after"}
        | {"STAGES": 4, "BOX_M": 64, "C_BUFFERS": 1},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "i8_overlapped",
        Problem(4096, 4096, 4096, Layout.NT, DType.I8_BF16),
        {"CLUSTER_M": 1, "GROUP_M": 16},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "i8_f32_split",
        Problem(64, 4096, 4096, Layout.NT, DType.I8_F32),
        {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 12, "CLUSTER_M": 1, "SPLIT_K": 2}
        | {"C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_serpentine",
        tensor(8192, DType.BF16),
        {"BN": 192, "WM": 128, "WN": 192, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after", "K_ORDER": "serpentine"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_swapped",
        tensor(8192, DType.BF16),
        {"BM": 200, "BN": 128, "WM": 200, "WN": 128, "STAGES": 5, "SCHEDULE": "pingpong"}
        | {"BOX_M": 40, "GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after"}
        | {"SWAP_AB": 1},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_two_heights",
        tensor(4096, DType.BF16),
        TWO_HEIGHTS,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_two_heights_pingpong",
        Problem(8192, 8192, 8192, Layout.NT, DType.F16),
        {"BM": 200, "BN": 128, "WM": 200, "WN": 128, "STAGES": 5, "SCHEDULE": "pingpong"}
        | {"BOX_M": 40, "GROUP_M": 1, "CLUSTER_M": 1, "EPILOGUE": "after"}
        | {"SWAP_AB": 1, "SHORT_BY": 8},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_pingpong",
        Problem(4096, 4096, 4096, Layout.NT, DType.F16),
        {"BN": 128, "WM": 128, "WN": 128, "STAGES": 6, "SCHEDULE": "pingpong", "GROUP_M": 1}
        | {"CLUSTER_M": 1, "CLUSTER_N": 2, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_f32_both_ways",
        Problem(4096, 4096, 4096, Layout.TN, DType.BF16_F32),
        {"CLUSTER_M": 2, "CLUSTER_N": 2, "GROUP_M": 1, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_eight",
        Problem(1000, 1000, 1000, Layout.NT, DType.BF16),
        {"BM": 72, "BN": 128, "WM": 72, "WN": 128, "STAGES": 8, "SWAP_AB": 1, "BOX_M": 8}
        | {"CLUSTER_M": 2, "CLUSTER_N": 4, "C_BUFFERS": 4, "GROUP_M": 1, "BLOCKS": 0}
        | {"EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_odd_width",
        Problem(512, 7168, 16384, Layout.NT, DType.BF16),
        {"BM": 128, "BN": 224, "WM": 64, "WN": 224, "STAGES": 4, "GROUP_M": 4}
        | {"BLOCKS": 0, "EPILOGUE": "after", "BOX_M": 16, "C_BUFFERS": 2},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_odd_width_across",
        Problem(512, 7168, 4096, Layout.NN, DType.F16),
        {"BM": 128, "BN": 224, "WM": 64, "WN": 224, "STAGES": 4, "GROUP_M": 4}
        | {"BLOCKS": 0, "EPILOGUE": "after", "BOX_M": 64, "C_BUFFERS": 1},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "i8_odd_width_by_threads",
        Problem(2048, 1278, 1024, Layout.NT, DType.I8),
        {"BM": 128, "BN": 80, "WM": 128, "WN": 80, "SCHEDULE": "pingpong", "STAGES": 7, "BOX_M": 64}
        | {"GROUP_M": 1, "BLOCKS": 132, "EPILOGUE": "after", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_workspace",
        Problem(512, 1024, 8192, Layout.NN, DType.F16),
        {"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 6, "CLUSTER_M": 2, "SPLIT_K": 4}
        | {"PARTIALS": "workspace", "C_BUFFERS": 2, "GROUP_M": 1}
        | {"BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_last_wave",
        Problem(8192, 4096, 14336, Layout.NT, DType.BF16),
        {"BM": 192, "BN": 256, "WM": 192, "WN": 128, "STAGES": 3, "CLUSTER_M": 1, "SPLIT_K": 8}
        | {"PARTIALS": "last_wave", "BOX_M": 16, "C_BUFFERS": 4, "GROUP_M": 8, "SWAP_AB": 1}
        | {"EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_alone",
        Problem(1024, 1024, 1024, Layout.TT, DType.BF16),
        {"BM": 128, "BN": 64, "WM": 64, "WN": 64, "STAGES": 8, "CLUSTER_M": 1, "C_BUFFERS": 1}
        | {"BOX_M": 16, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_one_warpgroup",
        Problem(512, 1024, 1024, dtype=DType.BF16),
        {"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 8, "CLUSTER_M": 1, "C_BUFFERS": 1}
        | {"BOX_M": 16, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_split",
        Problem(64, 4096, 4096, dtype=DType.BF16),
        {"BM": 64, "BN": 64, "WN": 64, "STAGES": 12, "CLUSTER_M": 1, "SPLIT_K": 2, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_split_in_stages",
        Problem(1024, 256, 4096, dtype=DType.BF16),
        {"BM": 128, "BN": 256, "WM": 64, "WN": 256, "STAGES": 4, "CLUSTER_M": 1, "SPLIT_K": 8}
        | {"PARTIALS": "in_stages", "C_BUFFERS": 1, "GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_f32_split",
        Problem(64, 4096, 4096, Layout.NT, DType.BF16_F32),
        {"BM": 64, "BN": 256, "WN": 128, "CLUSTER_M": 1, "SPLIT_K": 8, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32",
        tensor(4096, DType.TF32),
        {
            "BM": 256,
            "BN": 128,
            "WM": 256,
            "WN": 64,
            "CLUSTER_N": 2,
            "GROUP_M": 8,
            "EPILOGUE": "after",
        },
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32_rows",
        Problem(4096, 4096, 4096, Layout.TT, DType.TF32),
        IN_PAIRS,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32_split",
        Problem(64, 4096, 4096, dtype=DType.TF32),
        {"BM": 64, "BN": 128, "WN": 64, "STAGES": 8, "CLUSTER_M": 1, "SPLIT_K": 4, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_packed",
        tensor(1500, DType.BF16),
        {"EPILOGUE": "after", "PACK": "both", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_packed_overlapped",
        Problem(4095, 4095, 4095, Layout.NT, DType.BF16),
        {"PACK": "both", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "bf16_packed_swapped",
        tensor(1500, DType.BF16),
        {"BM": 152, "BN": 128, "WM": 152, "WN": 128, "STAGES": 4, "SCHEDULE": "pingpong"}
        | {"BOX_M": 8, "SWAP_AB": 1, "EPILOGUE": "after", "PACK": "both", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16_packed_split",
        Problem(1023, 1024, 1024, Layout.TN, DType.F16),
        {"BM": 128, "BN": 128, "WN": 128, "STAGES": 6, "SPLIT_K": 2, "C_BUFFERS": 1}
        | {"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "PACK": "a"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32_transposed",
        Problem(4096, 4096, 4096, Layout.TN, DType.TF32),
        {"BM": 256, "BN": 128, "WM": 256, "WN": 64, "GROUP_M": 8, "EPILOGUE": "after"}
        | {"PACK": "a"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32_packed_pingpong",
        Problem(1023, 1021, 1022, Layout.NN, DType.TF32),
        {"BM": 128, "BN": 128, "WM": 128, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"GROUP_M": 8, "EPILOGUE": "after", "PACK": "both", "STORE_C": "threads"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "tf32_packed_b",
        Problem(512, 1024, 512, Layout.NN, DType.TF32, ldb=1025),
        {"BM": 128, "BN": 128, "WM": 64, "WN": 128, "GROUP_M": 1, "BLOCKS": 0}
        | {"EPILOGUE": "after", "PACK": "b"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused",
        fused(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "gelu_tanh(acc + bias[n])"),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_swapped",
        fused(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "silu(acc) * gate[m, n]"),
        TWO_HEIGHTS,
        family="gemm_wgmma",
        least_arch=90,
    ),
    # Tiles of an input come through the stages.
    GoldenCase(
        "fused_ahead",
        fused(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "silu(acc + bias[n]) * gate[m, n]"),
        TWO_HEIGHTS | {"INPUTS": "ahead"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_ahead_pingpong",
        fused(
            Problem(4096, 4096, 4096, Layout.NN, DType.F16),
            "aux[m, n] = acc + rest[m, n]; relu(aux)",
        ),
        {"BN": 128, "WM": 128, "WN": 128, "STAGES": 6, "SCHEDULE": "pingpong", "GROUP_M": 1}
        | {"CLUSTER_M": 1, "EPILOGUE": "after", "INPUTS": "ahead"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_ahead_pingpong_swapped",
        fused(Problem(4096, 4096, 4096, Layout.NT, DType.BF16), "acc + rest[m, n]"),
        {"BM": 200, "BN": 128, "WM": 200, "WN": 128, "STAGES": 5, "SCHEDULE": "pingpong"}
        | {"BOX_M": 40, "GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after"}
        | {"SWAP_AB": 1, "INPUTS": "ahead"},
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_two_outputs",
        fused(
            Problem(4096, 4096, 4096, Layout.NT, DType.BF16),
            "aux[m, n] = acc + bias[n]; gelu_tanh(aux)",
        ),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_gated_two_outputs",
        fused(
            Problem(4096, 4096, 4096, Layout.NT, DType.BF16),
            "up[m, n] = acc[n]; silu(up) * acc[n + N]; up: f32",
        ),
        GATED,
        family="gemm_wgmma",
        least_arch=90,
    ),
    # Gated: two columns of the product for each of C.
    GoldenCase(
        "fused_gated",
        fused(
            Problem(4096, 4096, 4096, Layout.NT, DType.BF16),
            "silu(acc[n] + bias[n]) * acc[n + N]",
        ),
        GATED,
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "fused_gated_interleaved",
        fused(
            Problem(4096, 4096, 4096, Layout.NT, DType.F16),
            "gelu_tanh(acc[2 * n]) * acc[2 * n + 1]",
        ),
        GATED | {"CLUSTER_M": 2, "EPILOGUE": "after"},
        family="gemm_wgmma",
        least_arch=90,
    ),
)
