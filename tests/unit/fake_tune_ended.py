"""``python fake_tune_ended.py FOLDER SIGNAL SEED``: a run that is ended again and again, in forks.

Each attempt runs the command line with a fake GPU and gets SIGNAL at a random step: before or
after a statement of the database, at a commit, when a kernel is compiled, measured, in the finals.
One JSON line is printed for each attempt: step, exit status, what the database holds.
"""

import json
import os
import random
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from fake_target import FakeCompiler, FakeTarget, tiny_family
from sqlalchemy import event
from sqlalchemy.engine import Engine

import autogemm.compile
import autogemm.search
import autogemm.store
import autogemm.tuning.opening
from autogemm.cli import main
from autogemm.model.kernel import KernelSource
from autogemm.targets import Chosen

# A run takes about 340 steps, half of them before its first trial.
MOST_STEPS = 170
MOST_ATTEMPTS = 40


class Steps:
    """Counts what happens, and sends this process a signal at one of them."""

    def __init__(self, last: int, number: int) -> None:
        self.left = last
        self._number = number

    def step(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self._number)


class Compiler(FakeCompiler):
    steps: Steps

    def submit(self, source: KernelSource, arch: str) -> Any:
        self.steps.step()
        return super().submit(source, arch)


class Target(FakeTarget):
    steps: Steps

    def prepare(self, *arguments: Any) -> None:
        self.steps.step()
        super().prepare(*arguments)

    def measure(self, *arguments: Any) -> Any:
        self.steps.step()
        outcome = super().measure(*arguments)
        self.steps.step()
        return outcome

    def finals(self, *arguments: Any) -> Any:
        self.steps.step()
        finals = super().finals(*arguments)
        self.steps.step()
        return finals


def attempt(folder: Path, last: int, number: int) -> None:
    """In the fork."""
    for name, stream in (("out.log", 1), ("err.log", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    steps = Steps(last, number)
    Compiler.steps = Target.steps = steps
    for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, name, steps.step)
    target = Target(log=folder / "measured.log")
    autogemm.compile.Compiler = Compiler  # type: ignore[misc]
    autogemm.tuning.opening.choose_target = lambda *_: Chosen(target)  # type: ignore[assignment]
    arguments = ["--sampler", "exhaustive", "--budget", "none", "--rounds", "2", "--fix", "BM=32"]
    family = str(folder / "tiny")
    database = str(folder / "tune.db")
    main(
        ["tune", "--no-certify", "--family", family, "--size", "1024", "--db", database, *arguments]
    )


def held(folder: Path) -> dict[str, Any]:
    """The content of the database, read by SQLite itself."""
    with closing(sqlite3.connect(folder / "tune.db")) as connection:
        (check,) = connection.execute("PRAGMA integrity_check").fetchone()
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        trials = finals = []
        is_finished = False
        if "run_trials" in tables:
            trials = connection.execute(
                "SELECT run_id, number, config FROM run_trials ORDER BY id"
            ).fetchall()
            finals = connection.execute("SELECT run_id FROM finals").fetchall()
            states = connection.execute("SELECT state FROM runs WHERE id = 1").fetchall()
            is_finished = states == [("finished",)]
        return {
            "integrity": check,
            "foreign_keys": connection.execute("PRAGMA foreign_key_check").fetchall(),
            "trials": trials,
            "finals": [run_id for (run_id,) in finals],
            "is_finished": is_finished,
        }


def run() -> None:
    folder, number = Path(sys.argv[1]), getattr(signal, sys.argv[2])
    chance = random.Random(int(sys.argv[3]))
    tiny_family(folder / "tiny")
    for _ in range(MOST_ATTEMPTS):
        last = chance.randint(1, MOST_STEPS)
        child = os.fork()
        if child == 0:
            try:
                attempt(folder, last, number)
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code if isinstance(end.code, int) else 1)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(70)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        attempted = {"step": last, "exit": code, **held(folder)}
        print(json.dumps(attempted), flush=True)
        # It may be ended even then, while it prints the result: the next one would be a new run.
        if attempted["is_finished"]:
            return


if __name__ == "__main__":
    run()
