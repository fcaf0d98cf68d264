"""Open a store for a path or a URL, or for a copy that may be changed."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import URL, Engine
from sqlalchemy.exc import OperationalError

from autogemm.store.connection.connect import (
    connect,
    connect_immutable,
    has_log,
    is_sqlite,
    parse_address,
    shown_address,
)
from autogemm.store.connection.faults import damage_in_one_line, driver_errors_in_one_line
from autogemm.store.connection.schema import create_schema, nothing_there, require_schema
from autogemm.store.store import Store
from autogemm.support.errors import NotFoundError, StoreError
from autogemm.support.resources import default_database


def open_store(url: str | None = None, *, create: bool = True, timeout_s: float = 60.0) -> Store:
    """Open the database, by default the one of ``resources.default_database()``.

    A bare path is a SQLite file. With ``create`` it must be writable, and is made, with its
    folder, if it is not there; without, nothing is made. An older schema is migrated.
    ``timeout_s`` is how long each write waits for another process's lock.

    Raises NotFoundError (without ``create``) when there is no database, StoreError when it is
    none, is another program's, a newer version's, read-only, locked, or of an unknown kind.
    """
    address = parse_address(default_database() if url is None else url)
    where = shown_address(address)
    if is_sqlite(address):
        _prepare_file(Path(str(address.database)), create)
    engine = connect(address, timeout_s)
    try:
        with damage_in_one_line(where, engine):
            if create:
                create_schema(engine, where, timeout_s)
            else:
                engine = _readable(engine, address)
                require_schema(engine, where)
    except BaseException:
        engine.dispose()
        raise
    return Store(address, engine)


@contextmanager
def opened_copy(url: str) -> Iterator[Store]:
    """Yield the store of a copy, which is brought up to date; a server's database itself.

    Raises NotFoundError when there is no database, StoreError when it is none of ours.
    """
    address = parse_address(url)
    if not is_sqlite(address):
        with open_store(url, create=False) as store:
            yield store
        return
    path = Path(str(address.database))
    if not path.is_file():
        raise NotFoundError(f"no database at {path}")
    with tempfile.TemporaryDirectory(prefix="autogemm-") as folder:
        copy = Path(folder) / path.name
        with (
            driver_errors_in_one_line(str(path)),
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        with open_store(str(copy), create=False) as store:
            yield store


def _prepare_file(path: Path, create: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give the path of a database file in it")
    if path.exists():
        return
    if not create:
        raise nothing_there(str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the folder {path.parent} for the database cannot be made ({error.strerror}): give "
            "another path"
        ) from error


def _readable(engine: Engine, address: URL) -> Engine:
    """The engine, or one that needs no lock files if the file's folder cannot take them."""
    if not is_sqlite(address):
        return engine
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT name FROM sqlite_master").first()
    except OperationalError as error:
        path = Path(str(address.database))
        # A folder in which one may not write, or a file system in which none may.
        refused = any(word in str(error.orig) for word in ("readonly", "unable to open"))
        if not refused or has_log(path):
            raise
        return connect_immutable(path)
    return engine
