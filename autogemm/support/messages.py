"""Texts on their way to a person: short enough, printable, without passwords."""

import re

from autogemm.support.cells import one_line

# The most of one word, which may be somebody's input, and of a whole message.
_MOST_WORD = 300
_MOST = 2000

# ``scheme://user:password@``: the password may hold any character but these. Ours says PASSWORD
# where it tells how a URL is written.
_IN_URL = re.compile(r"(://[^\s:/@?'\"]*:)(?!PASSWORD@)[^\s/?'\"]*@")
# ``?password=...``, ``sslpassword=...``, ``PGPASSWORD=...``, as in a URL, a keyword or a file.
_BY_NAME = re.compile(
    r"((?:password|passwd|passphrase|passcode|pwd|secret|token)\w*\s*(?:=|%3D)\s*)(?!\*\*\*)"
    r"(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\s&;'\"]+)",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """Return the text with ``***`` in place of every password that it names."""
    return _BY_NAME.sub(r"\1***", _IN_URL.sub(r"\1***@", text))


def message(text: str) -> str:
    """Return the text as one printable line that shows no password and can be read at once.

    The beginning and the end of a long word or text are kept: the one says what is wrong, the other
    what to do.
    """
    folded = one_line(masked(text), most=len(text) * 2 + 100)
    words = (_shortened(word, _MOST_WORD) for word in folded.split(" "))
    return _shortened(" ".join(words), _MOST)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most // 4
    left_out = len(text) - head - tail
    return f"{text[:head]}...({left_out} characters left out)...{text[-tail:]}"
