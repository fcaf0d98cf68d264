"""Takes a cache file of Kernel Tuner apart: JSON whose last brackets may be missing."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

# One entry on a line that is not finished. More than this is no line that is being written.
MAX_UNFINISHED = 64 * 2**10

SAMPLES = "times"

Row = Mapping[str, Any]


class _Scanner:
    """Takes JSON apart from left to right, so that of a long file only what is needed is held."""

    _space = re.compile(r"[ \t\r\n]*")
    _decode = json.JSONDecoder().raw_decode

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def next(self) -> str:
        """The next character that is no space, empty at the end; it is not taken."""
        match = self._space.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def take(self, expected: str) -> None:
        """Raises ValueError if something else comes."""
        found = self.next()
        if found != expected:
            raise ValueError(f"expected {expected!r} at character {self.at}, found {found!r}")
        self.at += 1

    def value(self) -> Any:
        """The next value. Raises ValueError if there is none."""
        self.next()
        value, self.at = self._decode(self.text, self.at)
        return value

    def name(self) -> str:
        """The name of the next member, and its colon."""
        name = self.value()
        if not isinstance(name, str):
            raise ValueError(f"expected a name before character {self.at}")
        self.take(":")
        return name

    def more(self) -> bool:
        """Whether another member follows; takes the comma or the closing bracket."""
        if self.next() == "}":
            self.at += 1
            return False
        self.take(",")
        return True


def parse_open_json(text: str) -> tuple[dict[str, Any], list[Row], bool]:
    """Header, entries without their samples, and whether the file ends as it should.

    Raises ValueError for what is no such JSON, RecursionError for one nested too deep.
    """
    scanner = _Scanner(text)
    header: dict[str, Any] = {}
    rows: list[Row] = []
    scanner.take("{")
    while True:
        name = scanner.name()
        if name != "cache":
            header[name] = scanner.value()
        else:
            scanner.take("{")
            rows.extend(_cached(scanner))
            if not scanner.next():
                return header, rows, False
        if not scanner.more():
            return header, rows, True


def _cached(scanner: _Scanner) -> Iterator[Row]:
    """The entries, up to the closing bracket or the end of a file that was left open."""
    if scanner.next() == "}":
        scanner.at += 1
        return
    while scanner.next():
        start = scanner.at
        try:
            name = scanner.name()
            row = scanner.value()
        except ValueError:
            rest = scanner.text[start : start + MAX_UNFINISHED + 1].rstrip()
            if len(rest) > MAX_UNFINISHED or "\n" in rest:
                raise
            # The last line, which was being written.
            scanner.at = len(scanner.text)
            return
        if not isinstance(row, dict):
            raise ValueError(f"the entry {name!r} is no object")
        # A quarter of a million entries fit: their names are shared, single samples are not needed.
        yield {sys.intern(name): value for name, value in row.items() if name != SAMPLES}
        if not scanner.next() or not scanner.more():
            return
