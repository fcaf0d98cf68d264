"""Rows of one product that belong to groups, each of which has a B of its own."""

import itertools
import math
import random
import re
from dataclasses import dataclass, replace
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
_MASKED = r"(?: (?P<masked>masked)(?:=(?P<tokens>\d{1,10}))?)?"
_LIST = re.compile(rf"(?P<listed>\d{{1,10}}(?:,\d{{1,10}})+){_MASKED}")
_ZIPF = r"zipf=(?P<exponent>\d(?:\.\d{1,3})?)"
_SPREAD = rf"(?:uniform|{_ZIPF})(?: used=(?P<used>\d{{1,5}}))?(?: seed=(?P<seed>\d{{1,10}}))?"
_DRAWN = re.compile(rf"(?P<count>\d{{1,5}})(?: {_SPREAD})?{_MASKED}")
_FORMS = "groups are a number and how rows are spread (8 uniform, 128 zipf=1.1 seed=3)"


class Spread(StrEnum):
    """The distribution of rows over groups: even, by Zipf's law, or as listed."""

    UNIFORM = "uniform"
    ZIPF = "zipf"
    LISTED = "listed"


@dataclass(frozen=True, slots=True)
class Groups:
    """``count`` groups, to which the rows of A and C belong one group after the other.

    Kernels read from device memory where groups begin, so that one kernel is right for every way to
    spread rows. This one is what is tuned for: the group of rank r has a share of the rows
    proportional to r^-exponent, and ``seed`` says which group has which rank; uniform is an
    exponent of 0. With ``used`` so many groups have rows, those of the first ranks, and the others
    none; 0: all. Of listed groups ``listed`` has the rows of each, 0 included.

    Masked groups have a capacity: all begin as many rows apart, and the first ones of each belong
    to it, as many as a count on the device says. ``tokens`` rows are spread over them (0: as many
    as there are rows), and what exceeds the capacity of a group is left out.

    No group at all (``count`` 0) is a product without groups. Raises UsageError for a number out of
    range.
    """

    count: int = 0
    spread: Spread = Spread.UNIFORM
    exponent: float = 0.0
    seed: int = 0
    listed: tuple[int, ...] = ()
    masked: bool = False
    tokens: int = 0
    used: int = 0

    def __post_init__(self) -> None:
        for name, value, most in (
            ("the number of groups", self.count, MAX_GROUPS),
            ("the exponent of zipf", self.exponent, MAX_EXPONENT),
            ("the seed of groups", self.seed, MAX_SEED),
            ("the rows of masked groups", self.tokens, MAX_ROWS),
            ("the number of groups that have rows", self.used, self.count),
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
        """The canonical text: ``8 uniform``, ``128 zipf=1.1 seed=3``, ``4,0,17,128``, each with
        `` masked`` behind it or `` masked=TOKENS``; empty where there are no groups.
        """
        if self.is_none:
            return ""
        masked = " masked" * self.masked + (f"={self.tokens}" if self.tokens else "")
        if self.spread is Spread.LISTED:
            return ",".join(map(str, self.listed)) + masked
        is_uniform = self.spread is Spread.UNIFORM
        spread = "uniform" if is_uniform else f"zipf={self.exponent:g}"
        used = f" used={self.used}" if self.used else ""
        seed = f" seed={self.seed}" if self.seed else ""
        return f"{self.count} {spread}{used}{seed}{masked}"

    @staticmethod
    def parse(text: str) -> "Groups":
        """The groups of a text: what ``str`` wrote. Raises UsageError for anything else."""
        return _parsed(text)

    def rows(self, total: int) -> tuple[int, ...]:
        """Rows of each group, of ``total`` rows; listed groups have theirs whatever the total."""
        if self.spread is Spread.LISTED:
            return self.listed
        if not self.masked:
            return _spread_rows(self, total)
        capacity = total // self.count
        return tuple(min(rows, capacity) for rows in _spread_rows(self, self.tokens or total))

    def ranges(self, total: int) -> tuple[tuple[int, int], ...]:
        """The first row of each group, and the one behind its last."""
        rows = self.rows(total)
        if self.masked:
            firsts = (group * (total // self.count) for group in range(self.count))
            return tuple((first, first + own) for first, own in zip(firsts, rows, strict=True))
        return tuple(itertools.pairwise(itertools.accumulate(rows, initial=0)))

    def given(self, total: int) -> tuple[int, ...]:
        """The offsets that kernels read: the first row of each group and the one behind the last
        group's, count + 1 numbers; of masked groups the rows of each.
        """
        if self.masked:
            return self.rows(total)
        return tuple(itertools.accumulate(self.rows(total), initial=0))

    def within(self, total: int) -> "Groups":
        """The same groups of no more rows than that: the last listed ones lose theirs, of masked
        ones what exceeds the capacity.
        """
        if self.spread is not Spread.LISTED:
            return self
        if self.masked:
            capacity = total // self.count
            return replace(self, listed=tuple(min(rows, capacity) for rows in self.listed))
        if sum(self.listed) <= total:
            return self
        ends = [min(end, total) for end in itertools.accumulate(self.listed, initial=0)]
        kept = tuple(end - first for first, end in itertools.pairwise(ends))
        return Groups(self.count, Spread.LISTED, listed=kept)

    def used_rows(self, total: int) -> int:
        """The number of rows in groups: the first ones, or the first ones of each."""
        return sum(self.rows(total))

    def num_used(self, total: int) -> int:
        """Groups that have rows."""
        return sum(1 for rows in self.rows(total) if rows)


@lru_cache(maxsize=256)
def _spread_rows(groups: Groups, total: int) -> tuple[int, ...]:
    """The whole numbers nearest to the shares: the largest remainders are rounded up."""
    ranks = list(range(1, groups.count + 1))
    if groups.spread is Spread.ZIPF or groups.used:
        # random() alone is promised to give the same numbers in every version of Python.
        drawn = random.Random(groups.seed)
        keys = [drawn.random() for _ in ranks]
        ranks.sort(key=lambda rank: keys[rank - 1])
    used = groups.used or groups.count
    weights = [rank**-groups.exponent if rank <= used else 0.0 for rank in ranks]
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
    if found := _LIST.fullmatch(words):
        listed = tuple(map(int, found["listed"].split(",")))
        if found["tokens"]:
            rule = f"listed groups say how many rows they have: leave out ={found['tokens']}"
            raise UsageError(rule)
        return Groups(len(listed), Spread.LISTED, listed=listed, masked=bool(found["masked"]))
    drawn = _DRAWN.fullmatch(words)
    if drawn is None or int(drawn["count"]) == 0:
        raise UsageError(
            f"{_FORMS}, or the rows of each of two or more (4,0,17,128), got {text!r:.80}"
        )
    exponent = float(drawn["exponent"] or 0)
    used, seed, tokens = (int(drawn[name] or 0) for name in ("used", "seed", "tokens"))
    if drawn["seed"] and not (used or drawn["exponent"]):
        raise UsageError(f"{_FORMS}; rows that are spread evenly over all groups have no seed")
    draws = exponent > 0 or used > 0
    return Groups(
        int(drawn["count"]),
        Spread.ZIPF if exponent else Spread.UNIFORM,
        exponent,
        seed if draws else 0,
        masked=bool(drawn["masked"]),
        tokens=tokens,
        used=used,
    )


NONE = Groups()
