"""A kernel on the CPU may compute, and nothing else: shim/confine.cpp."""

from dataclasses import replace
from pathlib import Path

import pytest

from autogemm.emulator import Emulator, Mode, RunOptions, exchange
from autogemm.model.config import Config
from autogemm.model.kernel import KernelSource, Launch, LaunchPlan
from autogemm.model.problem import Problem

PROBLEM = Problem(1, 1, 1)
PLAN = LaunchPlan((Launch("gemm_kernel", (1, 1, 1), (1, 1, 1), 0),))
# C is right if all attempts have failed, which are made before the kernel is called; else it says
# by its bits which have not.
KERNEL = """
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
static const int taken = (ATTEMPT);
extern "C" __global__ void gemm_kernel(SIGNATURE) {
    C[0] = alpha * A[0] * B[0] + 1.0e3f * taken;
}
"""
ATTEMPTS = {
    "network": "socket(AF_INET, SOCK_STREAM, 0) >= 0",
    "local network": "socket(AF_UNIX, SOCK_STREAM, 0) >= 0",
    "shell": 'system("true") == 0',
    "process": "fork() >= 0",
    "signal": "kill(getppid(), 0) == 0",
    "file": 'open("FOLDER/made", O_CREAT | O_WRONLY, 0644) >= 0',
    "own folder": 'open("made", O_CREAT | O_WRONLY, 0644) >= 0',
    "old file": 'open("FOLDER/old", O_WRONLY) >= 0',
    "removal": 'unlink("FOLDER/old") == 0',
    "environment": 'getenv("PATH") != nullptr',
}


def source(attempt: str, folder: Path) -> KernelSource:
    signature = PLAN.signature.in_kernel("float")
    text = KERNEL.replace("ATTEMPT", attempt).replace("SIGNATURE", signature)
    return KernelSource(
        "plain", "", Config("plain", ()), PROBLEM.layout, text.replace("FOLDER", str(folder))
    )


def test_all_attempts_fail(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    options = RunOptions(mode=Mode.FAST)
    bits = "|".join(f"(({one}) << {bit})" for bit, one in enumerate(ATTEMPTS.values()))
    report = emulator.run(source(bits, tmp_path), PLAN, PROBLEM, options)
    assert report.ok, report.message
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_what_is_allowed_is_seen(emulator: Emulator, tmp_path: Path) -> None:
    """The attempts above are made, and their success would be told."""
    options = RunOptions(mode=Mode.FAST)
    report = emulator.run(source("getpid() > 0", tmp_path), PLAN, PROBLEM, options)
    assert not report.ok


def test_a_process_that_takes_too_much_memory_is_ended(
    emulator: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_MEMORY_BYTES", 64 * 2**20)
    plain = source("false", tmp_path)
    greedy = """
    volatile char* more = static_cast<char*>(malloc(256u << 20));
    for (unsigned i = 0;; i = (i + 4096) % (256u << 20)) more[i] = 1;
    C[0]"""
    text = plain.text.replace("C[0]", greedy, 1)
    report = emulator.run(replace(plain, text=text), PLAN, PROBLEM, RunOptions(mode=Mode.FAST))
    assert "of memory" in report.message
