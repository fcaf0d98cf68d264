"""Good files made bad: mutations of bytes, tokens and lines, each decided by a seed."""

import gzip
import random
import re
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

# Where one token of JSON or CSV may stand for another.
_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null|[\[\]{}:,]'
)

_STRANGE = [
    *(b"", b"null", b"true", b"[]", b"{}", b'""', b"0", b"-1", b"1.5", b"1e999", b"-1e999", b"NaN"),
    *(b"Infinity", b"9" * 30, b"9" * 5000, b"1e308", b"4.9e-324", b"-0", b"00", b"0x10", b"1_000"),
    *(b'"\\ud800"', b'"\\u0000"', b'"\\u202e"', b'"a\\nb"', b'"\\u001b[31m"', b'"x"', b"'x'"),
    *(b"2147483648", b"-2147483649", b"9223372036854775808", b"1e19", b"18446744073709551616"),
    *(b'"' + b"x" * 300 + b'"', b"[" * 50, b"[" * 5000, b'{"a":' * 60, b"\xff\xfe", b"\x00"),
    *(b'"0001-01-01T00:00:00+23:59"', b'"9999-12-31T23:59:59-23:59"', b'"2026-02-30T00:00:00Z"'),
    *(b'"ok"', b'"crashed"', b'"measured"', b'"__class__"', b'"../../etc/passwd"', b"=1+1"),
    *(b"\"__import__('os')\"", b'"9**9**9**9"', b'"(" * 999', b'"' + b"(" * 500 + b'"'),
]


def _somewhere(draw: random.Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.choice((1, 1, 2, 8, 64, 512)))


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _remove(draw: random.Random, data: bytes) -> bytes:
    start, end = _somewhere(draw, data)
    return data[:start] + data[end:]


def _repeat(draw: random.Random, data: bytes) -> bytes:
    start, end = _somewhere(draw, data)
    return data[:end] + data[start:end] * draw.choice((1, 2, 50)) + data[end:]


def _flip(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 3, 20))):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_STRANGE) + data[at:]


def _replace_token(draw: random.Random, data: bytes) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data
    token = draw.choice(tokens)
    # Also what stands elsewhere in the same file: right words in wrong places.
    instead = draw.choice((draw.choice(_STRANGE), draw.choice(tokens)[0]))
    return data[: token.start()] + instead + data[token.end() :]


def _replace_tokens(draw: random.Random, data: bytes) -> bytes:
    for _ in range(draw.randrange(2, 6)):
        data = _replace_token(draw, data)
    return data


def _change_number(draw: random.Random, data: bytes) -> bytes:
    numbers = list(re.finditer(rb"\d+", data))
    if not numbers:
        return data
    number = draw.choice(numbers)
    value = int(number[0][:18])
    instead = draw.choice((value + 1, -value, value * 10**9, value // 2, 0, 2**31, 2**63))
    return data[: number.start()] + str(instead).encode() + data[number.end() :]


def _lines(draw: random.Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
    how = draw.randrange(4)
    if how == 0:
        del lines[first]
    elif how == 1:
        lines.insert(first, lines[second])
    elif how == 2:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first] = lines[first].rstrip(b"\n") + lines[second]
    return b"".join(lines)


def _encode(draw: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    how = draw.choice(("utf-16", "utf-8-sig", "latin-1", "utf-32"))
    return text.encode(how, "replace")


def _pack(draw: random.Random, data: bytes) -> bytes:
    """gzip'd, and then broken as bytes."""
    return draw.choice((_cut, _flip, _remove))(draw, gzip.compress(data, 1, mtime=0))


MUTATIONS: tuple[Mutation, ...] = (
    *(_replace_token, _replace_token, _replace_tokens, _change_number, _change_number),
    *(_cut, _remove, _repeat, _flip, _insert, _lines, _encode, _pack),
)


def broken(good: bytes, seed: int) -> bytes:
    """The file after one mutation, or a few."""
    draw = random.Random(seed)
    data = good
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = draw.choice(MUTATIONS)(draw, data)
    return data
