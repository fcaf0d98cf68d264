"""The values of a T1 parameter, which the format writes as a text in Python."""

import math
import re
from typing import Any

from autogemm.model.config import Value
from autogemm.space import MAX_VALUE, MAX_VALUES
from autogemm.support.limits import WORD

MAX_TEXT = 2**17

_RANGE = re.compile(
    r"(?:list\s*\()?\s*range\s*\(\s*(-?\d{1,10})\s*(?:,\s*(-?\d{1,10})\s*)?(?:,\s*(-?\d{1,10})\s*)?"
    r"\)\s*\)?"
)
_ITEM = re.compile(
    r"""\s*(?:
      (?P<float>[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+)
    | (?P<int>[-+]?\d{1,20})
    | (?P<word>'[^'\\\n]*'|"[^"\\\n]*")
    | (?P<truth>True|False|true|false)
    )\s*""",
    re.VERBOSE,
)
_CLOSING = {"[": "]", "(": ")"}


def values_of(written: str | list[Any]) -> tuple[Value, ...]:
    """The values: all integers, or all words. Raises ValueError for what cannot be said so.

    Truth values are 1 and 0, floats that are whole are integers, others words; of a value that is
    there twice the first counts.
    """
    found = _listed(written) if isinstance(written, str) else written
    if not 0 < len(found) <= MAX_VALUES:
        raise ValueError(f"a parameter has 1 to {MAX_VALUES} values, this one {len(found)}")
    if all(isinstance(value, int | float) and value == value // 1 for value in found):
        numbers = [int(value) for value in found]
        if max(map(abs, numbers)) > MAX_VALUE:
            raise ValueError("a value must fit 32 bits")
        return tuple(dict.fromkeys(numbers))
    words = [str(value) for value in found]
    for word, value in zip(words, found, strict=True):
        is_plain = isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))
        if not (is_plain or isinstance(value, int)) or not WORD.fullmatch(word):
            raise ValueError(f"a value is an integer or one word, got {word!r:.60}")
    return tuple(dict.fromkeys(words))


def _listed(text: str) -> list[Any]:
    """The values of ``[1, 2]``, ``(1, 2)``, ``1, 2``, ``range(1, 9)``, ``list(range(1, 9))``."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise ValueError(f"its values are a text of more than {MAX_TEXT} characters")
    if (match := _RANGE.fullmatch(text)) is not None:
        return list(_range(*match.groups()))
    if text[:1] in _CLOSING and text[-1:] == _CLOSING[text[:1]]:
        text = text[1:-1]
    values: list[Any] = []
    at = 0
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None:
            raise ValueError(f"its values are not a plain list: {text[at:]!r:.60}")
        values.append(_value(match))
        at = match.end()
        if text[at : at + 1] not in ("", ","):
            raise ValueError(f"its values are not a plain list: {text[at:]!r:.60}")
        at += 1
    return values


def _range(first: str, second: str | None, third: str | None) -> range:
    numbers = [int(number) for number in (first, second, third) if number is not None]
    if len(numbers) == 3 and numbers[2] == 0:
        raise ValueError("a range with steps of 0 never ends")
    found = range(*numbers)
    if len(found) > MAX_VALUES:
        raise ValueError(f"a parameter has at most {MAX_VALUES} values, this range {len(found)}")
    return found


def _value(match: re.Match[str]) -> int | float | str:
    kind = str(match.lastgroup)
    text = match[kind]
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    return text[1:-1] if kind == "word" else int(text in ("True", "true"))
