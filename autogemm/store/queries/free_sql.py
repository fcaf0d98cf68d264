"""A person's own SELECT: it reads, and it ends."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, text

from autogemm.store.connection.connect import has_log, is_sqlite
from autogemm.support.errors import StoreError, UsageError

# How many steps of SQLite's machine lie between two looks at the clock: some milliseconds.
_STEPS = 100_000
# One value is no longer than this, so that no query can take all memory at once.
_MAX_VALUE_BYTES = 100_000_000
_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
# PostgreSQL's codes of errors (manual, appendix A).
_CANCELED, _READ_ONLY = "57014", "25006"
_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info"})


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a query; ``is_cut`` says that there are more than were asked for."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_cut: bool


def answer(
    engine: Engine, address: URL, query: str, *, timeout_s: float, limit: int | None
) -> Answer:
    """One SELECT (or VALUES, or WITH); at most ``limit`` rows.

    Nothing can be changed: SQLite opens the file read-only and refuses every other statement,
    PostgreSQL runs it in a read-only transaction. Raises UsageError for what is no such statement
    or is refused, StoreError when it takes longer than ``timeout_s``.
    """
    if not query.strip():
        raise UsageError("the query is empty: give one SELECT")
    count = None if limit is None else limit + 1
    if is_sqlite(address):
        columns, rows = _ask_sqlite(Path(str(address.database)), query, timeout_s, count)
    else:
        columns, rows = _ask_server(engine, query, timeout_s, count)
    return Answer(_distinct(columns), tuple(rows[:limit]), limit is not None and len(rows) > limit)


Fetched = tuple[list[str], list[tuple[Any, ...]]]


def _ask_sqlite(path: Path, query: str, timeout_s: float, count: int | None) -> Fetched:
    deadline = time.monotonic() + timeout_s
    with _refusals_in_one_line(timeout_s), closing(_read_only(path)) as db:
        db.execute("PRAGMA query_only = ON")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        # These tables come to be at their first use, which is no reading: before the guard is up.
        db.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        db.set_authorizer(_permission)
        cursor = db.execute(query)
        rows = cursor.fetchall() if count is None else cursor.fetchmany(count)
        if cursor.description is None:
            raise UsageError("that is not a query: give one SELECT")
        return [column[0] for column in cursor.description], rows


def _read_only(path: Path) -> sqlite3.Connection:
    uri = f"{path.as_uri()}?mode=ro"
    try:
        db = sqlite3.connect(uri, uri=True)
        db.execute("SELECT name FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if has_log(path):
            raise
        # A folder where SQLite cannot put its lock files.
        return sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    return db


def _permission(action: int, name: str | None, *_: str | None) -> int:
    is_read = action in _READS or (action == sqlite3.SQLITE_PRAGMA and name in _PRAGMAS)
    return sqlite3.SQLITE_OK if is_read else sqlite3.SQLITE_DENY


@contextmanager
def _refusals_in_one_line(timeout_s: float) -> Iterator[None]:
    try:
        yield
    # Two statements are a Warning up to Python 3.11, an Error since.
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = " ".join(str(error).split())
        if said == "interrupted":
            raise _too_long(timeout_s) from error
        if "authoriz" in said or "readonly" in said:
            raise _only_reads() from error
        raise UsageError(f"the query does not run: {said}") from error


def _ask_server(engine: Engine, query: str, timeout_s: float, count: int | None) -> Fetched:
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SET TRANSACTION READ ONLY"))
        connection.execute(text(f"SET LOCAL statement_timeout = {round(1000 * timeout_s)}"))
        driver: Any = connection.connection.driver_connection
        # A cursor in the server: it takes one query and nothing else, and its rows come as they are
        # asked for.
        with _server_refusals_in_one_line(engine, timeout_s), driver.cursor("answer") as cursor:
            cursor.execute(query)
            rows = cursor.fetchall() if count is None else cursor.fetchmany(count)
            return [column.name for column in cursor.description], rows


@contextmanager
def _server_refusals_in_one_line(engine: Engine, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except engine.dialect.loaded_dbapi.Error as error:
        state = getattr(error, "sqlstate", None)
        if state == _CANCELED:
            raise _too_long(timeout_s) from error
        if state == _READ_ONLY:
            raise _only_reads() from error
        # Without the text of the query, which is wrapped in one of ours.
        said = getattr(getattr(error, "diag", None), "message_primary", None) or error
        raise UsageError(f"the query does not run: {said}") from error


def _too_long(timeout_s: float) -> StoreError:
    return StoreError(f"the query took longer than {timeout_s:g} s: ask for less, or --timeout")


def _only_reads() -> UsageError:
    return UsageError("the query may only read: give one SELECT")


def _distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Two columns of one name get a number, so that a row is a dict."""
    names: list[str] = []
    for column in columns:
        name, number = column, 2
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names.append(name)
    return tuple(names)
