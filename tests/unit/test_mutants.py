"""Bugs planted by rules: which lines they change, how they are drawn, what becomes of them."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.cli.kernels.run import mutants as command
from autogemm.cli.output import Form
from autogemm.codegen import render
from autogemm.emulator import Emulator
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import KernelSource
from autogemm.space import load_family
from autogemm.support.errors import EmptySpaceError, KernelCompileError
from autogemm.verify import (
    CaseSet,
    Draw,
    Fate,
    MutantResult,
    legal_case,
    mutants_of,
    planned_cases,
    run_mutants,
)
from autogemm.verify.mutants import SHOWN

CONFIG = Config("tiny", ())
TEXT = """\
// for (int i = 0; i < n; ++i) is a comment.
constexpr int BM = 64;
#ifndef AUTOGEMM_EMULATOR
    if (x < y) {
#endif  // AUTOGEMM_EMULATOR
    if (i + 1 < n) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        copy_async_16(a, b);
        at = (long long)m * ldc + k;
    }
"""


def edits(line: str, text: str = TEXT) -> dict[str, list[str]]:
    """The new lines of each rule for a line."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of(CONFIG, [text]):
        if mutant.line == line:
            found.setdefault(mutant.rule, []).append(mutant.new)
    return found


def test_rules_change_one_thing_in_one_line() -> None:
    assert edits("if (i + 1 < n) {") == {
        "bound one too far": ["if (i + 1 <= n) {"],
        "guard always open": ["if (true) {"],
        "guard always shut": ["if (false) {"],
        "off by one": ["if (i < n) {"],
        "minus for plus": ["if (i - 1 < n) {"],
    }
    assert edits("at = (long long)m * ldc + k;") == {
        "stride dropped": ["at = (long long)m + k;"],
        "stride one too long": ["at = (long long)m * (ldc + 1) + k;"],
        "stride one too short": ["at = (long long)m * (ldc - 1) + k;"],
        "minus for plus": ["at = (long long)m * ldc - k;"],
        "index narrowed": ["at = (int)m * ldc + k;"],
        "operands swapped": ["at = (long long)m * ldb + k;"],
    }
    assert edits("__syncthreads();") == {"barrier dropped": [";"]}
    assert edits("copy_async_16(a, b);") == {
        "call dropped": [";"],
        "arguments swapped": ["copy_async_16(b, a);"],
    }
    left = "const int left = rows - copied;"
    unsigned = edits(left, left)["difference unsigned"]
    assert unsigned == ["const unsigned left = rows - copied;"]
    waits = edits("wait_for_copies<STAGES - 2>();")
    assert waits["wait dropped"] == [";"]
    assert waits["wait weakened"] == ["wait_for_copies<(STAGES - 2) + 1>();"]


def test_comments_constants_of_the_launch_and_what_the_emulator_replaces_stay() -> None:
    lines = {mutant.line for mutant in mutants_of(CONFIG, [TEXT])}
    assert not any("//" in line or "BM" in line or "x < y" in line for line in lines)
    assert len(lines) == 5


def test_a_line_changes_wherever_it_stands_and_nothing_else_does() -> None:
    mutant = next(one for one in mutants_of(CONFIG, [TEXT]) if one.rule == "barrier dropped")
    twice = TEXT + "  __syncthreads();\n  __syncthreads(); // not this\n"
    assert mutant.apply(twice) == (
        TEXT.replace("__syncthreads();", ";") + "  ;\n  __syncthreads(); // not this\n"
    )
    assert mutant.apply("nothing") == "nothing"


FAMILY = load_family("naive")
DEVICE = find_device("h100")
SETS = [CaseSet(seed, DType.F32, planned_cases(FAMILY, seed, DEVICE)) for seed in FAMILY.seeds]


class FakeEmulator:
    """Finds a bug where the text has ``seen``, refuses ``broken``, and cannot tell ``same``.

    With variables that begin as garbage it finds ``seen_as_garbage``.
    """

    def __init__(self, seen: str, broken: str = "\0", same: str = "\0") -> None:
        self.seen, self.broken, self.same = seen, broken, same
        self.seen_as_garbage = ""
        self.num_runs = 0

    def verify(self, source: KernelSource, *_: Any, **_how: bool) -> Any:
        self.num_runs += 1
        if self.broken in source.text:
            raise KernelCompileError("no such thing")
        is_bad = self.seen in source.text
        return type("Report", (), {"ok": not is_bad, "message": "wrong\nmore" if is_bad else ""})

    def verify_unset(self, source: KernelSource, *_: Any) -> Any:
        is_bad = bool(self.seen_as_garbage) and self.seen_as_garbage in source.text
        return type("Report", (), {"ok": not is_bad, "message": "garbage"})

    def is_same_program(self, text: str, other: str) -> bool:
        assert text != other
        return self.same in other


def fates(emulator: FakeEmulator, draw: Draw) -> list[MutantResult]:
    return list(run_mutants(FAMILY, DEVICE, cast("Emulator", emulator), SETS, draw))


def test_each_fate() -> None:
    seen, broken, same = "if (false) {", "if (true) {", " <= "
    for result in fates(FakeEmulator(seen, broken, same), Draw(60)):
        new = result.mutant.new
        expected = (
            Fate.CAUGHT
            if seen in new
            else Fate.NOT_COMPILED
            if broken in new
            else Fate.SAME_CODE
            if same in new
            else Fate.SURVIVED
        )
        assert (result.fate, bool(result.problem)) == (expected, expected is Fate.CAUGHT)
        assert result.message == ("wrong" if expected is Fate.CAUGHT else "")
    assert fates(FakeEmulator("\0"), Draw(3, each_s=0.0))[0].fate is Fate.OUT_OF_TIME


def test_draws_are_of_the_seed_each_once_and_never_more_than_there_are() -> None:
    def drawn(draw: Draw) -> list[Any]:
        return [one.mutant for one in fates(FakeEmulator(" "), draw)]

    assert drawn(Draw(20, seed=1)) == drawn(Draw(20, seed=1)) != drawn(Draw(20, seed=2))
    everything = drawn(Draw(10_000))
    texts = {one.config: [] for one in SETS}  # type: dict[Config, list[str]]
    for one in SETS:
        legal = (legal_case(FAMILY, DEVICE, case) for case in one.cases[:SHOWN])
        texts[one.config] += [
            render(FAMILY, case.config, case.problem).text for case in legal if case is not None
        ]
    expected = {mutant for config, own in texts.items() for mutant in mutants_of(config, own)}
    assert len(everything) == len(set(everything))
    assert set(everything) == expected


def test_what_begins_as_garbage_is_run_too() -> None:
    emulator = FakeEmulator("\0")
    emulator.seen_as_garbage = " "
    assert any(one.message == "garbage" for one in fates(emulator, Draw(20)))


@pytest.mark.parametrize("count", [1, 4])
def test_a_caught_mutant_is_run_no_further(count: int) -> None:
    emulator = FakeEmulator("")
    assert {one.fate for one in fates(emulator, Draw(count))} == {Fate.CAUGHT}
    assert emulator.num_runs == count


def test_ctrl_c_shows_what_was_judged_until_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = fates(FakeEmulator("\0"), Draw(1))[0]
    assert one.fate is not Fate.CAUGHT

    def interrupted(*_: object) -> Iterator[MutantResult]:
        yield one
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_mutants", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command.plant(FAMILY, DEVICE, SETS, Draw(40), Form.TABLE)
    shown = capsys.readouterr().out
    assert one.mutant.rule in shown
    assert f"1 {one.fate}" in shown


def test_that_there_was_nothing_to_plant_a_bug_in_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "run_mutants", lambda *_: iter(()))
    with pytest.raises(EmptySpaceError, match="no bug was planted"):
        command.plant(FAMILY, DEVICE, [], Draw(40), Form.JSON)
