"""Says where the database is, without opening it or loading SQLAlchemy."""

from pathlib import Path

from autogemm.support.resources import default_database

# No path of a file, though SQLite knows them.
NO_FILES = ("", ":memory:")


def absolute(path: str) -> Path:
    """The path of a file, with ``~`` and from the root."""
    return Path(path).expanduser().absolute()


def database_place(database: str | None = None) -> str:
    """Where the database is or would be: a path, or a URL without its password.

    By default that of `resources.default_database`. Raises StoreError for what is no database.
    """
    text = default_database() if database is None else database
    if "://" not in text and text not in NO_FILES:
        return str(absolute(text))
    from autogemm.store.connection.connect import parse_address, shown_address

    return shown_address(parse_address(text))
