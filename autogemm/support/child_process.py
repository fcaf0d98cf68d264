"""A child process that may hang, crash or grow: asked with a deadline and a memory limit, killed.

The parent's end is `ChildProcess`. The child's main function begins with `become_child`.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

EXIT_WAIT_S = 5.0
# How much of the end of a dead child's stderr is searched for its last words.
LAST_WORDS_BYTES = 4096
# How often the memory of a child that is at work is looked at.
MEMORY_CHECK_S = 0.1
PARENT_POLL_S = 1.0
# A system out of memory ends the process with the highest score first: a child, not its parent.
FIRST_TO_GO = "1000"
PAGE_BYTES = 4096 if not hasattr(os, "sysconf") else os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a child on its answer; any number of these may come before it."""

    done: int
    total: int


OnProgress = Callable[[Progress], None]


class ChildError(Exception):
    """The child did not answer. It is dead; the message says why in one line."""


class ChildDiedError(ChildError):
    """The child ended, or answered what no child answers."""


class ChildHungError(ChildError):
    """The child did not answer by the deadline."""


class ChildTooLargeError(ChildError):
    """The child took more memory than it may."""


class ChildProcess:
    """``python -m MODULE PIPE_FD ARGUMENTS...``, which reads requests and sends an answer to each.

    After a `ChildError`, or an interrupt while it was asked, it is dead. ``replies`` are the
    classes of its answers. One thread asks at a time; any thread may `kill` meanwhile.
    """

    def __init__(self, module: str, arguments: Sequence[str], replies: tuple[type, ...]) -> None:
        self._replies = replies
        self._lock = threading.RLock()
        self._connection, theirs = Pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by kill()
        command = [sys.executable, "-P", "-m", module, str(theirs.fileno()), *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # The output of a candidate must not get into the output of a command.
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=child_environment(),
                # A Ctrl-C at the terminal goes to the parent alone.
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            self._stderr.close()
            raise
        finally:
            theirs.close()
        self._killed = False
        # Also when it is forgotten, and at the end of the program.
        self._end = weakref.finalize(self, _end, self._process, self._connection, self._stderr)

    @property
    def alive(self) -> bool:
        """True while it can be asked: not killed, and not ended by itself or by the system."""
        return not self._killed and self._process.poll() is None

    def ask(
        self,
        request: object,
        deadline_s: float,
        memory_bytes: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Any:
        """The answer to a request; ``on_progress`` is told how far it is. Raises a `ChildError`.

        ``memory_bytes`` bounds the memory that is the child's alone (shared libraries do not
        count); it is watched where the system tells it (Linux).
        """
        with self._lock:
            if self._killed:
                raise ChildDiedError("the worker process was ended before it was asked")
            try:
                return self._ask(request, deadline_s, memory_bytes, on_progress)
            except BaseException:
                # Also on Ctrl-C: an answer that came too late must not meet the next request.
                self.kill()
                raise

    def _ask(
        self,
        request: object,
        deadline_s: float,
        memory_bytes: int | None,
        on_progress: OnProgress | None,
    ) -> Any:
        end = time.monotonic() + deadline_s
        try:
            self._connection.send(request)
            self._await(deadline_s, end, memory_bytes)
            reply = self._connection.recv()
            while isinstance(reply, Progress):
                if on_progress is not None:
                    on_progress(reply)
                self._await(deadline_s, end, memory_bytes)
                reply = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ChildDiedError(self._last_words()) from error
        except (UnpicklingError, AttributeError, ImportError, ValueError, TypeError) as error:
            raise ChildDiedError(f"the worker's answer cannot be read: {error}") from error
        if not isinstance(reply, self._replies):
            raise ChildDiedError(f"the worker answered with a {type(reply).__name__}")
        return reply

    def _await(self, deadline_s: float, end: float, memory_bytes: int | None) -> None:
        # The clock is read before the pipe: an answer that came while this process had to wait for
        # a core, or slept with the machine, is found past the deadline too.
        while not self._connection.poll(
            min(MEMORY_CHECK_S, max(0.0, left_s := end - time.monotonic()))
        ):
            if left_s <= 0:
                raise ChildHungError(f"no answer within {deadline_s:g} s")
            used = own_memory_bytes(self._process.pid)
            if memory_bytes is not None and used > memory_bytes:
                raise ChildTooLargeError(
                    f"it took {used / 2**30:.1f} GiB of host memory, the limit is "
                    f"{memory_bytes / 2**30:.1f}"
                )

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_WAIT_S)
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - LAST_WORDS_BYTES))
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        code = self._process.returncode
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"the worker process ended ({how}){': ' + lines[-1] if lines else ''}"

    def close(self) -> None:
        """Hang up and wait; a child that is at work, or does not end by itself, is killed."""
        if self._lock.acquire(blocking=False):
            try:
                self._connection.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(EXIT_WAIT_S)
            finally:
                self._lock.release()
        self.kill()

    def kill(self) -> None:
        """End the child now (SIGKILL). May be called twice, and while another thread asks it."""
        self._killed = True
        self._process.kill()
        # A process inside a driver dies late; the next one need not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_WAIT_S)
        with self._lock:  # a thread that was waiting for an answer has seen the end of it
            self._end()


def _end(
    process: "subprocess.Popen[bytes]", connection: "Connection[Any, Any]", stderr: IO[bytes]
) -> None:
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(EXIT_WAIT_S)
    connection.close()
    stderr.close()


@contextlib.contextmanager
def watched_end(process: "subprocess.Popen[bytes]") -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for the end of a process, at most so many seconds, and returns
    whether it has ended.

    `Popen.wait` with a timeout looks again and again, with pauses of up to 50 ms: longer than a
    small kernel runs.
    """

    def polled(seconds: float) -> bool:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        # Another system than Linux, or one that has no descriptors left.
        yield polled
        return
    try:
        # Readable once the process has ended. Not `select`: it takes small descriptors only.
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        yield lambda seconds: bool(poll.poll(1000 * seconds))
    finally:
        os.close(descriptor)


def own_memory_bytes(pid: int) -> int:
    """Resident memory of a process without files and shared memory; 0 where it is not known."""
    resident, shared = _resident_and_shared(pid)
    return resident - shared


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, all of it; 0 where it is not known."""
    return _resident_and_shared(pid)[0]


def _resident_and_shared(pid: int) -> tuple[int, int]:
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    except (OSError, ValueError):
        return 0, 0
    return int(resident) * PAGE_BYTES, int(shared) * PAGE_BYTES


def child_environment() -> dict[str, str]:
    """The environment of a child Python that imports what this process can import."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109  # '' means just this
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def become_child(pipe_fd: int) -> "Connection[Any, Any]":
    """Prepare a child's process and return its end of the pipe. Reading it ends with EOFError."""
    # Ctrl-C is the parent's to answer: it decides what becomes of a request in flight.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    return Connection(pipe_fd)


def _die_with_parent(parent_pid: int) -> None:
    """Kill this process once its parent is gone: it would work for nothing, maybe for ever."""
    while os.getppid() == parent_pid:
        time.sleep(PARENT_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
