"""The database file of one problem at a worker that does not write to the common one."""

import shutil
import uuid
from pathlib import Path

from autogemm.store import BestQuery, Store, open_store


def copy_blank(path: Path) -> None:
    """Create an empty database by copying one in its folder, which is faster than migrations."""
    blank = path.with_name("blank")
    if not blank.exists():
        made = path.with_name(f"blank-{uuid.uuid4().hex}")
        open_store(str(made)).close()
        made.rename(blank)
    shutil.copyfile(blank, path)


def take_over(store: Store, path: Path) -> int:
    """Bring the runs of such a file that have trials into a database, and delete it; how many.

    Runs without trials are results of other problems, which the coordinator put there. Raises
    StoreError.
    """
    with open_store(str(path), create=False) as source:
        tried = [line.run_id for line in reversed(source.runs()) if line.num_trials]
        for run_id in tried:
            _take(store, source, run_id)
    remove(path)
    return len(tried)


def take_run(store: Store, path: Path, run_id: int) -> int:
    """Bring one run of such a file into a database; its number there. Raises StoreError."""
    with open_store(str(path), create=False) as source:
        return _take(store, source, run_id)


def _take(store: Store, source: Store, run_id: int) -> int:
    query = BestQuery(run_id=run_id)
    return store.import_copies(lambda: source.copies(query)).run_ids[run_id]


def remove(path: Path) -> None:
    """Delete a database file with what SQLite keeps beside it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
