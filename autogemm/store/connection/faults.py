"""Turns what a database does wrong into one line: errors of a driver, and damage to a file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from autogemm.store.tables.cells import CellError
from autogemm.support.errors import AutogemmError, StoreError, StoreLockedError
from autogemm.support.messages import message

_DAMAGED = "is damaged: restore a copy or give another path"
# Part of a driver's message -> what it means for the user.
_MEANINGS = {
    "file is not a database": "is not a database: give another path",
    "database is locked": "is locked by another process: end it or try again later",
    "readonly database": "is read-only: make it and its folder writable, or give another path",
    "unable to open database file": "cannot be opened: one must be allowed to write there",
    "disk image is malformed": _DAMAGED,
    "disk is full": "cannot grow: the disk is full",
    "due to lock timeout": "is locked by another process: end it or try again later",
}
# Driver's messages after which trying again helps.
_LOCKED = ("database is locked", "due to lock timeout")
# Errors that a row raises whose value is of another type than its column.
_OF_A_ROW = (ValueError, TypeError, KeyError, RecursionError)


@contextmanager
def driver_errors_in_one_line(where: str) -> Iterator[None]:
    """Turn what the driver raises into a StoreError that names the database."""
    try:
        yield
    except DBAPIError as error:
        raise _named(where, error.orig or error) from error
    except sqlite3.Error as error:
        raise _named(where, error) from error
    except UnicodeDecodeError as error:
        # SQLite's own messages quote a damaged schema byte for byte.
        raise StoreError(f"the database {where} {_DAMAGED} ({error})") from error


@contextmanager
def reading_faults_in_one_line(where: str, engine: Engine) -> Iterator[None]:
    """As `driver_errors_in_one_line`, and for a row that cannot be understood.

    Anything else is a bug and passes through, unless the file is damaged.
    """
    with damage_in_one_line(where, engine):
        try:
            yield
        except UnicodeDecodeError:
            raise
        except _OF_A_ROW as error:
            raise _not_understood(where, error) from error


@contextmanager
def damage_in_one_line(where: str, engine: Engine) -> Iterator[None]:
    """As `driver_errors_in_one_line`, and for whatever else is raised where the file is damaged.

    A damaged file may lack rows that others name, or hold the cells of another table. Only after an
    error is the file looked through, which takes seconds for a gigabyte.
    """
    with driver_errors_in_one_line(where):
        try:
            yield
        except (AutogemmError, DBAPIError, sqlite3.Error, UnicodeDecodeError):
            raise
        except CellError as error:
            raise _not_understood(where, error) from error
        except Exception as error:
            if not is_damaged(engine):
                raise
            raise StoreError(f"the database {where} {_DAMAGED}") from error


def is_damaged(engine: Engine) -> bool:
    """Whether SQLite finds a fault in its file, or a row that names one that is not there."""
    if engine.dialect.name != "sqlite":
        return False
    try:
        with engine.connect() as connection:
            found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
            missing = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    except (DBAPIError, sqlite3.Error, UnicodeDecodeError):
        return True
    return found != "ok" or missing is not None


def _not_understood(where: str, error: Exception) -> StoreError:
    return StoreError(
        f"the database {where} holds a row that cannot be understood, it is damaged or was edited "
        f"by hand: {message(str(error))}"
    )


def _named(where: str, error: BaseException) -> StoreError:
    said = message(str(error))
    meanings = (f" {text}" for part, text in _MEANINGS.items() if part in said)
    kind = StoreLockedError if any(words in said for words in _LOCKED) else StoreError
    return kind(f"the database {where}{next(meanings, f': {said}')}")
