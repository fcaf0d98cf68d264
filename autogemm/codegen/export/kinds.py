"""The kinds of functions in a library: for one product, for a batch, for groups of rows."""

from dataclasses import replace
from enum import Enum

from autogemm.model.batch import Batch
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.signature import (
    COUNTS,
    GROUPS,
    OFFSETS,
    ArgumentKind,
    Signature,
    gemm_signature,
)

# The problem for which kernels are written out has so many: their texts depend on no number.
_MANY = 8

# How the number of products or groups joins parameters and arguments.
_BEFORE_COUNT = {
    "count_parameter": ", int ",
    "long_count": ", long long ",
    "in_count": ", ",
    "call_count": ", call.",
}
# The rows of matrices that follow each other without a gap.
_PACKED = {
    "batch_rows_a": "is_transposed_a(layout) ? K : M",
    "batch_rows_b": "is_transposed_b(layout) ? N : K",
    "batch_rows_c": "M",
}


class Kind(Enum):
    """The computation of one call.

    ``word`` ends the names of its functions, ``plural`` is for people, ``counted`` the argument
    that a rule reads beside M, N and K; all are empty for one product.
    """

    ONE = ("", "", "")
    BATCH = ("batched", "batches", "batch")
    GROUPED = ("grouped", "groups", GROUPS)
    MASKED = ("masked", "masked groups", GROUPS)
    GROUPED_TN = ("grouped_tn", "groups of K", GROUPS)
    MASKED_TN = ("masked_tn", "masked groups of K", GROUPS)

    def __init__(self, word: str, plural: str, counted: str) -> None:
        self.word, self.plural, self.counted = word, plural, counted

    @classmethod
    def of(cls, problem: Problem) -> "Kind":
        """The kind whose kernels a problem has."""
        if problem.groups.is_none:
            return cls.ONE if problem.batch.is_one else cls.BATCH
        if problem.divides_k:
            return cls.MASKED_TN if problem.groups.masked else cls.GROUPED_TN
        return cls.MASKED if problem.groups.masked else cls.GROUPED

    @property
    def suffix(self) -> str:
        """The end of the names of its functions: ``_batched``; empty for one product."""
        return f"_{self.word}" if self.word else ""

    @property
    def is_grouped(self) -> bool:
        """Whether rows belong to groups, of M or of K, masked or not."""
        return self.counted == GROUPS

    @property
    def is_masked(self) -> bool:
        """Whether groups have counts in place of offsets."""
        return self in (Kind.MASKED, Kind.MASKED_TN)

    @property
    def divides_k(self) -> bool:
        """Whether groups divide K: each has a C of its own."""
        return self in (Kind.GROUPED_TN, Kind.MASKED_TN)

    @property
    def signature(self) -> Signature:
        """The arguments of functions that queue a GEMM, behind the layout, before the stream."""
        return gemm_signature(
            workspace=True,
            batched=self is Kind.BATCH,
            grouped=self.is_grouped,
            masked=self.is_masked,
        )

    def count(self, problem: Problem) -> tuple[int, ...]:
        """The value of ``counted`` in a problem; empty for one product."""
        if self.is_grouped:
            return (problem.groups.count,)
        return () if self is Kind.ONE else (problem.batch.count,)

    def example(self, problem: Problem) -> Problem | None:
        """A problem of this kind that needs the same edges and vectors as that of one product; None
        in a layout that it does not have.
        """
        if self is Kind.ONE:
            return problem
        if self is Kind.BATCH:
            return replace(problem, batch=Batch(_MANY))
        layout = problem.layout
        if layout is Layout.TT or layout.trans_a is not self.divides_k:
            return None
        # Masked groups have as many rows each.
        rows = problem.k if self.divides_k else problem.m
        rows = -(-rows // _MANY) * _MANY if self.is_masked else rows
        return problem.regrouped(rows, Groups(_MANY, masked=self.is_masked))


STACKED = tuple(kind for kind in Kind if kind is not Kind.ONE)


def context_of_kind(kind: Kind) -> dict[str, object]:
    """The arguments of a kind's functions beside those of one product.

    ``in_call`` are the values of a `Call` behind those of one product, ``in_query`` the same where
    only their number is known.
    """
    own = kind.signature.of_kind(ArgumentKind.BATCH, ArgumentKind.GROUPS)
    numbers = [one.name for one in own if one.is_scalar]
    rows = COUNTS if kind.is_masked else OFFSETS
    return {
        "batched": kind is Kind.BATCH,
        "grouped": kind.is_grouped,
        "masked": kind.is_masked,
        "divides_k": kind.divides_k,
        "stacked": kind is not Kind.ONE,
        "plural": kind.plural,
        "count": kind.counted,
        **{
            name: f"{before}{kind.counted}" if kind.counted else ""
            for name, before in _BEFORE_COUNT.items()
        },
        "rows_array": rows,
        "extra_arguments": rows if kind.is_grouped else "",
        "in_call": "".join(f", {name}" for name in numbers),
        "in_query": "".join(f", {_PACKED.get(name, name)}" for name in numbers),
    }
