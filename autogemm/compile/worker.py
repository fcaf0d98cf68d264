"""A process that compiles one text at a time, and may die of it.

Run as ``python -m autogemm.compile.worker PIPE_FD BUILDER`` by `autogemm.compile.processes`.
"""

import importlib
import sys
from collections.abc import Callable

from autogemm.compile.nvrtc import Build
from autogemm.compile.processes import BuildRefused, BuildRequest
from autogemm.support.child_process import become_child
from autogemm.support.errors import AutogemmError

Builder = Callable[[str, str, tuple[str, ...]], Build]


def main(pipe_fd: int, builder_path: str) -> None:
    """Serve requests until the parent hangs up."""
    connection = become_child(pipe_fd)
    module_name, _, function_name = builder_path.partition(":")
    builder: Builder = getattr(importlib.import_module(module_name), function_name)
    while True:
        try:
            request: BuildRequest = connection.recv()
        except EOFError:
            return
        connection.send(_answer(builder, request))


def _answer(builder: Builder, request: BuildRequest) -> Build | BuildRefused:
    try:
        return builder(request.source, request.name, request.options)
    except AutogemmError as error:
        return BuildRefused(type(error).__name__, str(error))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
