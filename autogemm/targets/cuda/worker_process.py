"""The parent's end of a worker: start it, ask it with a deadline, kill it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pickle import UnpicklingError

from autogemm.targets.cuda.messages import Reply, Request

EXIT_WAIT_S = 5.0
# How much of the end of a dead worker's stderr is searched for its last words.
LAST_WORDS_BYTES = 4096


class WorkerDiedError(Exception):
    """The worker ended, or answered what no worker answers."""


class WorkerHungError(Exception):
    """The worker did not answer by the deadline. It is killed."""


class WorkerProcess:
    """One worker. After either error, or an interrupt while it was asked, it is dead."""

    def __init__(self, backend: str) -> None:
        self._connection, theirs = Pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by kill()
        command = [sys.executable, "-P", "-m", "autogemm.targets.cuda.worker"]
        try:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), backend],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                # A candidate's printf must not get into the output of a command.
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=child_environment(),
                start_new_session=True,
            )
        finally:
            theirs.close()
        self.alive = True

    def ask(self, request: Request, deadline_s: float) -> Reply:
        """The answer. Raises WorkerDiedError or WorkerHungError, with one line why."""
        try:
            return self._ask(request, deadline_s)
        except BaseException:
            # Also on Ctrl-C: an answer that nobody waits for must not meet the next request.
            self.kill()
            raise

    def _ask(self, request: Request, deadline_s: float) -> Reply:
        try:
            self._connection.send(request)
            if not self._connection.poll(deadline_s):
                raise WorkerHungError(f"no answer within {deadline_s:g} s")
            reply = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError(self._last_words()) from error
        except (UnpicklingError, AttributeError, ImportError, ValueError, TypeError) as error:
            raise WorkerDiedError(f"the worker's answer cannot be read: {error}") from error
        if not isinstance(reply, Reply):
            raise WorkerDiedError(f"the worker answered with a {type(reply).__name__}")
        return reply

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
        """Hang up and wait; a worker that does not end by itself is killed."""
        if not self.alive:
            return
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_WAIT_S)
        self.kill()

    def kill(self) -> None:
        """End the worker now (SIGKILL). May be called twice."""
        if not self.alive:
            return
        self.alive = False
        self._process.kill()
        # A process inside the driver dies late; the next worker need not wait for it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_WAIT_S)
        self._connection.close()
        self._stderr.close()


def child_environment() -> dict[str, str]:
    """The environment of a child Python that imports what this process can import."""
    paths = [path or os.getcwd() for path in sys.path]  # noqa: PTH109  # '' means just this
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
