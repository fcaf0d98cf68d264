"""The history that a worker without the database starts from, and recovery of files of workers that
died."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from autogemm.cluster.files import take_over
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.similarity import distance
from autogemm.store import (
    BestQuery,
    Copy,
    DecidedRow,
    DecidedRun,
    FinalsCopy,
    RunCopy,
    RunState,
    Store,
)
from autogemm.tuning import TuneRequest

# The newest runs of the problem that a worker is given with their trials, and results of problems
# like it: a few more than a warm start looks at.
MOST_RUNS = 20
MOST_RESULTS = 5
PARTS = ".parts"
_LOCK = "lock"


def history_of(
    store: Store, request: TuneRequest, decided: Sequence[DecidedRun], devices: Sequence[Device]
) -> tuple[Copy, ...]:
    """Return the runs of the problem, which are continued, and the results nearest to it, without
    their trials; in the order of their numbers, on which a warm start relies.
    """
    problem = request.problem
    own = [row.run_id for row in store.runs(BestQuery.of(problem), MOST_RUNS)]
    parts: dict[int, Iterator[Copy]] = {
        run_id: store.copies(BestQuery(run_id=run_id)) for run_id in own
    }
    if request.warm_start:
        objective = request.measure.objective
        alike = [run for run in decided if run.objective is objective]
        for row in store.decided(run_ids=_nearest(problem, alike, devices)):
            parts.setdefault(row.run_id, _result(row))
    return tuple(chain.from_iterable(parts[run_id] for run_id in sorted(parts)))


def _nearest(
    problem: Problem, decided: Sequence[DecidedRun], devices: Sequence[Device]
) -> list[int]:
    newest = {(run.problem, run.device.name): run for run in decided}

    def steps(run: DecidedRun) -> float:
        return min(distance(problem, one, run.problem, run.device) for one in devices)

    nearest = sorted(newest.values(), key=steps)[:MOST_RESULTS] if devices else []
    return [run.run_id for run in nearest]


def _result(row: DecidedRow) -> Iterator[Copy]:
    yield RunCopy(row.run_id, row.spec, RunState.FINISHED)
    yield FinalsCopy(row.run_id, row.finals, row.measured_at)


@contextmanager
def parts_folder(database: Path, session: str) -> Iterator[Path]:
    """Yield a folder beside a database, for the files of workers on this machine.

    It belongs to this process until the process ends. Files that are there at the end, or were left
    by a process that was killed, are imported by `recovered`.
    """
    folder = database.with_name(database.name + PARTS) / session
    folder.mkdir(parents=True)
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)


def recovered(store: Store, database: Path) -> int:
    """Import the files that workers left beside a database; return how many runs gained trials."""
    count = 0
    parts = database.with_name(database.name + PARTS)
    for folder in sorted(parts.glob("*")) if parts.is_dir() else ():
        with suppress(FileNotFoundError), (folder / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for path in sorted(folder.glob("*.db")):
                take_over(store, path)
                count += 1
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.rmdir(parts)  # noqa: PTH106  # only if it is empty
    return count
