"""Finds the data folders: beside the package in a checkout, inside it in an installed wheel."""

from functools import cache
from pathlib import Path


@cache
def data_folder(name: str) -> Path:
    """``templates``, ``search_spaces``, ``db/recordings`` or another folder of data that ships.

    Raises FileNotFoundError if the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    for root in (package.parent, package / "_data"):
        folder = root / name
        if folder.is_dir() and (root != package.parent or (root / "pyproject.toml").is_file()):
            return folder
    raise FileNotFoundError(f"autogemm is not completely installed: no folder {name!r}")


def cache_folder() -> Path:
    """The folder of compiled kernels and kept sources: AUTOGEMM_CACHE, else the user's cache."""
    import os

    import platformdirs

    configured = os.environ.get("AUTOGEMM_CACHE")
    return Path(configured) if configured else Path(platformdirs.user_cache_dir("autogemm"))


def default_database() -> str:
    """AUTOGEMM_DB, a path or a URL, else a SQLite file in the user's data folder."""
    import os

    import platformdirs

    configured = os.environ.get("AUTOGEMM_DB")
    return configured or str(Path(platformdirs.user_data_dir("autogemm")) / "autogemm.db")
