"""Takes a large JSON file apart piece by piece: what stands beside the results, and each result.

The files of others that hold results are one JSON object with one large member: ``cache`` of Kernel
Tuner, whose last brackets may be missing, and ``results`` of T4. Only what is kept of an entry is
held.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

# One value: an entry with its samples has some kilobytes.
MAX_VALUE_CHARS = 4 * 2**20
MAX_NESTING = 32
# The largest spaces that were measured whole have 250,000 configs. A megabyte can unpack to twenty
# million empty ones, which are five gigabytes in memory.
MAX_ENTRIES = 500_000
# All that stands beside the entries.
MAX_HEADER_CHARS = 16 * 2**20
# One entry on a line that is not finished. More than this is no line that is being written.
MAX_UNFINISHED = 64 * 2**10

T = TypeVar("T")
Kept = TypeVar("Kept")
Keep = Callable[[dict[str, Any]], Kept]

_SPACE = re.compile(r"[ \t\r\n]*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(r"[\[\]{}]")
_decode = json.JSONDecoder().raw_decode


class _Scanner:
    """Takes JSON apart from left to right; ``text`` is what is there and not yet taken."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = iter(pieces)
        self.text = ""
        self.at = 0
        self.num_taken = 0
        """Characters of the values that were taken."""

    def _more_text(self) -> bool:
        """Whether there was another piece; what was taken is dropped."""
        for piece in self._pieces:
            self.text = self.text[self.at :] + piece
            self.at = 0
            return True
        return False

    def next(self) -> str:
        """The next character that is no space, empty at the end; it is not taken."""
        while True:
            self.at = _after_space(self.text, self.at)
            if self.at < len(self.text) or not self._more_text():
                return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> None:
        """Raises ValueError if something else comes."""
        found = self.next()
        if found != expected:
            raise ValueError(f"expected {expected!r}, found {found!r}")
        self.at += 1

    def value(self) -> Any:
        """The next value. Raises ValueError if there is none, or one too long or too deep."""
        self.next()
        return self._taken(_decode)

    def member(self) -> tuple[str, Any]:
        """The next name and value; neither is taken when that fails."""
        self.next()
        return self._taken(_member)

    def name(self) -> str:
        """The next name, and its colon."""
        name = self.value()
        if not isinstance(name, str):
            raise ValueError(f"expected a name, found {name!r:.60}")
        self.take(":")
        return name

    def _taken(self, parse: Callable[[str, int], tuple[T, int]]) -> T:
        """The value that ``parse`` makes of the text, which may have to grow first."""
        while True:
            is_long = len(self.text) - self.at > MAX_VALUE_CHARS
            try:
                value, end = parse(self.text, self.at)
            except ValueError:
                if is_long or not self._more_text():
                    raise
                continue
            # A number that ends where the text ends may go on.
            if end == len(self.text) and self._more_text():
                continue
            if end - self.at > MAX_VALUE_CHARS:
                raise ValueError(f"a value of more than {MAX_VALUE_CHARS} characters")
            check_nesting(self.text, self.at, end)
            self.num_taken += end - self.at
            self.at = end
            return value

    def goes_on(self, closing: str) -> bool:
        """Whether another member follows; takes the comma or the closing bracket."""
        if self.next() == closing:
            self.at += 1
            return False
        self.take(",")
        return True


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _member(text: str, at: int) -> tuple[tuple[str, Any], int]:
    name, at = _decode(text, at)
    if not isinstance(name, str):
        raise ValueError(f"expected a name, found {name!r:.60}")
    at = _after_space(text, at)
    if text[at : at + 1] != ":":
        raise ValueError(f"expected ':' after {name!r:.60}")
    value, at = _decode(text, _after_space(text, at + 1))
    return (name, value), at


def check_nesting(text: str, start: int, end: int) -> None:
    """Raises ValueError for JSON that is nested too deep."""
    opened = text.count("{", start, end) + text.count("[", start, end)
    if opened <= MAX_NESTING:
        return
    depth = 0
    for bracket in _BRACKET.findall(_TEXT.sub("", text[start:end])):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise ValueError(f"nested deeper than {MAX_NESTING}")


def parse_open_json(
    pieces: Iterable[str], keep: Keep[Kept]
) -> tuple[dict[str, Any], list[Kept], bool]:
    """The header of a cache file, what is kept of each entry, and whether it ends as it should.

    Raises ValueError for what is no such JSON, RecursionError for one nested far too deep.
    """
    return _parsed(_Scanner(pieces), "cache", _cached, keep)


def parse_results_json(
    pieces: Iterable[str], keep: Keep[Kept]
) -> tuple[dict[str, Any], list[Kept]]:
    """The header of a T4 file, all but the results, and what is kept of each result.

    Raises ValueError for what is no such JSON, RecursionError for one nested far too deep.
    """
    scanner = _Scanner(pieces)
    header, results, is_closed = _parsed(scanner, "results", _listed, keep)
    if not is_closed:
        scanner.take("}")
    if scanner.next():
        raise ValueError("something follows the closing bracket")
    return header, results


def _parsed(
    scanner: _Scanner,
    large: str,
    rows: Callable[[_Scanner], Iterator[dict[str, Any]]],
    keep: Keep[Kept],
) -> tuple[dict[str, Any], list[Kept], bool]:
    """The other members, what is kept of the large one, and whether a bracket follows that."""
    header: dict[str, Any] = {}
    kept: list[Kept] = []
    num_chars = 0
    scanner.take("{")
    while True:
        name = scanner.name()
        if name == large:
            kept.extend(keep(row) for row in _bounded(rows(scanner)))
            if not scanner.next():
                return header, kept, False
        else:
            before = scanner.num_taken
            header[name] = scanner.value()
            num_chars += scanner.num_taken - before
            if num_chars > MAX_HEADER_CHARS:
                raise ValueError(f"beside {large!r} more than {MAX_HEADER_CHARS} characters")
        if not scanner.goes_on("}"):
            return header, kept, True


def _bounded(rows: Iterable[T]) -> Iterator[T]:
    for number, row in enumerate(rows):
        if number == MAX_ENTRIES:
            raise ValueError(f"more than {MAX_ENTRIES} entries")
        yield row


def _listed(scanner: _Scanner) -> Iterator[dict[str, Any]]:
    scanner.take("[")
    if scanner.next() == "]":
        scanner.at += 1
        return
    while True:
        yield _object(scanner.value(), "a result")
        if not scanner.goes_on("]"):
            return


def _cached(scanner: _Scanner) -> Iterator[dict[str, Any]]:
    """The entries, up to the closing bracket or the end of a file that was left open."""
    scanner.take("{")
    if scanner.next() == "}":
        scanner.at += 1
        return
    while scanner.next():
        try:
            name, row = scanner.member()
        except ValueError:
            rest = scanner.text[scanner.at : scanner.at + MAX_UNFINISHED + 1].rstrip()
            if len(rest) > MAX_UNFINISHED or "\n" in rest:
                raise
            # The last line, which was being written.
            scanner.at = len(scanner.text)
            return
        yield _object(row, f"the entry {name!r:.60}")
        if not scanner.next() or not scanner.goes_on("}"):
            return


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    # A quarter of a million fit: their names are shared.
    return {sys.intern(name): part for name, part in value.items()}
