"""The emitted sources that are kept as files: chosen so that every branch of the template is taken.

``tests/unit/test_golden.py`` compares them, ``tests/compile/test_compile_golden.py`` compiles them.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import load_family

GOLDEN_FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class GoldenCase:
    """A config, as changes to the family's first seed, and the problem it is rendered for."""

    name: str
    problem: Problem
    changes: dict[str, Value] = field(default_factory=dict)
    family: str = "sgemm_simt"
    gpu: str = "h100"
    least_arch: int = 75

    def __str__(self) -> str:
        return f"{self.family}_{self.name}"

    @property
    def path(self) -> Path:
        return GOLDEN_FOLDER / f"{self}.cu"

    @property
    def config(self) -> Config:
        first_seed = load_family(self.family).seeds[0].as_dict()
        return Config.of(self.family, first_seed | self.changes)


def square(size: int, layout: Layout = Layout.NN) -> Problem:
    return Problem(size, size, size, layout=layout)


def tensor(size: int, dtype: DType) -> Problem:
    return Problem(size, size, size, dtype=dtype)


def batched(problem: Problem, rows_a: int | None = None, count: int = 64) -> Problem:
    return replace(problem, batch=Batch(count, rows_a))


def grouped(problem: Problem, text: str = "8 uniform") -> Problem:
    return replace(problem, groups=Groups.parse(text))


def fused(problem: Problem, epilogue: str) -> Problem:
    return problem.with_epilogue(Epilogue(epilogue))


TILE_32: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 8, "WM": 16, "WN": 8, "TM": 2, "TN": 2, "STAGES": 1},
    **{"VEC_LOAD": 1, "VEC_STORE": 1, "REG_STAGES": 1, "LANE_MAP": "rows"},
}
TILE_64: dict[str, Value] = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4}
TILE_32_DEEP: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 128, "TM": 8, "TN": 4, "SLICE_K": 16, "STAGES": 4},
}
# For gemm_wgmma: tiles of which each column of C takes two of the product.
GATED: dict[str, Value] = {
    **{"BM": 128, "BN": 128, "WM": 64, "WN": 128, "STAGES": 4, "CLUSTER_M": 1, "CLUSTER_N": 1},
    **{"SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 2, "GROUP_M": 8, "BLOCKS": 132},
    **{"SCHEDULE": "cooperative", "EPILOGUE": "overlapped", "K_ORDER": "forward"},
}
GATED_MMA: dict[str, Value] = {"WN": 32}
# For gemm_wgmma: columns of tiles with one more, some of which are short.
TWO_HEIGHTS: dict[str, Value] = {
    **{"BM": 256, "BN": 128, "WM": 256, "WN": 64, "GROUP_M": 8, "CLUSTER_M": 1},
    **{"SWAP_AB": 1, "SHORT_BY": 24},
}
# For gemm_wgmma: clusters of two blocks.
IN_PAIRS: dict[str, Value] = {"CLUSTER_M": 2, "GROUP_M": 8, "EPILOGUE": "after"}

GOLDEN_CASES = (
    GoldenCase("pipeline", square(4096), {"GROUP_M": 8, "LANE_MAP": "quads"}),
    GoldenCase(
        "pipeline_any_size",
        square(1023),
        {"VEC_LOAD": 1, "VEC_STORE": 1},
    ),
    GoldenCase(
        "pipeline_one_fragment",
        Problem(1024, 1000, 1024, layout=Layout.TT),
        TILE_64
        | {"BK": 8, "PAD_A": 0, "PAD_B": 4, "STAGES": 4, "REG_STAGES": 1, "LANE_MAP": "rows"},
    ),
    GoldenCase(
        "pipeline_sliced",
        square(128),
        TILE_32
        | {"WN": 32, "TM": 4, "TN": 4, "BK": 32, "SLICE_K": 4, "PAD_A": 4}
        | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4},
    ),
    GoldenCase(
        "pipeline_one_fragment_any_k",
        Problem(1024, 1024, 1000, layout=Layout.TN, lda=1026, ldb=1026, ldc=1026),
        TILE_64
        | {"BK": 16, "PAD_A": 0, "VEC_LOAD": 2, "VEC_STORE": 2, "REG_STAGES": 1}
        | {"FMA_ORDER": "rows"},
    ),
    GoldenCase(
        "double_buffer",
        square(4096, Layout.NT),
        TILE_64 | {"BK": 16, "PAD_B": 4, "STAGES": 2, "GROUP_M": 1, "VEC_STORE": 4},
    ),
    GoldenCase(
        "double_buffer_any_size",
        Problem(1000, 1002, 1004, layout=Layout.TN),
        TILE_64 | {"BK": 16, "PAD_A": 0, "VEC_LOAD": 2, "VEC_STORE": 2, "STAGES": 2},
    ),
    GoldenCase(
        "double_buffer_streamed",
        square(4096),
        {"BM": 128, "BN": 128, "BK": 8, "WM": 32, "WN": 128, "TM": 16, "TN": 8}
        | {"STAGES": 2, "STREAM_BLOCKS": 264, "GROUP_M": 8, "LANE_MAP": "quads"},
    ),
    GoldenCase(
        "double_buffer_sliced_any_size",
        Problem(250, 251, 1003, layout=Layout.NT),
        TILE_32
        | {"WN": 32, "TM": 4, "TN": 4, "BK": 32, "SLICE_K": 4, "PAD_A": 4, "PAD_B": 4}
        | {"STAGES": 2, "REG_STAGES": 2, "HANDOVER": 2, "GROUP_M": 1},
    ),
    GoldenCase(
        "double_buffer_separate_inward",
        square(1023),
        {"BM": 64, "BN": 128, "BK": 8, "WM": 32, "WN": 64, "TM": 8, "TN": 8, "STAGES": 2}
        | {"SLICE_K": 2, "SLICES": "separate", "VEC_LOAD": 1, "VEC_STORE": 1, "EDGES": "inward"}
        | {"POINTERS": "held"},
    ),
    GoldenCase(
        "pipeline_separate_any_size",
        Problem(250, 251, 1003, layout=Layout.TT, lda=252, ldb=1004, ldc=252),
        {"BM": 32, "BN": 32, "BK": 8, "WM": 32, "WN": 32, "TM": 4, "TN": 8, "STAGES": 3}
        | {
            "SLICE_K": 4,
            "SLICES": "separate",
            "PAD_A": 0,
            "PAD_B": 4,
            "VEC_LOAD": 4,
            "VEC_STORE": 4,
        }
        | {"POINTERS": "held"},
    ),
    GoldenCase(
        "double_buffer_inward",
        square(4095),
        {"BM": 128, "BN": 128, "BK": 8, "WM": 32, "WN": 128, "TM": 16, "TN": 8, "STAGES": 2}
        | {"VEC_LOAD": 1, "VEC_STORE": 1, "STREAM_BLOCKS": 264, "EDGES": "inward"},
    ),
    GoldenCase(
        "double_buffer_one_fragment_inward",
        Problem(1000, 1002, 1003, layout=Layout.TN),
        TILE_64
        | {"BK": 16, "PAD_A": 0, "VEC_LOAD": 2, "VEC_STORE": 2, "STAGES": 2, "REG_STAGES": 1}
        | {"EDGES": "inward"},
    ),
    GoldenCase(
        "pipeline_split_inward",
        Problem(256, 250, 16380),
        TILE_64 | {"BK": 16, "VEC_LOAD": 2, "VEC_STORE": 2, "SPLIT_K": 16, "EDGES": "inward"},
    ),
    GoldenCase(
        "pipeline_packed",
        Problem(1000, 1001, 1003, layout=Layout.TN),
        TILE_64 | {"BK": 16, "PAD_A": 0, "VEC_STORE": 1, "STAGES": 4, "PACK": 1},
    ),
    GoldenCase(
        "double_buffer_packed_streamed",
        square(4095, Layout.NT),
        {"BM": 128, "BN": 128, "BK": 8, "WM": 32, "WN": 128, "TM": 16, "TN": 8, "STAGES": 2}
        | {"PAD_A": 0, "VEC_STORE": 1, "STREAM_BLOCKS": 264, "PACK": 1},
    ),
    GoldenCase(
        "pipeline_split",
        Problem(256, 256, 16384),
        TILE_64 | {"BK": 16, "SPLIT_K": 16, "GROUP_M": 1},
    ),
    GoldenCase(
        "pipeline_split_any_columns",
        Problem(256, 252, 16384),
        TILE_64 | {"BK": 16, "SPLIT_K": 2, "GROUP_M": 1},
    ),
    GoldenCase(
        "pipeline_split_sliced_any_size",
        Problem(33, 251, 4099),
        TILE_32
        | {"WN": 32, "TM": 4, "TN": 4, "BK": 32, "SLICE_K": 4, "SPLIT_K": 8, "PAD_A": 4}
        | {"STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 1, "VEC_STORE": 1},
    ),
    GoldenCase(
        "double_buffer_in_chunks",
        square(1536),
        {"BM": 96, "BN": 96, "BK": 16, "WM": 96, "WN": 48, "TM": 12, "TN": 12, "SLICE_K": 2}
        | {"STAGES": 2, "GROUP_M": 1, "LANE_MAP": "quads"},
    ),
    GoldenCase(
        "pipeline_in_chunks_any_size",
        Problem(961, 1515, 1001, layout=Layout.TN),
        {"BM": 96, "BN": 96, "BK": 16, "WM": 96, "WN": 48, "TM": 12, "TN": 12, "SLICE_K": 2}
        | {"PAD_A": 0, "STREAM_BLOCKS": 132, "VEC_LOAD": 1, "VEC_STORE": 1},
    ),
    GoldenCase(
        "pipeline_streamed_any_size",
        Problem(2000, 3002, 1000, layout=Layout.TN),
        TILE_64 | {"BK": 16, "PAD_A": 0, "VEC_LOAD": 2, "VEC_STORE": 2, "STREAM_BLOCKS": 264},
    ),
    GoldenCase(
        "double_buffer_one_fragment",
        square(1024),
        TILE_64 | {"BK": 16, "STAGES": 2, "REG_STAGES": 1, "GROUP_M": 1},
    ),
    GoldenCase(
        "double_buffer_one_fragment_any_size",
        Problem(1000, 1002, 1003),
        TILE_64 | {"BK": 16, "VEC_LOAD": 1, "VEC_STORE": 1, "STAGES": 2, "REG_STAGES": 1},
    ),
    GoldenCase(
        "double_buffer_chains",
        square(1536),
        {"BM": 96, "BN": 96, "BK": 8, "WM": 48, "WN": 96, "TM": 12, "TN": 12, "STAGES": 2}
        | {"SLICE_K": 2, "SLICES": "separate", "HANDOVER": 2, "POINTERS": "held", "CHAIN_K": 512},
    ),
    GoldenCase(
        "pipeline_chains_any_size",
        Problem(250, 251, 4099, layout=Layout.NT),
        TILE_64
        | {"BK": 16, "PAD_B": 4, "VEC_LOAD": 1, "VEC_STORE": 1, "SLICE_K": 2, "CHAIN_K": 128}
        | {"STREAM_BLOCKS": 132},
    ),
    GoldenCase("single_buffer", square(1024), TILE_32),
    GoldenCase("single_buffer_two_fragments", square(1024), TILE_32 | {"REG_STAGES": 2}),
    GoldenCase("single_buffer_any_size", Problem(1000, 1024, 1001), TILE_32),
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
        "bf16",
        Problem(8, 4096, 4096, Layout.NT, DType.BF16),
        {"BK": 512, "SLICE_K": 8, "STAGES": 4, "PREFETCH_A": 1},
        family="gemm_skinny",
        least_arch=80,
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
        "e5m2_f16_pingpong",
        Problem(8192, 8192, 8192, Layout.NT, DType.E5M2_F16),
        {"BM": 64, "BN": 128, "WM": 64, "WN": 128, "SCHEDULE": "pingpong", "BOX_M": 16}
        | {"GROUP_M": 8, "CLUSTER_M": 1, "EPILOGUE": "after", "STAGES": 6, "PROMOTE": 128},
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
    GoldenCase(
        "through_registers_any_size",
        Problem(5, 4093, 4094, ldb=4096, ldc=4096),
        {"BN": 128, "TM": 8, "SPLIT_K": 4, "STAGES": 1},
        family="sgemm_skinny",
    ),
    GoldenCase("plain", square(1024), family="naive"),
    GoldenCase(
        "uncoalesced_any_size",
        square(1001, Layout.TT),
        {"BN": 128, "TN": 4, "WALK": "rows", "UNROLL": 4},
        family="naive",
    ),
    GoldenCase("plain", square(1024), family="tiled"),
    GoldenCase("prefetch", square(1024, Layout.TN), {"PREFETCH": 1, "UNROLL": 4}, family="tiled"),
    GoldenCase("double_buffer", square(1024), {"STAGES": 2, "BN": 64, "TN": 2}, family="tiled"),
    GoldenCase(
        "double_buffer_prefetch_any_size",
        square(1001, Layout.NT),
        {"STAGES": 2, "PREFETCH": 1, "PAD": 1},
        family="tiled",
    ),
    GoldenCase("plain", square(1024), family="register_blocked"),
    GoldenCase(
        "patches_any_size",
        square(1001, Layout.TT),
        {"LOAD": "patch", "PAD": 1},
        family="register_blocked",
    ),
    GoldenCase("double_buffer", square(1024), {"STAGES": 2}, family="register_blocked"),
    GoldenCase("plain", square(1024), family="block_tiled"),
    GoldenCase(
        "vectors",
        square(1024),
        {"ORDER_A": "km", "VEC": 4, "PAD_B": 5},
        family="block_tiled",
    ),
    GoldenCase("any_size", square(1001, Layout.TT), {"PAD_A": 1}, family="block_tiled"),
    # Epilogues: each function, each index and type of an input, the old C read in each way.
    GoldenCase(
        "fused",
        fused(square(1023), "clamp(gelu(alpha * acc + bias[n]), low, 6) + rest[m, n]; bias: f16"),
        {"VEC_LOAD": 1, "VEC_STORE": 1},
    ),
    GoldenCase(
        "fused",
        fused(square(1001), "sigmoid(acc) * scale[m] + beta * c[m, n]; scale: bf16"),
        family="naive",
    ),
    GoldenCase(
        "fused",
        fused(tensor(4096, DType.F16), "relu(silu(acc + bias[n]) + c[m, n])"),
        family="gemm_mma",
        least_arch=80,
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
    # A second output, of C's type and in FP32.
    GoldenCase(
        "fused_two_outputs",
        fused(square(1023), "aux[m, n] = acc + bias[n]; relu(aux)"),
        {"VEC_LOAD": 1, "VEC_STORE": 1},
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
    # Batches: each way to find a block's product, and its matrices.
    *(
        GoldenCase("batched", batched(square(1024)), family=name)
        for name in ("naive", "tiled", "register_blocked", "block_tiled")
    ),
    GoldenCase(
        "batched_split",
        batched(square(1024)),
        TILE_64 | {"BK": 16, "SPLIT_K": 2, "GROUP_M": 1},
    ),
    GoldenCase(
        "batched_packed_stream_k",
        batched(square(1023, Layout.NT)),
        TILE_64
        | {"BK": 16, "STAGES": 2, "HANDOVER": 5, "PAD_A": 0, "VEC_STORE": 1, "PACK": 1}
        | {"STREAM_BLOCKS": 264},
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
    GoldenCase("batched", batched(tensor(1024, DType.F16)), family="gemm_mma", least_arch=80),
    GoldenCase("batched", batched(square(1024)), family="sgemm_emulated", least_arch=80),
    GoldenCase("batched", batched(square(1024)), family="sgemm_emulated_wgmma", least_arch=90),
    GoldenCase(
        "batched_overlapped",
        batched(Problem(1024, 1024, 1024, Layout.NT, DType.BF16), rows_a=0),
        family="gemm_wgmma",
        least_arch=90,
    ),
    GoldenCase(
        "batched_in_pairs",
        batched(Problem(1024, 1024, 1024, Layout.NT, DType.BF16)),
        IN_PAIRS | {"GROUP_M": 1},
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
    # Groups: each way to find a tile's group, and to keep to its rows.
    GoldenCase("grouped", grouped(square(1024)), family="naive"),
    GoldenCase(
        "grouped",
        grouped(Problem(1024, 1024, 1024, Layout.NT, DType.BF16)),
        {"GROUP_M": 8},
        family="gemm_mma",
        least_arch=80,
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
        "fused_gated",
        fused(square(4096), "silu(acc[n] + bias[n]) * acc[n + N]"),
        {"BN": 128, "WN": 16, "TN": 4, "STAGES": 4, "GROUP_M": 8, "LANE_MAP": "quads"},
    ),
    GoldenCase(
        "fused_gated_any_size",
        fused(square(1023, Layout.NT), "gelu(acc[2 * n]) * acc[2 * n + 1] + c[m, n]"),
        {"BM": 64, "BN": 64, "BK": 8, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "STAGES": 2}
        | {"SLICE_K": 2, "SLICES": "separate", "VEC_LOAD": 1, "VEC_STORE": 1, "EDGES": "inward"}
        | {"POINTERS": "held", "PAD_B": 4, "CHAIN_K": 128},
    ),
    # So many inputs that they do not fit into a line.
    GoldenCase(
        "fused_many_inputs",
        fused(square(1024), "clamp(acc * gain[n], lowest, highest) + bias[n] * scale[m] - shift"),
        family="naive",
    ),
)
