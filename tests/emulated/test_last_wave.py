"""gemm_wgmma with blocks that help in the last wave, in all layouts and types."""

from dataclasses import replace

import pytest

from autogemm.codegen import render
from autogemm.config import Config, Value
from autogemm.device_catalogue import find_device
from autogemm.dtypes import DType
from autogemm.kernel import KernelSource, LaunchPlan
from autogemm.problem import Layout, Problem
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.targets.emulator import Emulator, FindingKind, Mode, RunOptions

pytestmark = pytest.mark.emulated

FAMILY = load_family("gemm_wgmma")
TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 3, "SCHEDULE": "together"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 16, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 78},
}
HELPED: dict[str, Value] = {"LAST_WAVE": "helped"}
OVERLAPPED: dict[str, Value] = HELPED | {"EPILOGUE": "overlapped"}
# What differs from that tile, how many blocks there are, and the problem.
CASES = {
    # No whole wave: five tiles and two who help, with three tiles and two, a slab of 19 each.
    "few tiles": (
        HELPED,
        7,
        Problem(64, 300, 1210, Layout.NN, DType.BF16, ldb=304, lda=1216, ldc=304),
    ),
    "more who could help than tiles": (
        HELPED,
        9,
        Problem(70, 60, 480, Layout.NT, DType.F16, ldc=64),
    ),
    "nothing worth giving": (HELPED, 5, Problem(70, 180, 200, Layout.NT, DType.F16, ldc=184)),
    "whole waves and two warpgroups": (
        OVERLAPPED | {"BM": 128},
        5,
        Problem(300, 200, 650, Layout.TN, DType.BF16, lda=304, ldb=656),
    ),
    "clusters of four": (
        HELPED | {"CLUSTER_M": 2, "CLUSTER_N": 2, "BLOCKS": 132},
        12,
        Problem(300, 100, 650, Layout.TT, DType.F16_F32, alpha=0.5, beta=2.0, lda=304, ldb=656),
    ),
    "as many tiles as blocks": (
        OVERLAPPED,
        9,
        Problem(130, 190, 300, Layout.NT, DType.BF16, lda=304, ldb=304, ldc=192),
    ),
    "words": (HELPED, 4, Problem(70, 180, 440, Layout.NT, DType.TF32)),
    "rows through registers": (HELPED, 5, Problem(132, 200, 640, Layout.TT, DType.TF32, beta=-1.0)),
    "columns through registers": (
        HELPED | {"BOX_M": 64, "C_BUFFERS": 2},
        4,
        Problem(70, 300, 500, Layout.NN, DType.TF32),
    ),
}


def emitted(case: str) -> tuple[KernelSource, LaunchPlan, Problem]:
    changes, num_blocks, problem = CASES[case]
    config = Config.of(FAMILY.name, TILE | changes)
    assert broken_constraints(FAMILY, config, problem, find_device("h100")) == []
    plan = launch_plan(FAMILY, config, problem)
    (launch,) = plan.launches
    fewer = replace(plan, launches=(replace(launch, grid=(num_blocks, 1, 1)),))
    return render(FAMILY, config, problem), fewer, problem


@pytest.mark.parametrize("case", CASES)
def test_tiles_with_helpers_are_right(emulator: Emulator, case: str) -> None:
    report = emulator.verify(*emitted(case))
    assert report.ok, [str(finding) for finding in report.findings]


@pytest.mark.parametrize("resident_blocks", [1, 2, 8])
def test_blocks_may_be_few_at_a_time(emulator: Emulator, resident_blocks: int) -> None:
    source, plan, problem = emitted("few tiles")
    for seed in (1, 2, 3) if resident_blocks > 1 else (0,):
        options = RunOptions(Mode.FAST, seed=seed, resident_blocks=resident_blocks)
        report = emulator.run(source, plan, problem, options)
        assert report.ok, report.message


def test_flags_are_zero_for_the_next_launch(emulator: Emulator) -> None:
    """Of some orders one reads a part before the second launch has left it."""
    source, plan, problem = emitted("more who could help than tiles")
    text = source.text
    for old, new in (
        ("*parts.flag(place) = 0;", ""),
        # Half of the slabs for each of both, so that either may be first.
        ("LEAVING = 2", "LEAVING = 0"),
        ("ADDING = 3", "ADDING = 0"),
    ):
        assert old in text
        text = text.replace(old, new)
    reports = [
        emulator.run(
            replace(source, text=text),
            plan,
            problem,
            RunOptions(Mode.FAST, seed=seed, resident_blocks=8),
        )
        for seed in range(1, 6)
    ]
    assert not all(report.ok for report in reports)


def test_nobody_may_wait_for_who_comes_later(emulator: Emulator) -> None:
    source, plan, problem = emitted("few tiles")
    text = source.text
    for old, new in (
        ("helps = unit < helpers;", "helps = unit >= last_tiles;"),
        ("(helps ? unit : unit - helpers)", "(helps ? unit - last_tiles : unit)"),
    ):
        assert old in text
        text = text.replace(old, new)
    options = RunOptions(Mode.FAST, deadline_s=1)
    report = emulator.run(replace(source, text=text), plan, problem, options)
    assert report.findings[0].kind is FindingKind.TIMED_OUT
