"""Edge cases run every line of every source that a config emits; what they do not run is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mutations import TILE

from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.emulator import Emulator, LineCount
from autogemm.emulator.counting import find_gcov
from autogemm.emulator.toolchain import Toolchain
from autogemm.model.config import Config, Value
from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.space import launch_plan, load_family
from autogemm.support.errors import CompilerMissingError
from autogemm.verify import CaseLines, Reach, counting, legal_case, planned_cases, reach_of
from autogemm.verify.cases import Case
from autogemm.verify.edge_cases import Batches

pytestmark = pytest.mark.emulated

DEVICE = find_device("h100")
PIPELINE: dict[str, Value] = {
    **{"HANDOVER": 5, "STAGES": 3, "REG_STAGES": 2, "VEC_LOAD": 4, "VEC_STORE": 4, "GROUP_M": 2},
}
SPLIT: dict[str, Value] = {
    **{"BM": 16, "BN": 16, "BK": 16, "TM": 4, "TN": 4, "SLICE_K": 4, "STAGES": 2, "CHAIN_K": 0},
    **{"SPLIT_K": 33, "FAN_IN": 8, "MIN_BLOCKS": 1},
}
CONFIGS: dict[str, dict[str, Value]] = {
    "sgemm_simt": TILE | PIPELINE,
    "sgemm_skinny": SPLIT,
}

# Conditions that a config decides: no problem reaches the lines behind them.
WITHOUT_PROBLEM: dict[str, set[str]] = {
    "sgemm_simt": set(),
    # The threads own all of the tile.
    "sgemm_skinny": {"if (owned(vector) >= TILE) {"},
}


def config_of(name: str) -> Config:
    first = {one.name: one.values[0] for one in load_family(name).parameters}
    return Config.of(name, first | CONFIGS[name])


# In batches, some lines of sgemm_skinny run in the plain texts alone: few of its problems have an
# edge and a workspace at once, and each such text comes with few stackings.
@pytest.mark.parametrize(
    ("name", "batches"),
    [*((name, Batches.NONE) for name in CONFIGS), ("sgemm_simt", Batches.ALL)],
)
def test_each_line_of_each_source_runs(emulator: Emulator, name: str, batches: Batches) -> None:
    family = load_family(name)
    count = counting(family, emulator)
    planned = planned_cases(family, config_of(name), DEVICE, batches=batches)
    legal = (legal_case(family, DEVICE, case) for case in planned)
    cases = [case for case in legal if case is not None and case.problem.layout is Layout.NT]
    reach = reach_of([count(case) for case in cases])
    assert reach.num_sources > 5
    assert reach.num_lines > 900
    missed = {one.text for one in reach.unreached if not one.is_branch}
    assert missed == WITHOUT_PROBLEM[name], reach.message
    assert reach.num_taken > 0.94 * reach.num_ways
    assert len(reach.cover) < len(cases)


PLANTED = (
    "    if (K == 31415) {  // planted\n        C[0] = 1.0f;\n        C[1] = 1.0f;\n    }\n"
    "    if (BM == 31415) {\n        C[2] = 1.0f;\n    }\n"
)
PROBLEM = Problem(70, 70, 70)


def planted(emulator: Emulator, text: str) -> Reach:
    """The lines that PROBLEM runs of a kernel that begins with the text."""
    family = load_family("tiled")
    case = Case(family.seeds[0], PROBLEM)
    source = render(family, case.config, PROBLEM)
    begin = source.text.index(") {\n", source.text.index("gemm_kernel(")) + 4
    longer = source.text[:begin] + text + source.text[begin:]
    plan = launch_plan(family, case.config, PROBLEM)
    counts = emulator.count_lines(replace(source, text=longer), plan, PROBLEM)
    return reach_of([CaseLines(case, longer, counts, 1.0)])


def test_a_branch_that_nothing_reaches_is_shown_and_one_that_is_removed_is_not(
    emulator: Emulator,
) -> None:
    plain, more = planted(emulator, ""), planted(emulator, PLANTED)
    assert plain.num_reached == plain.num_lines
    found = [one for one in more.unreached if not one.is_branch]
    assert [(one.last - one.first, one.text) for one in found] == [
        (1, "if (K == 31415) {  // planted")
    ]
    assert more.num_lines - more.num_reached == 2
    at = found[0].first
    assert more.message.endswith(f"not reached: {at}-{at + 1} (`if (K == 31415) {{  // planted`)")


def test_what_one_source_alone_does_not_run_is_told_from_what_none_does() -> None:
    def ran(text: str, *counts: int) -> CaseLines:
        lines = {n: LineCount(n, 1, count) for n, count in enumerate(counts, 1)}
        return CaseLines(Case(load_family("tiled").seeds[0], PROBLEM), text, lines, 1.0)

    def lines(*own: str) -> str:
        return "\n".join(("void f() {", *own))

    first = ran(lines("a = 1;", "b = 1;", "c = 1;"), 1, 1, 0, 0)
    other = ran(lines("b = 1;", "c = 1;"), 1, 1, 0)
    reach = reach_of([first, other])
    assert (reach.num_reached, reach.num_lines, reach.num_sources) == (4, 7, 2)
    assert [(one.first, one.last, one.is_everywhere) for one in reach.unreached] == [
        (3, 4, True),
        (3, 3, True),
    ]
    assert len(reach.cover) == 2
    later = ran(lines("b = 1;", "c = 1;"), 1, 1, 5)
    (left,) = reach_of([ran(lines("b = 1;", "c = 1;", "d = 1;"), 1, 1, 0, 1), later]).unreached
    assert (left.first, left.text, left.is_everywhere) == (3, "c = 1;", False)


def test_both_ways_of_the_epilogue_run_on_a_problem(emulator: Emulator) -> None:
    family = load_family("tiled")
    source = render(family, family.seeds[0], PROBLEM)
    plan = launch_plan(family, family.seeds[0], PROBLEM)
    assert emulator.verify(source, plan, PROBLEM, both_betas=True).ok
    old = "with.beta * old_c"
    assert old in source.text
    wrong: KernelSource = replace(source, text=source.text.replace(old, "with.beta * accum"))
    assert emulator.verify(wrong, plan, PROBLEM).ok
    report = emulator.verify(wrong, plan, PROBLEM, both_betas=True)
    assert report.message.startswith("with beta = 0.5: wrong value")


def test_the_command_shows_lines(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*more: str) -> Result:
        return CliRunner().invoke(main, ["verify", "--gpu", "h100", "--rung", "naive", *more])

    monkeypatch.setattr("autogemm.verify.cases.edge_cases", lambda *_, **__: ((PROBLEM,),))
    monkeypatch.setattr("autogemm.verify.cases.unset_cases", lambda *_: frozenset())
    table = call("--lines")
    assert table.exit_code == 0, table.output
    assert "lines of 1 sources ran" in table.output
    (row,) = json.loads(call("--lines", "--json").stdout)
    assert row["cases"] == row["covering"] == row["sources"] == 1
    assert row["reached"] == row["lines"] > 10
    assert row["not_reached"] == [] or row["not_reached"][0]["is_branch"]
    assert row["cover"] == [PROBLEM.label]
    for excluded in (["--on", "both"], ["--mutate", "naive"]):
        assert call("--lines", *excluded).exit_code == 2


def test_what_cannot_count_says_so(tmp_path: Path) -> None:
    with pytest.raises(CompilerMissingError, match=r"needs g\+\+ 12 or newer"):
        find_gcov(Toolchain("/usr/bin/g++-11", "g++ 11.4.0", 11))
    with (
        pytest.raises(CompilerMissingError, match="needs gcov"),
        pytest.MonkeyPatch.context() as path,
    ):
        path.setenv("PATH", str(tmp_path))
        find_gcov(Toolchain(str(tmp_path / "g++"), "g++ 12.2.0", 12))
