"""A database to read from that must stay as it is, even if it is of an older version."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from autogemm.store.connection.connect import is_sqlite, parse_address
from autogemm.store.opening import open_store
from autogemm.store.store import Store
from autogemm.support.errors import NotFoundError, StoreError


@contextmanager
def opened_copy(url: str) -> Iterator[Store]:
    """The store of a copy, which is brought up to date; a server's database itself.

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
        try:
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise StoreError(f"the database {path} cannot be read: {error}") from error
        with open_store(str(copy), create=False) as store:
            yield store
