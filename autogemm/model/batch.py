"""The products of one launch: how many, and where in memory each one's matrices begin."""

import re
from dataclasses import dataclass
from functools import lru_cache

from autogemm.support.errors import UsageError

# Counts and rows travel to kernels as 32-bit int.
MAX_COUNT = 2**31 - 1
MATRICES = ("a", "b", "c")
_TEXT = re.compile(r"\d{1,10}(?: rows_[abc]=\d{1,10})*")


@dataclass(frozen=True, slots=True)
class Batch:
    """``count`` products of the same sizes, of which each has matrices of its own.

    ``rows_a`` says how many rows of A, as stored, lie between where one product's begins and the
    next one's: None where they follow each other without a gap, 0 where all products share one A.
    ``rows_b`` and ``rows_c`` say it of B and C; each product has a C of its own. The distance in
    elements is ``rows_a * lda``, so that every product's rows are aligned as those of the first.

    Raises UsageError for a count below 1.
    """

    count: int = 1
    rows_a: int | None = None
    rows_b: int | None = None
    rows_c: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_COUNT:
            raise UsageError(f"a batch has 1 to {MAX_COUNT} products, got {self.count}")

    @property
    def is_one(self) -> bool:
        """Whether there is a single product, which is the plain GEMM."""
        return self.count == 1

    @property
    def rows(self) -> tuple[int | None, int | None, int | None]:
        """``rows_a``, ``rows_b`` and ``rows_c``."""
        return (self.rows_a, self.rows_b, self.rows_c)

    def __str__(self) -> str:
        """The canonical text: ``64``, ``64 rows_a=0``; empty for a single product."""
        if self.is_one:
            return ""
        named = zip(MATRICES, self.rows, strict=True)
        return " ".join(
            [str(self.count), *(f"rows_{name}={rows}" for name, rows in named if rows is not None)]
        )

    @staticmethod
    def parse(text: str) -> "Batch":
        """The batch of a text: what ``str`` wrote. Raises UsageError for anything else."""
        return _parsed(text)

    def completed(self, least: tuple[int, int, int]) -> "Batch":
        """The canonical batch of matrices of so many rows: what is not given follows without a gap,
        and is left out of the text.

        Raises UsageError where matrices would overlap, and for a C that products share.
        """
        if self.is_one:
            return ONE
        found = []
        for name, rows, own in zip(MATRICES, self.rows, least, strict=True):
            if rows is not None and not (own <= rows <= MAX_COUNT or (rows == 0 and name != "c")):
                shared = "" if name == "c" else ", or 0 where all products share it"
                raise UsageError(
                    f"rows_{name} must be at least the {own} rows of {name.upper()}{shared}, "
                    f"got {rows}"
                )
            found.append(None if rows == own else rows)
        return Batch(self.count, *found)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Batch:
    words = " ".join(text.split())
    if not words:
        return ONE
    names = re.findall(r"rows_[abc]", words)
    if _TEXT.fullmatch(words) is None or len(set(names)) < len(names):
        raise UsageError(
            f"a batch is a number of products (64), and rows from one to the next where there is "
            f"a gap or 0 where they share a matrix (64 rows_a=0 rows_c=130), got {text!r:.80}"
        )
    count, *rows = words.split(" ")
    return Batch(int(count), **{name: int(value) for name, value in (r.split("=") for r in rows)})


ONE = Batch()
