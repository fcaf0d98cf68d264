"""The database file of one problem at a worker that does not write to the common one."""

import shutil
import uuid
from pathlib import Path

from autogemm.store import Store, open_store


def copy_blank(path: Path) -> None:
    """Make an empty database, as a copy of one in its folder: migrations take longer."""
    blank = path.with_name("blank")
    if not blank.exists():
        made = path.with_name(f"blank-{uuid.uuid4().hex}")
        open_store(str(made)).close()
        made.rename(blank)
    shutil.copyfile(blank, path)


def take_over(store: Store, path: Path) -> None:
    """Bring all that is in such a file into a database, and delete it. Raises StoreError."""
    with open_store(str(path), create=False) as source:
        store.import_copies(source.copies)
    remove(path)


def remove(path: Path) -> None:
    """Delete a database file with what SQLite keeps beside it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
