"""All that the package caches on disk, in one folder with a limit of its size.

Everything in it can be made again. The least recently used files are deleted first.
"""

import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autogemm.support.amounts import parse_bytes
from autogemm.support.errors import AutogemmError, UsageError
from autogemm.support.files import write_atomically

# Folder to what is kept in it.
KINDS = {
    "cubins": "compiled kernels",
    "emulator": "kernels built for the CPU, with their sources",
    "failed": "sources that did not compile",
    "cutlass": "CUTLASS kernels built for benchmarks",
}
LIMIT_VARIABLE = "AUTOGEMM_CACHE_LIMIT"
NO_LIMIT = "none"
DEFAULT_LIMIT = "2GB"
_LIMIT_FILE = "limit"
# Trimming goes this far below the limit, so that it is rarely needed.
_TRIMMED_SHARE = 0.9
# Another process may be about to use what was used within so many seconds.
_IN_USE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Usage:
    """The number of files of a kind, and their bytes."""

    kind: str
    num_files: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    num_bytes: int
    used_at: float


def usage(folder: Path) -> list[Usage]:
    """Return what each kind takes; nothing where the folder is not there."""
    found = []
    for kind in KINDS:
        entries = list(_entries(folder, [kind]))
        found.append(Usage(kind, len(entries), sum(one.num_bytes for one in entries)))
    return found


def clear(folder: Path, kinds: Collection[str] = ()) -> Usage:
    """Delete the files of these kinds, of all if none is named; return how much that was.

    Raises UsageError for an unknown kind.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"there is no kind {unknown[0]!r} of files; known: {', '.join(KINDS)}")
    return _delete(_entries(folder, kinds or KINDS))


def limit_bytes(folder: Path) -> int | None:
    """Return the limit: of AUTOGEMM_CACHE_LIMIT, else as `set_limit` kept it, else 2 GB; None is
    none. Raises UsageError for a text that is no size.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        try:
            text = (folder / _LIMIT_FILE).read_text().strip()
        except (OSError, UnicodeDecodeError):
            text = DEFAULT_LIMIT
    try:
        return None if text == NO_LIMIT else parse_bytes(text)
    except UsageError as error:
        raise UsageError(f"the limit of the cache: {error}; or {NO_LIMIT}") from error


def set_limit(folder: Path, text: str) -> None:
    """Keep a limit for all later calls. Raises UsageError for no size, AutogemmError if it cannot
    be written.
    """
    if text != NO_LIMIT:
        parse_bytes(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / _LIMIT_FILE, f"{text}\n".encode())
    except OSError as error:
        raise AutogemmError(f"cannot write {folder / _LIMIT_FILE}: {error.strerror}") from error


def trim(folder: Path) -> Usage:
    """Delete what was not used for longest until the folder is below its limit; return how much.

    Files that were used within the last hour are kept. Raises UsageError for a limit that is no
    size.
    """
    limit = limit_bytes(folder)
    entries = sorted(_entries(folder, KINDS), key=lambda one: one.used_at)
    total = sum(one.num_bytes for one in entries)
    if limit is None or total <= limit:
        return Usage("", 0, 0)
    oldest = time.time() - _IN_USE_S

    def superfluous() -> Iterator[_Entry]:
        left = total
        for one in entries:
            if left <= limit * _TRIMMED_SHARE or one.used_at > oldest:
                return
            left -= one.num_bytes
            yield one

    return _delete(superfluous())


def _delete(entries: Iterator[_Entry]) -> Usage:
    num_files = num_bytes = 0
    for one in list(entries):
        # Another process may have deleted it.
        with suppress(OSError):
            one.path.unlink()
            num_files, num_bytes = num_files + 1, num_bytes + one.num_bytes
    return Usage("", num_files, num_bytes)


def _entries(folder: Path, kinds: Collection[str]) -> Iterator[_Entry]:
    # Other processes make and delete files and folders meanwhile, which os.walk passes over.
    for kind in kinds:
        for parent, _, names in os.walk(folder / kind):
            for path in sorted(Path(parent, name) for name in names):
                with suppress(OSError):
                    facts = path.lstat()
                    if stat.S_ISREG(facts.st_mode):
                        # Many systems note a use once a day only.
                        yield _Entry(path, facts.st_size, max(facts.st_atime, facts.st_mtime))
