"""Progress of long work: a bar with percentage and time left on a terminal, lines elsewhere."""

import itertools
import sys

import pytest
from rich.console import Console
from waiting import wait_until

from autogemm.cli import progress
from autogemm.cli.progress import is_live, metered, time_left, watched
from autogemm.cli.tune.progress import progress_listener
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.support.child_process import ChildProcess, Progress
from autogemm.tuning import Certifying, FinalsRound, FinalsStarted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes each time that one looks."""
    ticks = itertools.count(0.0, 1.0)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(ticks))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


class Shown:
    """What a terminal was shown so far. It is drawn again some times a second."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.text = ""

    def has(self, words: str) -> bool:
        self.text += self._capsys.readouterr().err
        return words in self.text

    def wait_for(self, words: str) -> None:
        wait_until(lambda: self.has(words), words)


@pytest.mark.usefixtures("clock")
def test_a_log_gets_few_lines_with_rate_note_and_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(watched(range(1000), 1000, "cases", str)) == list(range(1000))
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 10
    assert lines[0].startswith("300 of 1,000 cases, ")
    assert ", 299, " in lines[0]
    assert all("/s" in line for line in lines)
    assert " left" in lines[0]


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_bar_with_a_percentage(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown(capsys)
    with metered(200, "cases") as show:
        show(50, "4096 nn f32")
        shown.wait_for(" 25%")
    for words in ("50 of 200 cases", "4096 nn f32", " left"):
        assert shown.has(words)


def test_quiet_work_and_no_work_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watched([1, 2], 2, "cases", quiet=True)) == [1, 2]
    assert list(watched([], 0, "cases")) == []
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_a_dumb_terminal_cannot_redraw(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_live(Console(stderr=True))
    monkeypatch.setenv("TERM", "dumb")
    assert not is_live(Console(stderr=True))


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (45.4, "45 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_times_left(seconds: float, text: str) -> None:
    assert time_left(seconds) == f"{text} left"


@pytest.mark.usefixtures("terminal")
def test_finals_and_certificate_have_percentages(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Shown(capsys)
    # Only the words of a request are read here.
    request = type("Request", (), {"problem": Problem(64, 64, 64), "trials": 3, "budget_s": None})
    with progress_listener(request, Provenance.MEASURED, False) as listener:  # type: ignore[arg-type]
        listener(FinalsStarted(8, 30))
        listener(FinalsRound(12, 30))
        shown.wait_for(" 40%")
        listener(Certifying("edge cases on the GPU", 9, 12))
        shown.wait_for(" 75%")
    assert shown.has("finals: 8 candidates")
    assert shown.has("edge cases on the GPU")


CHILD = """
import sys
from autogemm.support.child_process import Progress, become_child
connection = become_child(int(sys.argv[1]))
while True:
    for done in range(connection.recv()):
        connection.send(Progress(done + 1, 3))
    connection.send("the answer")
"""


def test_a_child_says_how_far_it_is_before_it_answers(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_child.py").write_text(CHILD)  # type: ignore[operator]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    child = ChildProcess("slow_child", (), (str,))
    told: list[Progress] = []
    try:
        assert child.ask(3, 60.0, None, told.append) == "the answer"
        assert [one.done for one in told] == [1, 2, 3]
        assert child.ask(2, 60.0) == "the answer", "none need listen"
    finally:
        child.kill()
