"""Problems whose rows TMA does not take, or tensor cores, and configs of gemm_wgmma for them."""

from dataclasses import dataclass

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1, "GROUP_M": 1},
    **{"BLOCKS": 132, "EPILOGUE": "after", "K_ORDER": "forward", "SWAP_AB": 0, "SHORT_BY": 0},
}
BOTH: dict[str, Value] = {"PACK": "both", "STORE_C": "threads"}


@dataclass(frozen=True)
class PackedCase:
    """A problem, and changes to the smallest tile."""

    problem: Problem
    changes: dict[str, Value]

    def __str__(self) -> str:
        """Name layout, element types and what is packed."""
        return f"{self.problem.layout}-{self.problem.dtype}-{self.changes['PACK']}"

    @property
    def config(self) -> Config:
        """The config."""
        return Config.of("gemm_wgmma", TILE | {"STORE_C": "tma"} | self.changes)


CASES = (
    # Rows at odd elements, at even ones, and C at odd and even ones.
    PackedCase(Problem(131, 75, 91, Layout.NN, DType.BF16, alpha=0.5, beta=-1.5), BOTH),
    PackedCase(Problem(130, 74, 90, Layout.TN, DType.F16, alpha=0.5), BOTH | {"BOX_M": 16}),
    PackedCase(
        Problem(131, 75, 91, Layout.NT, DType.F16_F32, beta=0.5),
        BOTH | {"BOX_M": 16, "SCHEDULE": "pingpong"},
    ),
    PackedCase(
        Problem(131, 75, 200, Layout.TT, DType.BF16),
        {"PACK": "a", "SPLIT_K": 2, "BLOCKS": 0},
    ),
    # TF32 that is stored across k: one operand transposed, or both.
    PackedCase(Problem(131, 76, 92, Layout.TN, DType.TF32, lda=132), {"PACK": "a", "C_BUFFERS": 2}),
    PackedCase(Problem(132, 76, 91, Layout.TN, DType.TF32, beta=2.0), {"PACK": "b"}),
    PackedCase(Problem(131, 76, 91, Layout.TN, DType.TF32), {"PACK": "both"}),
    PackedCase(Problem(131, 75, 91, Layout.NN, DType.TF32, alpha=0.5), BOTH),
    PackedCase(Problem(67, 131, 75, Layout.TT, DType.TF32), BOTH),
)
