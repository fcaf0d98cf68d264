"""Tables for people: aligned, never folded in pipes, folded where a terminal is too narrow."""

import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from autogemm.cli import main
from autogemm.cli.output import print_table

ROWS: list[dict[str, Any]] = [
    {"name": "short", "time_us": 1.5, "reason": "one\ntwo"},
    {"name": "x" * 150, "time_us": 12345.6, "reason": "y" * 100},
    {"name": "行列", "time_us": None, "reason": ""},
]
COLUMNS = ("name", "time_us", "reason")


def printed(capsys: pytest.CaptureFixture[str], title: str | None = None) -> list[str]:
    print_table(ROWS, COLUMNS, title)
    return click.unstyle(capsys.readouterr().out).splitlines()


def test_a_table_in_a_pipe_has_a_line_a_row_however_wide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    header, first, second, wide, east = printed(capsys)
    assert header == f"{'name':150}  time_us  reason"
    assert first == f"{'short':150}      1.5  one"
    assert second == " " * 161 + "two"
    assert wide == f"{'x' * 150}    12346  {'y' * 100}"
    # Two letters that take two columns each.
    assert east == f"行列{' ' * 146}        -  -"


def test_a_title_stands_above(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, title="[bold]trials")[0] == "[bold]trials"


def on_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    rows = [
        {"kernel": "BM=128 " * 20, "time_us": 2543.0, "measured_at": "2026-11-21 13:24"},
        {"kernel": "cuBLAS", "time_us": 49.95, "measured_at": "2026-11-21 13:25"},
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(rows, ("kernel", "time_us", "measured_at"))
    return click.unstyle(capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_terminal_that_is_too_narrow_folds_between_words(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = on_terminal(columns, capsys, monkeypatch)
    assert all(len(line) <= columns for line in lines)
    assert "\n".join(lines).count("BM=128") == 20
    assert any(line.split()[:2] == ["cuBLAS", "49.95"] for line in lines)


def test_a_terminal_that_is_broad_enough_folds_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(on_terminal(180, capsys, monkeypatch)) == 3


def test_where_no_folding_helps_each_row_has_lines_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    columns = [f"measurement{i}" for i in range(5)]
    print_table([dict.fromkeys(columns, 1.5), dict.fromkeys(columns, "two words")], columns)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert lines[:2] == ["measurement0  1.5", "measurement1  1.5"]
    assert lines[5:7] == ["", "measurement0  two words"]


def test_asking_a_database_imports_no_numpy() -> None:
    """A tenth of a second, of half a one that such a command takes."""
    code = "import sys, autogemm.cli.db.run.results\nsys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_no_control_code(monkeypatch: pytest.MonkeyPatch, no_color: str) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    result = CliRunner().invoke(main, ["gpus", "h100"], color=True)
    assert ("\x1b" in result.stdout) == (not no_color)
