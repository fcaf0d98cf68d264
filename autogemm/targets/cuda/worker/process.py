"""The process that owns the GPU: reads requests from a pipe, answers them, may die any time.

Run as ``python -m autogemm.targets.cuda.worker.process PIPE_FD BACKEND`` by
:class:`autogemm.targets.cuda.target.CudaTarget`, and only by it.
"""

import importlib
import os
import sys
from typing import Protocol

from autogemm.support.child_process import become_child
from autogemm.support.errors import AutogemmError
from autogemm.targets.cuda.messages import (
    BenchDone,
    Broken,
    CeilingsDone,
    FinalsDone,
    Measure,
    Measured,
    Prepare,
    Prepared,
    Refused,
    Reply,
    Request,
    RunBench,
    RunCeilings,
    RunFinals,
    Start,
    Started,
)


class Backend(Protocol):
    """Does the work in the worker. An AutogemmError reaches the parent as it is."""

    def start(self, request: Start) -> Started:
        """Take the GPU."""

    def prepare(self, request: Prepare) -> Prepared:
        """Get ready for a problem."""

    def measure(self, request: Measure) -> Measured:
        """Verify and time one candidate."""

    def finals(self, request: RunFinals) -> FinalsDone:
        """Time candidates and baseline interleaved."""

    def bench(self, request: RunBench) -> BenchDone:
        """Time candidates and libraries interleaved."""

    def ceilings(self, request: RunCeilings) -> CeilingsDone:
        """Measure what the GPU reaches at most."""


def main(pipe_fd: int, backend_path: str) -> None:
    """Serve requests until the parent hangs up."""
    connection = become_child(pipe_fd)
    backend = load_backend(backend_path)
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        reply = answer(backend, request)
        connection.send(reply)
        if isinstance(reply, Broken) or (isinstance(reply, Measured) and reply.poisoned):
            # With a poisoned context, orderly clean-up raises or hangs.
            os._exit(1)


def load_backend(path: str) -> Backend:
    """``module:Class`` imported and constructed."""
    module_name, _, class_name = path.partition(":")
    backend: Backend = getattr(importlib.import_module(module_name), class_name)()
    return backend


def answer(backend: Backend, request: Request) -> Reply:
    """The backend's answer; what it raises becomes an answer too."""
    try:
        return answered(backend, request)
    except AutogemmError as error:
        return Refused(type(error).__name__, str(error))
    except Exception as error:
        return Broken(f"{type(error).__name__}: {error}")


def answered(backend: Backend, request: Request) -> Reply:
    """The backend's own answer."""
    match request:
        case Start():
            return backend.start(request)
        case Prepare():
            return backend.prepare(request)
        case Measure():
            return backend.measure(request)
        case RunFinals():
            return backend.finals(request)
        case RunBench():
            return backend.bench(request)
        case RunCeilings():
            return backend.ceilings(request)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
