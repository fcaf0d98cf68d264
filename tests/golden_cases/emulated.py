"""Golden sources of FP32 that is made of products of tensor cores."""

from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, batched, square

CASES = (
    GoldenCase(
        "tf32x3_chunks",
        square(4096, Layout.TT),
        {"CHUNK": 256, "BM": 64, "BN": 64, "WM": 32},
        family="sgemm_emulated",
        least_arch=80,
    ),
    GoldenCase(
        "tf32x3",
        square(4096),
        {"BM": 64, "BN": 64, "WM": 32},
        family="sgemm_emulated",
        least_arch=80,
    ),
    GoldenCase(
        "bf16x6_any_size",
        Problem(1001, 1002, 1003, Layout.TN),
        {"SPLIT": "bf16x6", "CHUNK": 64, "REG_STAGES": 2, "SWIZZLE": 0, "GROUP_M": 1}
        | {"BM": 64, "BN": 64, "WM": 32},
        family="sgemm_emulated",
        least_arch=80,
    ),
    GoldenCase(
        "bf16x9",
        square(1024, Layout.NT),
        {"SPLIT": "bf16x9", "BK": 16, "CHUNK": 16, "BM": 64, "BN": 64, "WM": 32, "STAGES": 2},
        family="sgemm_emulated",
        least_arch=80,
    ),
    GoldenCase("f16x3", square(4096), {"CLUSTER": 2}, family="sgemm_emulated_wgmma", least_arch=90),
    GoldenCase(
        "f16x3_any_size",
        Problem(1000, 1003, 1017, Layout.TN, lda=1021, ldb=1021, ldc=1021),
        {"BN": 64, "BLOCKS": 0},
        family="sgemm_emulated_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "f16x3_edges",
        Problem(1000, 1002, 1028, Layout.NT),
        {"CLUSTER": 2, "CHUNK": 128},
        family="sgemm_emulated_wgmma",
        least_arch=90,
    ),
    GoldenCase("batched", batched(square(1024)), family="sgemm_emulated", least_arch=80),
    GoldenCase("batched", batched(square(1024)), family="sgemm_emulated_wgmma", least_arch=90),
)
