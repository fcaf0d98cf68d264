"""Products of E4M3 by E5M2, and the other way round, in the emulator: right kernels pass, planted
bugs do not.
"""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family

pytestmark = pytest.mark.emulated

TILES: dict[str, dict[str, Value]] = {
    "gemm_wgmma": {
        **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "cooperative"},
        **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
        **{"GROUP_M": 4, "BLOCKS": 132, "PROMOTE": 128},
    },
    "gemm_skinny": {
        **{"BM": 8, "BN": 32, "BK": 256, "WN": 16, "SLICE_K": 2, "SPLIT_K": 1},
        **{"STAGES": 1, "PREFETCH_A": 0, "L2_PREFETCH": 256, "MIN_BLOCKS": 1},
    },
}
ROWS = {"gemm_wgmma": 72, "gemm_skinny": 7}
BLOCKS = Epilogue("acc * sa[k / 128, m] * sb[n / 128, k / 128]")
# Edges on all sides.
ODD = Problem(1, 136, 592, Layout.NT, DType.E5M2_BY_E4M3)


def config(family: str, **changes: Value) -> Config:
    return load_family(family).completed(Config.of(family, TILES[family] | changes))


@pytest.mark.parametrize("family", TILES)
@pytest.mark.parametrize(
    "problem",
    [
        ODD,
        replace(ODD, dtype=DType.E4M3_BY_E5M2_F32, alpha=0.5, beta=-1.5),
        replace(ODD, dtype=DType.E4M3_BY_E5M2_F16),
        ODD.with_epilogue(BLOCKS),
        replace(ODD, dtype=DType.E4M3_BY_E5M2).with_epilogue(Epilogue("relu(acc * sa[m] + b[n])")),
        replace(ODD, groups=Groups.parse("3")),
    ],
    ids=lambda problem: str(problem.dtype) + ("" if problem.groups.is_none else " groups"),
)
def test_a_right_kernel_passes(emulator: Emulator, family: str, problem: Problem) -> None:
    problem = replace(problem, m=ROWS[family])
    own, one = load_family(family), config(family)
    assert broken_constraints(own, one, problem, find_device("h200")) == []
    source, plan = render(own, one, problem), launch_plan(own, one, problem)
    report = emulator.verify(source, plan, problem)
    assert report.ok, report.message
    assert f"// A {problem.dtype.ab}, B {problem.dtype.b}, C {problem.dtype.c}," in source.text


BUGS = {
    "types exchanged": ("gemm_wgmma", "wgmma_e5m2xe4m3_kk(", "wgmma_e4m3xe5m2_kk("),
    "both of A's type": ("gemm_wgmma", "wgmma_e5m2xe4m3_kk(", "wgmma_e5m2_kk("),
    "both of B's type": ("gemm_wgmma", "wgmma_e5m2xe4m3_kk(", "wgmma_e4m3_kk("),
    "B converted as A": ("gemm_skinny", "half_pairs_from_e4m3(b[", "half_pairs_from_e5m2(b["),
    "A converted as B": ("gemm_skinny", "half_pairs_from_e5m2(a[", "half_pairs_from_e4m3(a["),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    family, old, new = BUGS[name]
    problem = replace(ODD, m=ROWS[family])
    own, one = load_family(family), config(family)
    source = render(own, one, problem)
    assert old in source.text
    # Calls alone: a definition is left out where there is a twin.
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(own, one, problem), problem).ok
