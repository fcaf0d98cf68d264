"""Rows of one product that belong to groups, each of which has a B of its own."""

import itertools
import math
import random
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from autogemm.support.errors import UsageError

# A row of tiles is counted for each group, in 32 bits.
MAX_GROUPS = 65_535
MAX_ROWS = 2**31 - 1
MAX_SEED = 2**31 - 1
# The text of groups is part of a problem wherever one is stored.
MAX_TEXT = 200
# Larger exponents leave nothing to all groups but one.
MAX_EXPONENT = 8.0
_LIST = re.compile(r"\d{1,10}(?:,\d{1,10})+")
_DRAWN = re.compile(r"(\d{1,5})(?: (uniform|zipf=(\d(?:\.\d{1,3})?)(?: seed=(\d{1,10}))?))?")
_FORMS = "groups are a number and how rows are spread (8 uniform, 128 zipf=1.1 seed=3)"


class Spread(StrEnum):
    """How rows are spread over groups: as evenly as may be, by Zipf's law, or as listed."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    LISTED = "listed"


@dataclass(frozen=True, slots=True)
class Groups:
    """``count`` groups, to which the rows of A and C belong one group after the other.

    Kernels read from device memory where groups begin, so that one kernel is right for every way to
    spread rows. This one is what is tuned for: the group of rank r has a share of the rows
    proportional to r^-exponent, and ``seed`` says which group has which rank; uniform is an
    exponent of 0. Of listed groups ``listed`` has the rows of each, 0 included.

    No group at all (``count`` 0) is a product without groups. Raises UsageError for a number out of
    range.
    """

    count: int = 0
    spread: Spread = Spread.UNIFORM
    exponent: float = 0.0
    seed: int = 0
    listed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, most in (
            ("the number of groups", self.count, MAX_GROUPS),
            ("the exponent of zipf", self.exponent, MAX_EXPONENT),
            ("the seed of groups", self.seed, MAX_SEED),
        ):
            if not 0 <= value <= most:
                raise UsageError(f"{name} must be from 0 to {most:g}, got {value:g}")
        if self.spread is Spread.LISTED:
            if len(str(self)) > MAX_TEXT:
                raise UsageError(
                    f"a list of groups has at most {MAX_TEXT} characters, got {len(str(self))}: "
                    "take uniform or zipf"
                )
            if not 1 <= sum(self.listed) <= MAX_ROWS:
                raise UsageError(f"listed groups have 1 to {MAX_ROWS} rows in all, got {self}")

    @property
    def is_none(self) -> bool:
        """Whether rows belong to no group, which is the plain GEMM."""
        return self.count == 0

    def __str__(self) -> str:
        """The canonical text: ``8 uniform``, ``128 zipf=1.1 seed=3``, ``4,0,17,128``; empty where
        there are no groups.
        """
        if self.is_none:
            return ""
        if self.spread is Spread.LISTED:
            return ",".join(map(str, self.listed))
        if self.spread is Spread.UNIFORM:
            return f"{self.count} uniform"
        return f"{self.count} zipf={self.exponent:g}" + (f" seed={self.seed}" if self.seed else "")

    @staticmethod
    def parse(text: str) -> "Groups":
        """The groups of a text: what ``str`` wrote. Raises UsageError for anything else."""
        return _parsed(text)

    def rows(self, total: int) -> tuple[int, ...]:
        """Rows of each group, of ``total`` rows; listed groups have theirs whatever the total."""
        return self.listed if self.spread is Spread.LISTED else _spread_rows(self, total)

    def offsets(self, total: int) -> tuple[int, ...]:
        """The first row of each group, then the one behind the last group's: count + 1 numbers."""
        return tuple(itertools.accumulate(self.rows(total), initial=0))

    def within(self, total: int) -> "Groups":
        """The same groups of no more rows than that: the last listed ones lose theirs."""
        if self.spread is not Spread.LISTED or sum(self.listed) <= total:
            return self
        ends = [min(end, total) for end in itertools.accumulate(self.listed, initial=0)]
        kept = tuple(end - first for first, end in itertools.pairwise(ends))
        return Groups(self.count, Spread.LISTED, listed=kept)

    def used_rows(self, total: int) -> int:
        """Rows that belong to a group: the first ones."""
        return sum(self.listed) if self.spread is Spread.LISTED else total

    def num_used(self, total: int) -> int:
        """Groups that have rows."""
        return sum(1 for rows in self.rows(total) if rows)


@lru_cache(maxsize=256)
def _spread_rows(groups: Groups, total: int) -> tuple[int, ...]:
    """The whole numbers nearest to the shares: the largest remainders are rounded up."""
    ranks = list(range(1, groups.count + 1))
    if groups.spread is Spread.ZIPF:
        # random() alone is promised to give the same numbers in every version of Python.
        drawn = random.Random(groups.seed)
        keys = [drawn.random() for _ in ranks]
        ranks.sort(key=lambda rank: keys[rank - 1])
    weights = [rank**-groups.exponent for rank in ranks]
    whole = math.fsum(weights)
    shares = [total * weight / whole for weight in weights]
    rows = [math.floor(share) for share in shares]
    # Where remainders are equal, the first groups get one: 10 rows over 4 groups are 3, 3, 2, 2.
    by_remainder = sorted(range(groups.count), key=lambda group: rows[group] - shares[group])
    for group in by_remainder[: total - sum(rows)]:
        rows[group] += 1
    return tuple(rows)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Groups:
    words = " ".join(text.split())
    if not words:
        return NONE
    if _LIST.fullmatch(words):
        listed = tuple(map(int, words.split(",")))
        return Groups(len(listed), Spread.LISTED, listed=listed)
    drawn = _DRAWN.fullmatch(words)
    if drawn is None or int(drawn[1]) == 0:
        raise UsageError(
            f"{_FORMS}, or the rows of each of two or more (4,0,17,128), got {text!r:.80}"
        )
    if drawn[3] is None or float(drawn[3]) == 0.0:
        return Groups(int(drawn[1]))
    return Groups(int(drawn[1]), Spread.ZIPF, float(drawn[3]), int(drawn[4] or 0))


NONE = Groups()
