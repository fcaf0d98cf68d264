"""Scales of blocks where rows belong to groups, in the emulator: each group's B has its own."""

from dataclasses import replace

import pytest
from test_fp8_emulated import config
from test_fp8_skinny import config as skinny

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

PRODUCT = "acc * sa[k / 128, m] * sb[g, n / 128, k / 128]"
# Groups without rows, of more than one row of tiles, and rows of none; partial blocks on all sides.
PROBLEM = Problem(
    *(200, 232, 592), Layout.NT, DType.E4M3_F32, groups=Groups.parse("0,65,0,7,100")
).with_epilogue(Epilogue(PRODUCT))
MASKED = replace(PROBLEM, m=240, groups=Groups.parse("70,0,9 masked"))
MORE = Epilogue(f"relu({PRODUCT} + bias[g, n]) * scale; bias: f32")
FEW = replace(PROBLEM, m=20, n=264, groups=Groups.parse("3,0,11,5"), ldc=0)
WIDE: dict[str, Value] = {"BM": 64, "BN": 192, "WN": 192}
ALTERNATING: dict[str, Value] = {"BM": 128, "WN": 128, "BN": 128, "PROMOTION": "alternating"}


def wgmma(**changes: Value) -> Config:
    return config(PROMOTE=128, **changes)


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (wgmma(), PROBLEM),
        (wgmma(**WIDE), replace(PROBLEM, dtype=DType.E5M2_BY_E4M3)),
        (wgmma(**ALTERNATING), replace(PROBLEM, dtype=DType.E4M3)),
        (wgmma(SCHEDULE="pingpong", BOX_M=16), replace(PROBLEM, dtype=DType.E5M2_F16)),
        (wgmma(CLUSTER_M=2, GROUP_M=4), PROBLEM),
        (wgmma(**ALTERNATING, CLUSTER_N=2), replace(PROBLEM, n=264, ldc=0)),
        (wgmma(BLOCKS=2), replace(PROBLEM, epilogue=MORE, lda=640, ldb=608, ldc=236)),
        (wgmma(), MASKED),
        (skinny(), FEW),
        (skinny(SPLIT_K=3, BK=128), replace(FEW, dtype=DType.E4M3, epilogue=MORE)),
        (skinny(), replace(FEW, m=60, groups=Groups.parse("13,0,9 masked"))),
    ],
    ids=[
        *("f32", "wide mixed", "alternating", "pingpong", "cluster", "side by side", "more"),
        *("masked", "few rows", "few rows split", "few rows masked"),
    ],
)
def test_a_right_kernel_passes(emulator: Emulator, one: Config, problem: Problem) -> None:
    family = load_family(one.family)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    report = emulator.verify(
        render(family, one, problem), launch_plan(family, one, problem), problem
    )
    assert report.ok, report.message


WGMMA_BUGS = {
    "scales of the first group": ("+ place.group * scales_of_group", ""),
    "scales of the next group": (
        "place.group * scales_of_group",
        "min(place.group + 1, groups - 1) * scales_of_group",
    ),
    "groups without the partial block of columns": ("((N + 127) / 128) *", "(N / 128) *"),
    "scales of rows of the group alone": ("(m0 + lane);", "(m0 - (m0 < 65 ? 0 : 65) + lane);"),
    "scales of the first tile's group": (
        "const Place place = tiles.place(tile);\n                const float",
        "const Place place = tiles.place(first_tile);\n                const float",
    ),
}
SKINNY_BUGS = {
    "scales of the first group": ("group * ((N + 127) / 128)", "0"),
    "groups without the partial block of columns": (
        "group * ((N + 127) / 128)",
        "group * (N / 128)",
    ),
    "rows of scales as of the rows up to the group's end": ("block * all_m", "block * M"),
    "the scale of another group's row": ("const int row = min(m", "const int row = min(m ^ 1"),
}


@pytest.mark.parametrize(
    ("one", "problem", "bugs", "name"),
    [
        *((wgmma(BLOCKS=2), PROBLEM, WGMMA_BUGS, name) for name in WGMMA_BUGS),
        *((skinny(), FEW, SKINNY_BUGS, name) for name in SKINNY_BUGS),
    ],
    ids=[*WGMMA_BUGS, *(f"few rows, {name}" for name in SKINNY_BUGS)],
)
def test_a_planted_bug_is_caught(
    emulator: Emulator, one: Config, problem: Problem, bugs: dict[str, tuple[str, str]], name: str
) -> None:
    old, new = bugs[name]
    family = load_family(one.family)
    source = render(family, one, problem)
    assert old in source.text
    wrong = replace(source, text=source.text.replace(old, new))
    assert not emulator.verify(wrong, launch_plan(family, one, problem), problem).ok
