"""The command that installs an extra: no index has a package of this name to install it from."""

import re
import shlex
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

# ``matplotlib>=3.8; extra == "plot"``
_OF_EXTRA = re.compile(r"(?P<package>[^;]+?)\s*;\s*extra == ['\"](?P<extra>[\w-]+)['\"]")


def how_to_install(extra: str) -> str:
    """Return ``pip install ...`` for an extra: of the checkout that runs, else its packages."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        place = "." if checkout == Path.cwd() else str(checkout)
        # Quoted in any case: brackets mean something to most shells.
        return f"pip install -e '{place}[{extra}]'"
    return " ".join(["pip install", *map(shlex.quote, _packages_of(extra))])


def _packages_of(extra: str) -> list[str]:
    try:
        lines = requires("autogemm") or []
    except PackageNotFoundError:
        return []
    found = (_OF_EXTRA.fullmatch(line) for line in lines)
    return [one["package"] for one in found if one and one["extra"] == extra]
