"""Configs of gemm_wgmma that were wrong on a GPU, or did not compile, are not legal."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.space import broken_constraints, load_family

PROBLEM = Problem(1024, 1024, 1024, dtype=DType.BF16)
BASE: dict[str, Value] = {
    **{"BM": 192, "BN": 64, "WM": 192, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "K_ORDER": "forward"},
    **{"SWAP_AB": 0, "SHORT_BY": 0},
}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        # Half of three row tiles: sums of one row tile would go to two blocks.
        ({"SPLIT_K": 2}, "whole row tiles"),
        # 512 threads start with 128 registers each, and an instruction has 128 sums.
        ({"BN": 256, "WM": 64, "WN": 256}, "that a thread starts with"),
        # Rows that no instruction makes, unless C^T is made.
        ({"BM": 200, "BN": 128, "WM": 200, "WN": 128, "BOX_M": 40}, "64 rows"),
        ({"SWAP_AB": 1}, "two side by side"),
    ],
)
def test_illegal(values: dict[str, Value], reason: str) -> None:
    family, device = load_family("gemm_wgmma"), find_device("h100")
    assert broken_constraints(family, Config.of("gemm_wgmma", BASE), PROBLEM, device) == []
    broken = broken_constraints(family, Config.of("gemm_wgmma", BASE | values), PROBLEM, device)
    assert any(reason in one for one in broken), broken
