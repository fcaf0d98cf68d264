"""Golden sources of the kernels that are there to teach."""

from autogemm.model.problem import Layout
from golden_cases.case import GoldenCase, batched, fused, grouped, square

CASES = (
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
    GoldenCase(
        "fused",
        fused(square(1001), "sigmoid(acc) * scale[m] + beta * c[m, n]; scale: bf16"),
        family="naive",
    ),
    # Batches: each way to find a block's product, and its matrices.
    *(
        GoldenCase("batched", batched(square(1024)), family=name)
        for name in ("naive", "tiled", "register_blocked", "block_tiled")
    ),
    # Groups: each way to find a tile's group, and to keep to its rows.
    GoldenCase("grouped", grouped(square(1024)), family="naive"),
    GoldenCase(
        "grouped_masked",
        fused(grouped(square(1024), "8 uniform masked"), "scale[g] * acc + bias[g, n]"),
        family="naive",
    ),
    # So many inputs that they do not fit into a line.
    GoldenCase(
        "fused_many_inputs",
        fused(square(1024), "clamp(acc * gain[n], lowest, highest) + bias[n] * scale[m] - shift"),
        family="naive",
    ),
)
