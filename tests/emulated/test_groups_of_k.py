"""Groups that divide K in gemm_wgmma: what another group's rows hold, and every schedule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mutations import Base
from mutations_divided import DIVIDED_BASES, HOPPER
from sampling import one_in

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.emulator import Emulator, EmulatorReport
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.reference import Inputs, make_inputs
from autogemm.space import broken_constraints

pytestmark = pytest.mark.emulated

# A row of group 0 in its second k tile; groups of one row and of none before the one that is NaN.
SIZES = (65, 1, 0, 70, 30, 0)
WITHIN = Problem(72, 136, sum(SIZES), Layout.TN, DType.BF16, groups=Groups.parse("65,1,0,70,30,0"))
SPOILT = 3
NAN, INFINITY = 0x7FC0, 0x7F80
SCHEDULES = [
    name
    for name, base in DIVIDED_BASES.items()
    if base.family_name == "gemm_wgmma" and "masked" not in name
]


def run(
    one: Emulator, base: Base, problem: Problem, old: str = "", new: str = ""
) -> EmulatorReport:
    source = render(base.family, base.config, problem)
    assert old in source.text
    edited = replace(source, text=source.text.replace(old, new) if old else source.text)
    return one.verify(edited, base.plan(problem), problem)


def spoilt(monkeypatch: pytest.MonkeyPatch, operands: str, bits: int) -> None:
    """All rows of a group hold that; its own C is NaN then, and no other."""
    first = sum(SIZES[:SPOILT])

    def inputs(problem: Problem, *how: Any) -> Inputs:
        given = make_inputs(problem, *how)
        expected = given.expected.copy()
        expected[SPOILT] = np.nan
        changed = {}
        for name, columns in (("a", problem.m), ("b", problem.n)):
            rows = getattr(given, name).copy().reshape(problem.k, columns)
            if name in operands:
                # Zeros of the other operand would make NaN of infinity, too.
                rows[first : first + SIZES[SPOILT]] = bits
                rows[first] = NAN
            changed[name] = rows.reshape(-1)
        return replace(given, **changed, expected=expected, promise=None, promised=None)

    monkeypatch.setattr("autogemm.emulator.emulator.make_inputs", inputs)


@pytest.mark.parametrize("operands", ["a", "b", "ab"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_nan_of_the_next_group_stays_there(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, name: str, operands: str
) -> None:
    spoilt(monkeypatch, operands, NAN)
    report = run(emulator, DIVIDED_BASES[name], WITHIN)
    assert report.ok, report.message


def test_infinity_of_the_next_group_stays_there(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt(monkeypatch, "ab", INFINITY)
    report = run(emulator, DIVIDED_BASES["groups of K by wgmma"], WITHIN)
    assert report.ok, report.message


@pytest.mark.parametrize("operand", ["a", "b"])
def test_nan_shows_in_the_group_before_if_an_operand_ends_with_the_matrix(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, operand: str
) -> None:
    spoilt(monkeypatch, operand, NAN)
    at_end, too_late = f"{{&map_{operand}, range.end}}", f"{{&map_{operand}, K}}"
    report = run(emulator, DIVIDED_BASES["groups of K by wgmma"], WITHIN, at_end, too_late)
    assert "is nan, must be" in report.message


# Depths around those of k tiles, more of them than stages, and of one row.
DEPTHS = "0,1,65,0,200,64"
EPILOGUES = ("", "relu(acc * scale[m] + bias[n])", "acc + 0.5 * c[m, n]")
TALL: dict[str, Value] = {"BM": 128, "WM": 128}
CONFIGS: dict[str, dict[str, Value]] = {
    "one tile a block": {"BLOCKS": 0},
    "boxes by warps": {"BN": 128, "WN": 128, "BOX_M": 16, "C_BUFFERS": 2},
    "three warpgroups": {"BM": 192, "STAGES": 2},
    "two side by side": {"BN": 256, "WN": 128, "STAGES": 2, "C_BUFFERS": 2},
    "pingpong": {"SCHEDULE": "pingpong", "STAGES": 2},
    "pingpong in a row": TALL | {"SCHEDULE": "pingpong", "CLUSTER_N": 2},
    "pingpong in a column": {"SCHEDULE": "pingpong", "CLUSTER_M": 2, "STAGES": 5},
    "overlapped": TALL | {"EPILOGUE": "overlapped", "BN": 128, "WN": 64, "GROUP_M": 4},
    "overlapped in pairs": TALL | {"EPILOGUE": "overlapped", "CLUSTER_N": 2},
    "C^T overlapped": {"EPILOGUE": "overlapped", "SWAP_AB": 1, "BN": 128, "WN": 128, "BOX_M": 16},
    "serpentine": {"K_ORDER": "serpentine", "STAGES": 2},
    "C^T by threads": {"STORE_C": "threads", "SWAP_AB": 1, "BN": 128, "WN": 128, "BOX_M": 16}
    | {"C_BUFFERS": 2},
}


@pytest.mark.parametrize(
    ("name", "masked"),
    one_in(3, [(name, masked) for name in CONFIGS for masked in (False, True)]),
)
def test_every_schedule_is_right(emulator: Emulator, name: str, masked: bool) -> None:
    number = 2 * list(CONFIGS).index(name) + masked
    base = Base(HOPPER | CONFIGS[name], (), "gemm_wgmma")
    dtypes = [DType.BF16, DType.F16]
    if base.config["EPILOGUE"] == "after" and base.config["SWAP_AB"] == 0:
        dtypes.append(DType.BF16_F32)
    groups = Groups.parse(f"{DEPTHS} masked" if masked else DEPTHS)
    rows = 6 * 203 if masked else 340
    dtype = dtypes[number % len(dtypes)]
    problem = Problem(136, 136, rows, Layout.TN, dtype, ldc=144, groups=groups)
    problem = problem.with_epilogue(Epilogue(EPILOGUES[number % len(EPILOGUES)]))
    problem = problem.with_factors(0.5, -1.5)
    assert not broken_constraints(base.family, base.config, problem, find_device("h100"))
    report = run(emulator, base, problem)
    assert report.ok, (problem.label, report.message)


def test_what_does_not_go_with_groups_of_k() -> None:
    """In one line each, with the reason."""
    problem = Problem(512, 512, 4096, Layout.TN, DType.BF16, groups=Groups.parse("8 uniform"))
    for changes, words in (
        ({"SPLIT_K": 2, "BLOCKS": 0}, "do not walk over groups"),
        ({"PACK": "both", "STORE_C": "threads"}, "A and B come by TMA as they lie"),
        ({"SWAP_AB": 1, "BN": 128, "WN": 128, "SHORT_BY": 8}, "the last wave of one product"),
    ):
        base = Base(HOPPER | changes, (), "gemm_wgmma")
        broken = broken_constraints(base.family, base.config, problem, find_device("h100"))
        assert any(words in one for one in broken), (changes, broken)
