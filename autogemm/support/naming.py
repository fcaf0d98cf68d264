"""Help with names that do not exist."""

from collections.abc import Iterable

# The least likeness. Parameters have short names: of two letters one may be wrong.
CUTOFF, CUTOFF_OF_SHORT, SHORT = 0.65, 0.5, 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'BM'?``, or nothing when no known name is close, in whatever case."""
    from difflib import get_close_matches

    folded = {one.casefold(): one for one in known}
    cutoff = CUTOFF_OF_SHORT if len(name) <= SHORT else CUTOFF
    close = get_close_matches(name.casefold(), folded, n=1, cutoff=cutoff)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
