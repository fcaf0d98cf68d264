"""Golden sources of gemm_mma: tensor cores by mma.sync."""

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, batched, fused, grouped, tensor

GATED_MMA: dict[str, Value] = {"WN": 32}

CASES = (
    GoldenCase("bf16", tensor(4096, DType.BF16), family="gemm_mma", least_arch=80),
    GoldenCase(
        "f16_f32_any_size",
        Problem(1001, 1003, 1005, Layout.TT, DType.F16_F32),
        {"STAGES": 3, "REG_STAGES": 2, "SWIZZLE": 0},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "f16_any_columns",
        Problem(1024, 1000, 1024, Layout.TN, DType.F16),
        {"REG_STAGES": 1, "GROUP_M": 1, "BK": 16, "WM": 32},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "tf32", tensor(4096, DType.TF32), {"MMA_K": 8, "WN": 32}, family="gemm_mma", least_arch=80
    ),
    GoldenCase(
        "tf32_any_k",
        Problem(1024, 1024, 1004, Layout.TT, DType.TF32),
        {"MMA_K": 8, "WN": 32, "BK": 16, "REG_STAGES": 1, "SWIZZLE": 0},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "f16_through_registers",
        tensor(1024, DType.F16),
        {"BN": 64, "WN": 32, "STAGES": 1, "REG_STAGES": 1, "MMA_K": 8},
        gpu="t4",
        family="gemm_mma",
    ),
    GoldenCase(
        "f16_through_registers_any_size",
        Problem(1000, 1001, 1000, Layout.NT, DType.F16, ldc=1002),
        {"BN": 64, "WN": 32, "STAGES": 1, "REG_STAGES": 1, "MMA_K": 8},
        gpu="t4",
        family="gemm_mma",
    ),
    GoldenCase(
        "bf16_any_k",
        Problem(1000, 1024, 1001, Layout.TN, DType.BF16, ldc=1025),
        {"BK": 64, "STAGES": 3},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "fused",
        fused(tensor(4096, DType.F16), "relu(silu(acc + bias[n]) + c[m, n])"),
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase("batched", batched(tensor(1024, DType.F16)), family="gemm_mma", least_arch=80),
    GoldenCase(
        "grouped",
        grouped(Problem(1024, 1024, 1024, Layout.NT, DType.BF16)),
        {"GROUP_M": 8},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "fused_gated",
        fused(
            Problem(4096, 4096, 4096, Layout.NT, DType.BF16),
            "silu(acc[n] + bias[n]) * acc[n + N]",
        ),
        GATED_MMA,
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "fused_gated_any_size",
        fused(
            Problem(1001, 1003, 1005, Layout.NN, DType.F16), "silu(acc[n]) * acc[n + N] + c[m, n]"
        ),
        GATED_MMA | {"BN": 64, "MMA_K": 8, "STAGES": 1, "REG_STAGES": 1},
        family="gemm_mma",
        gpu="t4",
    ),
    GoldenCase(
        "fused_gated_interleaved",
        fused(
            Problem(4096, 4096, 4096, Layout.TT, DType.TF32),
            "gelu_tanh(acc[2 * n]) * acc[2 * n + 1]",
        ),
        GATED_MMA | {"BM": 64, "BN": 64, "WM": 32, "MMA_K": 8},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "grouped_gated",
        fused(
            grouped(Problem(4096, 4096, 4096, Layout.NN, DType.BF16)), "silu(acc[n]) * acc[n + N]"
        ),
        GATED_MMA,
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "grouped_bias",
        fused(
            grouped(Problem(1024, 1024, 1024, Layout.NT, DType.BF16)),
            "silu(acc[n] + bias[g, n]) * acc[n + N] * scale[g]; bias: f32",
        ),
        GATED_MMA,
        family="gemm_mma",
        least_arch=80,
    ),
    # Groups that divide K.
    GoldenCase(
        "divided",
        grouped(Problem(1024, 1024, 4096, Layout.TN, DType.BF16)),
        {"GROUP_M": 8},
        family="gemm_mma",
        least_arch=80,
    ),
    GoldenCase(
        "divided_masked",
        fused(
            grouped(Problem(1024, 1024, 4096, Layout.TN, DType.F16), "8 uniform masked=999"),
            "acc * scale[m] + c[m, n]",
        ),
        {"MMA_K": 8, "STAGES": 1, "REG_STAGES": 1},
        family="gemm_mma",
        gpu="t4",
    ),
)
