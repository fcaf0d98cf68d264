"""Tables for people: aligned, never folded in pipes, folded where a terminal is too narrow."""

import os
import shutil
import subprocess
import sys
from typing import Any

import click
import pytest

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


@pytest.mark.parametrize("columns", [80, 400])
def test_a_terminal_that_is_too_narrow_folds(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys)
    assert (len(lines) > 5) == (columns == 80)
    assert all(len(line) <= columns for line in lines)
    assert "".join(lines).count("x") == 150, "nothing is cut"


def test_asking_a_database_imports_no_numpy() -> None:
    """A tenth of a second, of half a one that such a command takes."""
    code = (
        "import sys, autogemm.cli.db, autogemm.cli.output, autogemm.store\n"
        "sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
