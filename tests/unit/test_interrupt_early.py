"""Ctrl-C before the command line is there: one line, as after."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

# Stands before the package that the command line imports first, and takes its time.
SLOW = """
import pathlib, sys, time
pathlib.Path(sys.argv[-1]).touch()
time.sleep(60)
"""
IGNORING = "trap '' INT; exec \"$@\""


def started(tmp_path: Path, *prefix: str) -> "subprocess.Popen[str]":
    """The program, in the middle of its first import."""
    (tmp_path / "click.py").write_text(SLOW)
    begun = tmp_path / "begun"
    paths = [str(tmp_path), *sys.path]
    program = subprocess.Popen(
        [*prefix, sys.executable, "-m", "autogemm", str(begun)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    wait_until(begun.exists, "the program imports its first package")
    return program


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_line_and_the_exit_code_of_an_interrupt(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    program = started(tmp_path)
    program.send_signal(number)
    out, err = program.communicate(timeout=30)
    assert (program.returncode, out, err) == (code, "", "interrupted\n")


def test_a_program_that_ignores_it_goes_on_doing_so(tmp_path: Path) -> None:
    program = started(tmp_path, "sh", "-c", IGNORING, "sh")
    program.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.3)
    program.kill()
    program.communicate()
