"""Says where the database is, without opening it or loading SQLAlchemy."""

from autogemm.store.connection.paths import NO_FILES, absolute
from autogemm.support.resources import default_database


def database_place(database: str | None = None) -> str:
    """The database's place, whether it exists or not: a path, or a URL without its password.

    By default that of `resources.default_database`. Raises StoreError for what is no database.
    """
    text = default_database() if database is None else database
    if "://" not in text and text not in NO_FILES:
        return str(absolute(text))
    from autogemm.store.connection.connect import parse_address, shown_address

    return shown_address(parse_address(text))
