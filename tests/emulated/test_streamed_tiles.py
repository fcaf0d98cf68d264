"""gemm_wgmma with tiles that blocks share along K, in all layouts and types, by turns or not."""

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
ONE: dict[str, Value] = {"STREAM_K": "one_tile"}
TWO: dict[str, Value] = {"STREAM_K": "two_tile"}
# What differs from that tile, how many blocks there are, and the problem.
CASES = {
    # A range for each of seven, of 3.6 slabs: nobody has a whole tile.
    "few tiles": (ONE, 7, Problem(64, 300, 310, Layout.NN, DType.BF16, ldb=304, lda=312, ldc=304)),
    "one slab each": (ONE, 9, Problem(70, 60, 240, Layout.NT, DType.F16, ldc=64)),
    "two warpgroups": (
        TWO | {"BM": 128},
        3,
        Problem(300, 200, 200, Layout.TN, DType.BF16, lda=304),
    ),
    "clusters of four": (
        ONE | {"CLUSTER_M": 2, "CLUSTER_N": 2, "BLOCKS": 132},
        12,
        Problem(300, 200, 330, Layout.TT, DType.F16_F32, alpha=0.5, beta=2.0, lda=304, ldb=336),
    ),
    "as many tiles as blocks": (
        TWO,
        6,
        Problem(130, 190, 100, Layout.NT, DType.BF16_F32, lda=104, ldb=104, ldc=192),
    ),
    "words": (TWO, 4, Problem(70, 300, 140, Layout.NT, DType.TF32)),
    "rows through registers": (ONE, 5, Problem(132, 200, 100, Layout.TT, DType.TF32, beta=-1.0)),
    "columns through registers": (
        TWO | {"BOX_M": 64, "C_BUFFERS": 2},
        4,
        Problem(70, 300, 100, Layout.NN, DType.TF32),
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
def test_shared_tiles_are_right(emulator: Emulator, case: str) -> None:
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
    source, plan, problem = emitted("few tiles")
    text = source.text.replace("*parts.flag(block) = 0;", "")
    assert text != source.text
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
    text = source.text.replace("range = num_units - 1 - unit;", "range = unit;")
    assert text != source.text
    options = RunOptions(Mode.FAST, deadline_s=1)
    report = emulator.run(replace(source, text=text), plan, problem, options)
    assert report.findings[0].kind is FindingKind.TIMED_OUT
