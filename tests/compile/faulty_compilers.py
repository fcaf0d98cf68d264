"""Builders for a compiler's process that do what a compiler must not: the text says what."""

import os
import sys
import time
from pathlib import Path

from waiting import wait_until

from autogemm.compile.nvrtc import Build
from autogemm.support.errors import KernelCompileError

FINE = Build(b"machine code", "")


def faulty(source: str, name: str, options: tuple[str, ...]) -> Build:
    """Does what ``// FAULT ANYTHING`` says; anything else compiles at once."""
    fault, _, path = source.removeprefix("// ").partition(" ")
    match fault:
        case "hang":
            if path:
                Path(path).touch()
            time.sleep(600)
        case "segfault":
            os.kill(os.getpid(), 11)
        case "abort":
            print(
                "terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr
            )
            sys.stderr.flush()
            os.abort()
        case "killed":
            os.kill(os.getpid(), 9)
        case "grow":
            hoard = []
            while True:
                hoard.append(b"x" * 2**24)
        case "lie":
            return "no build"  # type: ignore[return-value]
        case "refuse":
            raise KernelCompileError("NVRTC cannot create a program: NVRTC_ERROR_OUT_OF_MEMORY")
        case "last":
            # The answer arrives, then the system ends the idle process.
            pid = os.getpid()
            if os.fork() == 0:
                time.sleep(0.3)
                os.kill(pid, 9)
                os._exit(0)
        case "who":
            return Build(str(os.getpid()).encode(), "")
    return FINE


def meet(source: str, name: str, options: tuple[str, ...]) -> Build:
    """Two texts, ``// FOLDER/a`` and ``// FOLDER/b``: each waits for the other's file."""
    mine = Path(source.removeprefix("// "))
    other = mine.with_name("b" if mine.name == "a" else "a")
    mine.touch()
    wait_until(other.exists, "the other one is compiled too")
    return Build(b"both", "")
