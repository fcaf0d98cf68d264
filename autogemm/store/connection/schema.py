"""Brings a database to the schema of this version, or says why it cannot be."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
    text,
)

from autogemm.store.connection.connect import let_readers_go_on, writer
from autogemm.store.tables.bench_models import BenchRecord
from autogemm.support.errors import NotFoundError, StoreError
from autogemm.support.resources import data_folder

# Not "alembic_version": that one is Optuna's in databases of before 0.2.
VERSION_TABLE = "autogemm_version"

# The newest file in db/migrations/versions. Kept here so that a database which is up to date, the
# usual case, opens without importing alembic, and a new one is made without it.
SCHEMA_REVISION = "0015"

# As alembic makes it.
_VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)


def check_schema(engine: Engine, where: str) -> bool:
    """Whether there is something to read; an older schema is migrated.

    False for a database without tables. Raises StoreError for a newer or foreign database, and for
    one that lacks a table or a column.
    """
    with engine.connect() as connection:
        tables = inspect(connection).get_table_names()
        revision = _revision(connection) if VERSION_TABLE in tables else None
    if revision is None and tables:
        raise StoreError(
            f"the database {where} belongs to another program (its tables: "
            f"{', '.join(sorted(tables)[:3])}, ...): give another path"
        )
    if revision not in (None, SCHEMA_REVISION):
        _migrate(engine, where)
    if revision is None:
        return False
    _require_whole(engine, where)
    return True


def _require_whole(engine: Engine, where: str) -> None:
    """Raise StoreError if a table or column of this version is missing, whatever will be asked."""
    # All tables: benchmarks are the module that is imported last.
    expected = BenchRecord.metadata.tables
    with engine.connect() as connection:
        # A server tells all at once; SQLite, asked so, reads each table's statement with patterns.
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql(_SQLITE_COLUMNS).all()
            found = {(str(table), str(column)) for table, column in rows}
        else:
            known = inspect(connection).get_multi_columns()
            found = {(key[1], one["name"]) for key, columns in known.items() for one in columns}
    missing_tables = sorted(expected.keys() - {table for table, _ in found})
    wanted = {(name, column.name) for name, table in expected.items() for column in table.columns}
    missing = sorted(wanted - found)
    if missing:
        what = (
            f"the table {missing_tables[0]}"
            if missing_tables
            else f"the column {missing[0][1]} of {missing[0][0]}"
        )
        raise StoreError(
            f"the database {where} lacks {what}: it was changed by hand or by another program; "
            "restore a copy or give another path"
        )


_SQLITE_COLUMNS = (
    "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c "
    "WHERE m.type = 'table'"
)


def require_schema(engine: Engine, where: str) -> None:
    """Like check_schema; raises NotFoundError for a database without tables."""
    if not check_schema(engine, where):
        raise nothing_there(where)


def create_schema(engine: Engine, where: str, timeout_s: float) -> None:
    """Like check_schema; creates the tables in a database without any. It must be writable."""
    if check_schema(engine, where):
        _require_writable(engine)
        return
    let_readers_go_on(engine, timeout_s)
    with _changing(engine) as connection:
        # Another process may have been quicker.
        if not inspect(connection).has_table(VERSION_TABLE):
            BenchRecord.metadata.create_all(connection, checkfirst=False)
            _VERSION.create(connection)
            connection.execute(_VERSION.insert(), {"version_num": SCHEMA_REVISION})


def nothing_there(where: str) -> NotFoundError:
    """The error for a query of a database that does not exist yet."""
    return NotFoundError(f"no database at {where}: run autogemm tune or autogemm bench first")


def _require_writable(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        # A write that changes nothing: asking for the lock alone succeeds on a read-only file.
        with writer(engine).begin() as connection:
            connection.execute(text(f"DELETE FROM {VERSION_TABLE} WHERE 1 = 0"))


def _revision(connection: Connection) -> str | None:
    revision: str | None = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
    return revision


@contextmanager
def _changing(engine: Engine) -> Iterator[Connection]:
    """A transaction in which one process alone makes or changes tables.

    SQLite lets a table be replaced to which others refer: by the ids of rows, which the new table
    has too. A database has a whole schema or none, and of two processes that open a new one at the
    same time the second waits, then finds nothing left to do.
    """
    with writer(engine).connect() as connection:
        # By the driver itself: within a transaction SQLite ignores it.
        driver: Any = connection.connection.driver_connection
        is_sqlite = engine.dialect.name == "sqlite"
        if is_sqlite:
            driver.execute("PRAGMA foreign_keys = OFF")
        try:
            with connection.begin():
                if engine.dialect.name == "postgresql":
                    # The counterpart of SQLite's BEGIN IMMEDIATE. The number is arbitrary, but
                    # always this one.
                    connection.execute(text("SELECT pg_advisory_xact_lock(7041776)"))
                yield connection
        finally:
            # Ctrl-C may have closed it already.
            with suppress(sqlite3.ProgrammingError):
                if is_sqlite:
                    driver.execute("PRAGMA foreign_keys = ON")


def _migrate(engine: Engine, where: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # ConfigParser reads % as the start of a reference.
    folder = str(data_folder("db/migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with _changing(engine) as connection:
        revision = _revision(connection)
        if revision not in known:
            raise StoreError(
                f"the database {where} was written by a newer version of autogemm (schema "
                f"{revision}, known up to {SCHEMA_REVISION}): update autogemm"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
