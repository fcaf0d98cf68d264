"""Output files of commands: written whole or not at all."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autogemm.support.errors import ExportError, UsageError
from autogemm.support.files import beginning, write_atomically, write_chunks_atomically


def write_output(path: str, content: bytes, *, force: bool, ours: str | None = None) -> None:
    """Write to a file, whole or not at all; ``-`` is standard output.

    An existing file is replaced if it begins with ``ours`` or ``force`` is given. Raises
    UsageError for a place where no file can or should be written, ExportError when writing fails.
    """
    if path == "-":
        _print([content])
        return
    with _replaceable(path, None if ours is None else ours.encode(), force) as target:
        write_atomically(target, content)


def require_output(path: str, *, force: bool, ours: str | None = None) -> None:
    """Raise what `write_output` would raise for this place, before the work is done."""
    if path != "-":
        with _replaceable(path, None if ours is None else ours.encode(), force):
            pass


def write_output_pieces(
    path: str, pieces: Iterable[bytes], *, force: bool, ours: bytes | None = None
) -> None:
    """Write as `write_output` does, in parts; compressed for a name that ends in .gz."""
    if path == "-":
        _print(pieces)
        return
    with _replaceable(path, ours, force) as target:
        write_chunks_atomically(target, pieces)


def _print(pieces: Iterable[bytes]) -> None:
    sys.stdout.buffer.writelines(pieces)
    sys.stdout.buffer.flush()


@contextmanager
def _replaceable(path: str, ours: bytes | None, force: bool) -> Iterator[Path]:
    """Yield the file to write, and turn an OSError meanwhile into one line."""
    # The file that a link points to is replaced, not the link.
    target = Path(path).resolve()
    _require_place(path, target)
    try:
        if target.exists() and not force and not _begins_with(target, ours):
            why = "" if ours is None else " and is not an earlier output of this command"
            raise UsageError(f"{path} exists{why}: give another name, or --force to overwrite it")
        yield target
    except OSError as error:
        raise ExportError(f"cannot write {path}: {error.strerror}") from error


def _require_place(path: str, target: Path) -> None:
    if target.is_dir():
        raise UsageError(f"{path} is a folder: give the name of a file in it")
    if target.exists() and not target.is_file():
        raise UsageError(f"{path} is not a regular file: write to - and redirect")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}: make it first")


def _begins_with(target: Path, ours: bytes | None) -> bool:
    return ours is not None and beginning(target, len(ours)) == ours
