"""Golden sources of sgemm_simt: FP32 on CUDA cores."""

from autogemm.model.config import Value
from autogemm.model.problem import Layout, Problem
from golden_cases.case import GoldenCase, batched, fused, square

TILE_32: dict[str, Value] = {
    **{"BM": 32, "BN": 32, "BK": 8, "WM": 16, "WN": 8, "TM": 2, "TN": 2, "STAGES": 1},
    **{"VEC_LOAD": 1, "VEC_STORE": 1, "REG_STAGES": 1, "LANE_MAP": "rows"},
}
TILE_64: dict[str, Value] = {"BM": 64, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4}

CASES = (
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
        "pipeline_dependent",
        square(512),
        TILE_64 | {"BK": 16, "PAD_A": 4, "STAGES": 3, "GROUP_M": 1, "PDL": "late"},
        least_arch=90,
    ),
    GoldenCase(
        "double_buffer_dependent_split",
        Problem(256, 256, 16384),
        TILE_64 | {"BK": 8, "PAD_A": 4, "STAGES": 2, "SPLIT_K": 8, "GROUP_M": 1, "PDL": "early"},
        least_arch=90,
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
        "double_buffer_packed_a_streamed",
        square(4095),
        {"BM": 256, "BN": 128, "BK": 8, "WM": 64, "WN": 64, "TM": 16, "TN": 8, "STAGES": 2}
        | {"PAD_A": 0, "VEC_STORE": 1, "STREAM_BLOCKS": 132, "PACK": 1}
        | {"EDGES": "inward_n"},
    ),
    GoldenCase(
        "pipeline_packed_b",
        Problem(1000, 1001, 1003, layout=Layout.TT),
        TILE_64
        | {"BK": 16, "PAD_A": 0, "VEC_STORE": 1, "STAGES": 4, "PACK": 1}
        | {"EDGES": "inward_m"},
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
    # Epilogues: each function, each index and type of an input, the old C read in each way.
    GoldenCase(
        "fused",
        fused(square(1023), "clamp(gelu(alpha * acc + bias[n]), low, 6) + rest[m, n]; bias: f16"),
        {"VEC_LOAD": 1, "VEC_STORE": 1},
    ),
    # A second output, of C's type and in FP32.
    GoldenCase(
        "fused_two_outputs",
        fused(square(1023), "aux[m, n] = acc + bias[n]; relu(aux)"),
        {"VEC_LOAD": 1, "VEC_STORE": 1},
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
)
