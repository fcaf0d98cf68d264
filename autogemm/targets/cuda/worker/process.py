"""The process that owns the GPU: reads requests from a pipe, answers them, may die any time.

Run as ``python -m autogemm.targets.cuda.worker.process PIPE_FD BACKEND`` by
:class:`autogemm.targets.cuda.target.CudaTarget`, and only by it.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from autogemm.support.child_process import Progress, become_child
from autogemm.support.errors import AutogemmError
from autogemm.targets.cuda import messages
from autogemm.targets.cuda.messages import Reply

if TYPE_CHECKING:
    from autogemm.targets.cuda.worker.backend import CudaBackend


def main(pipe_fd: int, backend_path: str) -> None:
    """Serve requests until the parent hangs up."""
    connection = become_child(pipe_fd)
    backend = load_backend(backend_path)
    backend.report = lambda done, total: connection.send(Progress(done, total))
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        reply = answer(backend, request)
        connection.send(reply)
        if isinstance(reply, messages.Broken) or (
            isinstance(reply, messages.Measured) and reply.poisoned
        ):
            # With a poisoned context, orderly clean-up raises or hangs.
            os._exit(1)


def load_backend(path: str) -> "CudaBackend":
    """Return the backend of ``module:Class``, constructed; tests have others than CudaBackend."""
    module_name, _, class_name = path.partition(":")
    backend: CudaBackend = getattr(importlib.import_module(module_name), class_name)()
    return backend


def answer(backend: "CudaBackend", request: messages.Request) -> Reply:
    """The backend's answer; what it raises becomes an answer too, an AutogemmError as it is."""
    try:
        return _answered(backend, request)
    except AutogemmError as error:
        return messages.Refused(type(error).__name__, str(error))
    except Exception as error:
        return messages.Broken(f"{type(error).__name__}: {error}")


# The backend's method for each request.
METHODS = {
    messages.Start: "start",
    messages.Prepare: "prepare",
    messages.Measure: "measure",
    messages.RunFinals: "finals",
    messages.RunSustained: "sustained",
    messages.RunBench: "bench",
    messages.RunCeilings: "ceilings",
}


def _answered(backend: "CudaBackend", request: messages.Request) -> Reply:
    reply: Reply = getattr(backend, METHODS[type(request)])(request)
    return reply


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
