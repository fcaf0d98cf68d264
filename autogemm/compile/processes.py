"""The compiler in processes of its own: one that hangs or dies costs the kernel it compiled."""

import threading
from dataclasses import dataclass

from autogemm.compile.nvrtc import Build
from autogemm.support import errors
from autogemm.support.child_process import ChildDiedError, ChildError, ChildHungError, ChildProcess
from autogemm.support.errors import (
    AutogemmError,
    CompilerDiedError,
    CompileTimeoutError,
    KernelCompileError,
)

# The function that a process calls for each text.
NVRTC = "autogemm.compile.nvrtc:to_cubin"


@dataclass(frozen=True, slots=True)
class BuildRefused:
    """An answer that is no build: one of our own errors, by its class name. Pickled."""

    error: str
    message: str


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """Limits of the compiler for one kernel: seconds, and bytes of host memory."""

    deadline_s: float = 60.0
    memory_bytes: int = 4 * 2**30


DEFAULT_LIMITS = CompileLimits()


class CompilerProcesses:
    """At most ``count`` processes, each started when all the others are busy, then kept.

    Safe to use from several threads: each `build` has a process to itself.
    """

    def __init__(self, count: int, limits: CompileLimits, builder: str = NVRTC) -> None:
        self._limits = limits
        self._builder = builder
        self._free = threading.BoundedSemaphore(count)
        self._lock = threading.Lock()
        self._idle: list[ChildProcess] = []
        self._busy: set[ChildProcess] = set()
        self._closed = False

    def build(self, source: str, name: str, options: tuple[str, ...]) -> Build:
        """Compile one text.

        Raises CompileTimeoutError past the deadline, CompilerDiedError when the compiler ended or
        took too much memory, and what the compiler itself raises.
        """
        with self._free:
            process = self._take()
            try:
                request = (source, name, options)
                reply = process.ask(request, self._limits.deadline_s, self._limits.memory_bytes)
            except ChildError as error:
                raise _our_error(error) from error
            finally:
                self._give_back(process)
        if isinstance(reply, BuildRefused):
            error_class: type[AutogemmError] = getattr(errors, reply.error, KernelCompileError)
            raise error_class(reply.message)
        assert isinstance(reply, Build), "ChildProcess lets nothing else through"
        return reply

    def close(self) -> None:
        """End all processes, also those at work. May be called twice."""
        with self._lock:
            self._closed = True
            idle, busy = self._idle, list(self._busy)
            self._idle = []
        for process in (*busy, *idle):
            process.kill()

    def _take(self) -> ChildProcess:
        with self._lock:
            while self._idle and not self._closed:
                process = self._idle.pop()
                if process.alive:
                    self._busy.add(process)
                    return process
                process.kill()  # ended by the system meanwhile
        process = ChildProcess(
            "autogemm.compile.worker", [self._builder], replies=(Build, BuildRefused)
        )
        with self._lock:
            self._busy.add(process)
            if self._closed:
                process.kill()
        return process

    def _give_back(self, process: ChildProcess) -> None:
        with self._lock:
            self._busy.discard(process)
            if process.alive and not self._closed:
                self._idle.append(process)
                return
        process.kill()


def _our_error(error: ChildError) -> KernelCompileError:
    if isinstance(error, ChildDiedError):
        return CompilerDiedError(f"the compiler died: {error}")
    kind = CompileTimeoutError if isinstance(error, ChildHungError) else CompilerDiedError
    return kind(f"the compiler was ended: {error}")
