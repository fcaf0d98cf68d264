"""The Optuna storage of a study: tables of its own in the tuning database, or memory."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage

from autogemm.errors import StoreError

# Longer than half a minute: a backup or a slow reader must not cost a run.
BUSY_TIMEOUT_S = 60.0


class _Connection(sqlite3.Connection):
    """Commits without waiting for the disk: a killed process loses nothing.

    Only a power cut can lose the last trials, and never half of one (SQLite documentation, WAL).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL").close()
        self.execute("PRAGMA synchronous=NORMAL").close()


def open_storage(url: str | None) -> BaseStorage:
    """Optuna's tables at a database URL, made if need be; memory for None.

    Raises StoreError if the database cannot be opened.
    """
    if url is None:
        return InMemoryStorage()
    connect_args: dict[str, Any] = {}
    if url.startswith("sqlite"):
        connect_args = {"timeout": BUSY_TIMEOUT_S, "factory": _Connection}
    try:
        return RDBStorage(url, engine_kwargs={"connect_args": connect_args})
    # Whatever SQLAlchemy or the driver raises: only the store may know those by name.
    except Exception as error:
        raise StoreError(
            f"the search cannot use the database ({_first_line(error)}); check that the file is "
            "writable and not locked, or choose another one with --db"
        ) from error


def close_storage(storage: BaseStorage) -> None:
    """Close what :func:`open_storage` opened."""
    if isinstance(storage, RDBStorage):
        storage.remove_session()
        storage.engine.dispose()


@contextmanager
def as_store_error() -> Iterator[None]:
    """Turns Optuna's storage failures into StoreError."""
    try:
        yield
    except StorageInternalError as error:
        cause = error.__cause__ or error
        raise StoreError(
            f"the search's trials cannot be written ({_first_line(cause)}); check that the "
            "database is writable and not locked, then run the same command to go on"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
