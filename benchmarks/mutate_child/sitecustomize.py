"""Notes which lines of the package a child process of a test runs; found by Python at its start.

`benchmarks/mutate_trying.py` puts this folder on the path of children. The file ``current`` beside
the data names the test that runs: it is read at the start and with each request of the parent.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = "AUTOGEMM_MUTATE_CHILDREN"


def _count(folder: Path, package: str) -> None:
    from multiprocessing.connection import Connection

    import coverage

    counting = coverage.Coverage(
        data_file=str(folder / "child"),
        data_suffix=True,
        config_file=False,
        include=[f"{package}/*"],
        messages=False,
    )
    counting.start()

    def follow() -> None:
        counting.switch_context((folder / "current").read_text())

    receive, send = Connection.recv, Connection.send

    def received(self: "Connection[Any, Any]") -> Any:
        request = receive(self)
        follow()
        return request

    def sent(self: "Connection[Any, Any]", reply: Any) -> None:
        # A parent may kill this process as soon as it has its answer.
        counting.save()
        send(self, reply)

    follow()
    for name, function in (("recv", received), ("send", sent)):
        setattr(Connection, name, function)


def _is_ours() -> bool:
    """A module of the package, a console, or a process of a pool: no compiler, no other tool."""
    ours = re.compile(r"autogemm(\.|$)|.*multiprocessing\.spawn")
    return any(ours.match(one) for one in sys.orig_argv)


if (named := os.environ.get(FOLDER)) and _is_ours():
    _count(Path(named), os.environ[f"{FOLDER}_PACKAGE"])
