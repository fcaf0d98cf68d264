"""The formats of others that list the configs of one kernel with their times, by name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autogemm.formats.entries import ListedRecording
from autogemm.formats.kernel_tuner import (
    is_kernel_tuner_cache,
    kernel_tuner_pieces,
    read_kernel_tuner_cache,
)
from autogemm.formats.t4 import is_t4, read_t4, t4_pieces
from autogemm.support.errors import RecordingError


@dataclass(frozen=True, slots=True)
class ListedFormat:
    """Whether a file looks like one, how it is read and written; ``mark`` is how ours begin."""

    matches: Callable[[Path], bool]
    read: Callable[[Path], ListedRecording]
    pieces: Callable[[ListedRecording], Iterator[str]]
    mark: bytes


# Names are those of `--format`. The first that matches a file is its format.
LISTED_FORMATS = {
    "t4": ListedFormat(is_t4, read_t4, t4_pieces, b'{"schema_version"'),
    "kernel-tuner": ListedFormat(
        is_kernel_tuner_cache, read_kernel_tuner_cache, kernel_tuner_pieces, b'{"device_name"'
    ),
}


def listed_format(path: Path) -> str | None:
    """The name of the format that the file looks like, from its beginning; None for any other."""
    return next((name for name, one in LISTED_FORMATS.items() if one.matches(path)), None)


def read_listed(path: Path) -> ListedRecording:
    """Read a file of one of these formats. Raises RecordingError."""
    found = listed_format(path)
    if found is None:
        raise RecordingError(f"{path} has none of the formats {', '.join(LISTED_FORMATS)}")
    return LISTED_FORMATS[found].read(path)
