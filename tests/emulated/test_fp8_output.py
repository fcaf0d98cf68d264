"""C in 8-bit floats: right kernels pass in the emulator, planted bugs do not."""

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

TILE: dict[str, Value] = {
    **{"BM": 64, "BN": 128, "WM": 64, "WN": 128, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 4, "BLOCKS": 132, "PROMOTE": 128},
}
# Edges on all sides, the last k tile partial.
PROBLEM = Problem(72, 144, 208, Layout.NT, DType.E4M3_E4M3, epilogue=Epilogue("acc * s"))
PLAIN = replace(PROBLEM, epilogue=Epilogue())


def config(**changes: Value) -> Config:
    return load_family("gemm_wgmma").completed(Config.of("gemm_wgmma", TILE | changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"STORE_C": "threads"}, replace(PLAIN, n=141, ldc=151, alpha=0.75, beta=-0.5)),
        (
            {"SPLIT_K": 2, "BLOCKS": 0},
            PROBLEM.with_epilogue(Epilogue("aux[m, n] = acc * s; relu(aux) + bias[n]")),
        ),
        (
            {"SCHEDULE": "pingpong", "BOX_M": 16},
            replace(PLAIN, dtype=DType.E5M2_E5M2, groups=Groups.parse("3")),
        ),
        (
            {"PROMOTE": 0},
            Problem(72, 144, 80, Layout.TN, DType.BF16_E4M3, epilogue=Epilogue("relu(acc) * s")),
        ),
    ],
    ids=["by threads", "split", "groups", "from bf16"],
)
def test_a_right_kernel_passes(
    emulator: Emulator, changes: dict[str, Value], problem: Problem
) -> None:
    family, one = load_family("gemm_wgmma"), config(**changes)
    assert broken_constraints(family, one, problem, find_device("h200")) == []
    plan = launch_plan(family, one, problem)
    report = emulator.verify(render(family, one, problem), plan, problem)
    assert report.ok, report.message


def test_rows_that_are_no_whole_chunks_are_written_by_threads() -> None:
    problem = replace(PROBLEM, n=136, ldc=136)
    broken = broken_constraints(load_family("gemm_wgmma"), config(), problem, find_device("h200"))
    assert any("16 bytes" in one for one in broken), broken


PAIR = "e4m3_pair(elements[at], elements[at + 1])"
CHUNK = "const int chunk = (at / 8) ^ row % 8;"
# What becomes of an element before it is converted, or what stands in place of a line.
BUGS = {
    # The usual way to clamp: fmaxf(NaN, x) is x.
    "NaN becomes a number": "fminf(fmaxf({x}, -448.0f), 448.0f)",
    "what is too large becomes NaN": "(fabsf({x}) > 448.0f ? __uint_as_float(0x7fc00000u) : {x})",
    "another type's largest number": "({x} > 240.0f ? 240.0f : {x})",
    "subnormal numbers are lost": "(fabsf({x}) < 0x1p-6f ? 0.0f : {x})",
    "neighbours are exchanged": (PAIR, "e4m3_pair(elements[at + 1], elements[at])"),
    "chunks are not swizzled": (CHUNK, "const int chunk = at / 8;"),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(emulator: Emulator, name: str) -> None:
    bug = BUGS[name]
    if isinstance(bug, str):
        values = (bug.format(x=f"elements[{at}]") for at in ("at", "at + 1"))
        bug = (PAIR, f"e4m3_pair({', '.join(values)})")
    # Small results, too, of which some are subnormal.
    problem = replace(PROBLEM, epilogue=Epilogue("acc * 0.02 * s" if "lost" in name else "acc * s"))
    family = load_family("gemm_wgmma")
    source = render(family, config(), problem)
    assert bug[0] in source.text
    wrong = replace(source, text=source.text.replace(*bug))
    assert not emulator.verify(wrong, launch_plan(family, config(), problem), problem).ok
