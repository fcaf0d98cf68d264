"""A process that compiles one text at a time, and may die of it.

Run as ``python -m autogemm.compile.worker PIPE_FD BUILDER`` by `autogemm.compile.processes`.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from autogemm.compile.nvrtc import Build
from autogemm.compile.processes import BuildRefused
from autogemm.support.child_process import become_child
from autogemm.support.errors import AutogemmError

NICENESS = 5

Builder = Callable[[str, str, tuple[str, ...]], Build]


def main(pipe_fd: int, builder_path: str) -> None:
    """Serve requests until the parent hangs up."""
    connection = become_child(pipe_fd)
    # As many compilers as cores: the threads that keep the GPU busy must not wait for them.
    os.nice(NICENESS)
    # Where Linux schedules sessions as groups, that counts within this one's only.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))
    module_name, _, function_name = builder_path.partition(":")
    builder: Builder = getattr(importlib.import_module(module_name), function_name)
    while True:
        try:
            # A text, the file name that messages show, and the compiler's options.
            source, name, options = connection.recv()
        except EOFError:
            return
        connection.send(_answer(builder, source, name, options))


def _answer(
    builder: Builder, source: str, name: str, options: tuple[str, ...]
) -> Build | BuildRefused:
    try:
        return builder(source, name, options)
    except AutogemmError as error:
        return BuildRefused(type(error).__name__, str(error))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
