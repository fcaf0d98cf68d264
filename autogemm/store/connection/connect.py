"""Make an engine of what the user typed."""

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError

from autogemm.store.connection.paths import NO_FILES, absolute
from autogemm.support.errors import StoreError
from autogemm.support.installing import how_to_install
from autogemm.support.messages import masked

POSTGRESQL = "postgresql+psycopg"
# Other spellings of the same scheme, which other programs accept.
_POSTGRESQL_NAMES = frozenset({"postgres", "postgresql"})
# Parameters of a URL whose values say where the database is.
_PLAIN = frozenset({"host", "hostaddr", "port", "user", "dbname", "service", "sslmode"})
# A server that does not answer is an error after that time, and not after minutes.
CONNECT_TIMEOUT_S = 10


def parse_address(text: str) -> URL:
    """A URL as it is; text without ``://`` is the path of a SQLite file.

    Raises StoreError for a URL of no known kind of database, and for SQLite without a file.
    """
    if "://" not in text:
        address = URL.create("sqlite", database=text)
    else:
        try:
            address = make_url(text)
            if address.drivername in _POSTGRESQL_NAMES:
                address = address.set(drivername=POSTGRESQL)
            address.get_dialect()
        except (ArgumentError, NoSuchModuleError, ValueError) as error:
            # Only the scheme is repeated: the rest may hold a password.
            raise StoreError(
                f"no database of the kind {text.partition('://')[0]!r}: give a path, "
                "sqlite:///PATH or postgresql+psycopg://USER:PASSWORD@HOST/NAME"
            ) from error
    if "@" in (address.host or ""):
        # The text before it is the rest of a password, which would be looked up as a host name.
        raise StoreError("the database's URL has two @: write one in a password as %40")
    if not is_sqlite(address):
        return address
    if (address.database or "") in NO_FILES or address.query:
        raise StoreError(
            f"{masked(text)!r} is not the path of a file, so results would be lost: give a path"
        )
    path = str(absolute(str(address.database)))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise StoreError(f"the path of a database is UTF-8, {path!r} is not") from error
    return address.set(database=path)


def is_sqlite(address: URL) -> bool:
    """Whether the database is a file of SQLite."""
    return address.get_backend_name() == "sqlite"


def shown_address(address: URL) -> str:
    """The database's name in messages: a path, or a URL without its password."""
    if is_sqlite(address):
        return str(address.database)
    # In the query, in place of a name: a password may stand wherever the driver takes one.
    plain = address.set(query={name: _shown(name, cell) for name, cell in address.query.items()})
    return masked(plain.render_as_string(hide_password=True)).replace("%2A%2A%2A", "***")


def _shown(name: str, cell: str | tuple[str, ...]) -> str:
    """The value of a parameter that is known to hold no secret, stars for any other."""
    text = cell if isinstance(cell, str) else ",".join(cell)
    return text if name in _PLAIN and "=" not in text else "***"


def connect(address: URL, timeout_s: float) -> Engine:
    """An engine; nothing is opened yet. ``timeout_s``: how long to wait for another's lock.

    Raises StoreError when the driver of a database server is not installed.
    """
    if is_sqlite(address):
        engine = create_engine(address, connect_args={"timeout": timeout_s})
        _configure_sqlite(engine)
        return engine
    arguments = {}
    if "connect_timeout" not in address.query and address.drivername == POSTGRESQL:
        arguments["connect_timeout"] = CONNECT_TIMEOUT_S
    try:
        engine = create_engine(address, pool_pre_ping=True, connect_args=arguments)
    except ImportError as error:
        package = error.name or "psycopg"
        asked = how_to_install("postgres") if package == "psycopg" else f"pip install {package}"
        raise StoreError(
            f"{shown_address(address)} needs the Python package {package}: {asked}"
        ) from error
    if engine.dialect.name == "postgresql":
        _configure_postgresql(engine, timeout_s)
    return engine


def connect_immutable(path: Path) -> Engine:
    """Open a SQLite file for reading in a folder where SQLite cannot put its lock files."""
    uri = f"{path.as_uri()}?immutable=1"
    engine = create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(uri, uri=True, check_same_thread=False)
    )
    _configure_sqlite(engine)
    return engine


def has_log(path: Path) -> bool:
    """Whether something lies beside a SQLite file, without which it is not the whole database."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def writer(engine: Engine) -> Engine:
    """The same engine for transactions that write.

    In SQLite they take the write lock at once: a transaction that reads first and then writes
    fails, without waiting, when another process wrote in between.
    """
    return engine.execution_options(autogemm_begin="BEGIN IMMEDIATE")


def let_readers_go_on(engine: Engine, timeout_s: float) -> None:
    """Readers go on while one process writes (a write-ahead log). Kept in the file."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with engine.execution_options(autogemm_begin=None).connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except OperationalError as error:
            # SQLite does not wait here itself when another process does the same.
            if "locked" not in str(error.orig) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _configure_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: object) -> None:
        # BEGIN is ours (below), not the driver's.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        # With a write-ahead log a commit then survives the death of the process (kill -9), but
        # not always a power cut: the last commits may be lost, the file stays whole. FULL would
        # keep them for a disk flush per trial.
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        begin = connection.get_execution_options().get("autogemm_begin", "BEGIN")
        if begin is not None:
            connection.exec_driver_sql(begin)


def _configure_postgresql(engine: Engine, timeout_s: float) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {round(1000 * timeout_s)}")
        connection.commit()
