"""The order in which the cases of many configs run: what reaches new code comes first."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from autogemm.codegen import render
from autogemm.space import Family
from autogemm.verify.cases import Case

# The first cases of a config, whose texts stand for all of its own, and those that come before
# any other case of any config.
TEXTS = 3
FIRST = 10


def coverage_order(family: Family, sets: Sequence[Sequence[Case]]) -> Iterator[tuple[int, Case]]:
    """Yield each case and the index of its set, those first that reach new code.

    Sets come first whose emitted texts have the most lines that no earlier text has, until there
    are no new lines. The first cases of these are run in turns, then those of the other sets, then
    all others.
    """
    leading = _covering([_lines(family, cases[:TEXTS]) for cases in sets])
    others = [index for index in range(len(sets)) if index not in leading]
    first = [[(index, case) for case in cases[:FIRST]] for index, cases in enumerate(sets)]
    rest = [[(index, case) for case in cases[FIRST:]] for index, cases in enumerate(sets)]
    for group in (
        [first[index] for index in leading],
        [first[index] for index in others],
        [rest[index] for index in chain(leading, others)],
    ):
        for turn in zip_longest(*group):
            yield from (each for each in turn if each is not None)


def covering_cases(family: Family, cases: Sequence[Case]) -> list[Case]:
    """Return those of the cases whose texts have all lines, the longest text first."""
    texts = [_lines(family, [case]) for case in cases]
    return [cases[index] for index in _covering(texts)]


def _covering(lines: Sequence[set[str]]) -> list[int]:
    """Return the sets that have all lines, each time the one with the most new ones."""
    chosen: list[int] = []
    seen: set[str] = set()
    while len(chosen) < len(lines):
        best = max(range(len(lines)), key=lambda index: len(lines[index] - seen))
        if not lines[best] - seen:
            break
        chosen.append(best)
        seen |= lines[best]
    return chosen


def _lines(family: Family, cases: Sequence[Case]) -> set[str]:
    """Return the lines of the cases' texts, without comments; numbers are all the same."""
    texts = (render(family, case.config, case.problem).text for case in cases)
    stripped = (line.strip() for text in texts for line in text.splitlines())
    return {re.sub(r"\d+", "0", line) for line in stripped if not line.startswith("//")}
