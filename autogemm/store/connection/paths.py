"""Paths of database files."""

from pathlib import Path

# No path of a file, though SQLite knows them.
NO_FILES = ("", ":memory:")


def absolute(path: str) -> Path:
    """The path of a file, with ``~`` and from the root."""
    return Path(path).expanduser().absolute()
