"""Help with names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

# Parameters have short names: of two letters one may be wrong.
CUTOFF = 0.5


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'BM'?``, or nothing when no known name is close."""
    close = get_close_matches(name, list(known), n=1, cutoff=CUTOFF)
    return f"; did you mean {close[0]!r}?" if close else ""
