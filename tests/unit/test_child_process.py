"""Waiting for the end of a process: at once when it comes, and no longer than asked."""

import os
import subprocess
import sys
import time

import pytest

from autogemm.support.child_process import watched_end

WAITS_FOR_INPUT = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_the_end_of_a_process_is_awaited(
    has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    with subprocess.Popen(WAITS_FOR_INPUT, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with watched_end(process) as has_ended:
            begin = time.monotonic()
            assert not has_ended(0.05)
            assert time.monotonic() - begin >= 0.05
            process.stdin.close()
            assert has_ended(60.0)
            assert has_ended(0.0), "an end that was seen is told again"
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the system has no descriptors of it")
def test_an_end_is_seen_without_looking_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(seconds: float) -> None:
        raise AssertionError(f"slept {seconds} s")

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with subprocess.Popen(WAITS_FOR_INPUT, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        with monkeypatch.context() as patch, watched_end(process) as has_ended:
            patch.setattr(time, "sleep", never)
            process.stdin.close()
            assert has_ended(60.0)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
