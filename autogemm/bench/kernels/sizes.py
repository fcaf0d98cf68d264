"""Sizes of a bench: single ones, rectangles, ranges, files."""

import re
from collections.abc import Iterator
from pathlib import Path

from autogemm.catalogue.presets import Size
from autogemm.model.problem import MAX_EXTENT, Problem
from autogemm.support.errors import UsageError
from autogemm.support.files import read_bounded

# A misspelt range must not become a benchmark of a week.
MAX_SIZES = 1000
MAX_FILE_BYTES = 100_000

_RANGE = re.compile(r"(\d{1,10}):(\d{1,10})(?::([*+])(\d{1,10}))?")


def parse_sizes(text: str) -> tuple[Size, ...]:
    """``1024``, ``MxNxK``, ``128:8192:*2``, ``128:1024:+128``, ``@FILE``; several by commas.

    A range doubles unless told otherwise. A file has one or more of these a line, # begins a
    comment. Each size comes once, where it came first. Raises UsageError.
    """
    found = tuple(dict.fromkeys(_sizes(text)))
    if not found:
        raise UsageError(f"there is no size in {text!r}: give 1024, MxNxK, 128:8192:*2 or @FILE")
    if len(found) > MAX_SIZES:
        raise UsageError(f"{text!r} are {len(found)} sizes, at most {MAX_SIZES} are allowed")
    return found


def _sizes(text: str) -> Iterator[Size]:
    for part in (part.strip() for part in text.split(",")):
        if part.startswith("@"):
            for line in _lines(Path(part[1:])):
                yield from _sizes(line)
        elif match := _RANGE.fullmatch(part):
            yield from ((side, side, side) for side in _range(part, match))
        elif part:
            problem = Problem.of_size(part)
            yield problem.m, problem.n, problem.k


def _range(text: str, match: re.Match[str]) -> Iterator[int]:
    first, last, step = int(match[1]), int(match[2]), int(match[4] or 2)
    times = match[3] != "+"
    if first < 1 or last < first or last > MAX_EXTENT or step < (2 if times else 1):
        raise UsageError(
            f"a range is FIRST:LAST, :*FACTOR (2 or more) or :+STEP after it (128:8192:*2), got "
            f"{text!r}"
        )
    if not times and (last - first) // step >= MAX_SIZES:
        raise UsageError(f"{text!r} has more than {MAX_SIZES} sizes")
    side = first
    while side <= last:
        yield side
        side = side * step if times else side + step


def _lines(path: Path) -> Iterator[str]:
    try:
        content = read_bounded(path, MAX_FILE_BYTES).decode()
    except OSError as error:
        raise UsageError(f"cannot read the sizes in {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file with one size per line") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a list of sizes: {error}") from error
    for number, line in enumerate(content.splitlines(), start=1):
        kept = line.partition("#")[0].strip()
        if kept.startswith("@"):
            raise UsageError(f"{path}, line {number}: a file of sizes cannot refer to another file")
        if kept:
            yield kept
