"""The kinds of functions in a library: for one product, for a batch, for groups of rows."""

from dataclasses import replace
from enum import Enum

from autogemm.model.batch import Batch
from autogemm.model.groups import Groups
from autogemm.model.problem import Problem
from autogemm.model.signature import GROUPS, Signature, gemm_signature

# The problem for which kernels are written out has so many: their texts depend on no number.
_MANY = 8


class Kind(Enum):
    """What one call computes.

    ``word`` ends the names of its functions, ``plural`` is for people, ``counted`` the argument
    that a rule reads beside M, N and K; all are empty for one product.
    """

    ONE = ("", "", "")
    BATCH = ("batched", "batches", "batch")
    GROUPED = ("grouped", "groups", GROUPS)
    MASKED = ("masked", "masked groups", GROUPS)

    def __init__(self, word: str, plural: str, counted: str) -> None:
        self.word, self.plural, self.counted = word, plural, counted

    @classmethod
    def of(cls, problem: Problem) -> "Kind | None":
        """The kind whose kernels a problem has; None where groups divide K: no library has it."""
        if problem.divides_k:
            return None
        if not problem.groups.is_none:
            return cls.MASKED if problem.groups.masked else cls.GROUPED
        return cls.ONE if problem.batch.is_one else cls.BATCH

    @property
    def suffix(self) -> str:
        """The end of the names of its functions: ``_batched``; empty for one product."""
        return f"_{self.word}" if self.word else ""

    @property
    def is_grouped(self) -> bool:
        """Whether rows belong to groups, masked or not."""
        return self.counted == GROUPS

    @property
    def signature(self) -> Signature:
        """The arguments of functions that queue a GEMM, behind the layout, before the stream."""
        return gemm_signature(
            workspace=True,
            batched=self is Kind.BATCH,
            grouped=self.is_grouped,
            masked=self is Kind.MASKED,
        )

    def count(self, problem: Problem) -> tuple[int, ...]:
        """The value of ``counted`` in a problem; empty for one product."""
        if self.is_grouped:
            return (problem.groups.count,)
        return () if self is Kind.ONE else (problem.batch.count,)

    def example(self, problem: Problem) -> Problem:
        """A problem of this kind that needs the same edges and vectors as that of one product."""
        match self:
            case Kind.ONE:
                return problem
            case Kind.BATCH:
                return replace(problem, batch=Batch(_MANY))
            case Kind.GROUPED:
                return replace(problem, groups=Groups(_MANY))
        # Groups of a capacity have as many rows each.
        rows = -(-problem.m // _MANY) * _MANY
        return replace(problem, m=rows, groups=Groups(_MANY, masked=True))
