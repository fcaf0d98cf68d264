"""The GEMM to be solved: sizes, layout, leading dimensions, scalars."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Self

from autogemm.model.batch import ONE, Batch
from autogemm.model.dtypes import DType, Element
from autogemm.model.epilogue import PLAIN, Epilogue, EpilogueInput
from autogemm.model.formula import SCALED_PRODUCT, SCALES_OF_GROUPS
from autogemm.model.groups import NONE, Groups
from autogemm.support.errors import UsageError
from autogemm.support.limits import Finite, Named

# Sizes travel to kernels as 32-bit int.
MAX_EXTENT = 2**31 - 1


class Layout(StrEnum):
    """op(A) then op(B): ``n`` as it is, ``t`` transposed. All matrices are row-major."""

    NN = "nn"
    NT = "nt"
    TN = "tn"
    TT = "tt"

    @property
    def trans_a(self) -> bool:
        """A is stored as [K, M]."""
        return self.value[0] == "t"

    @property
    def trans_b(self) -> bool:
        """B is stored as [N, K]."""
        return self.value[1] == "t"


@dataclass(frozen=True, slots=True)
class Problem:
    """C[M,N] = alpha * op(A)[M,K] @ op(B)[K,N] + beta * C, row-major. Sizes in elements.

    With an ``epilogue`` C is what its expression makes of op(A) @ op(B) instead. Where that is
    gated, op(B) has 2 N columns, of which two make one of C.
    With a ``batch`` there are several such products, of the same sizes, in one launch.
    With ``groups`` the rows of A and C belong to groups, one group's behind the other's, and each
    group has a B of its own, one behind the other without a gap; rows of no group are left as they
    are. In layout tn the rows of A and B as stored belong to groups, which divide K: each group has
    a C of its own, one behind the other without a gap.
    A leading dimension of 0 means packed and is replaced by the number of columns stored.
    Raises UsageError for a size below 1, a leading dimension below its number of columns, matrices
    of a batch that overlap, groups of a problem that cannot have them, an alpha or beta that the
    epilogue does not read, and, where C is 32-bit integers, for an epilogue, alpha that is not 1
    and beta that is neither 0 nor 1.
    """

    m: int
    n: int
    k: int
    layout: Layout = Layout.NN
    dtype: Annotated[DType, Named(DType.parse)] = DType.F32
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    alpha: Finite = 1.0
    beta: Finite = 0.0
    epilogue: Annotated[Epilogue, Named(Epilogue.parse)] = PLAIN
    batch: Annotated[Batch, Named(Batch.parse)] = ONE
    groups: Annotated[Groups, Named(Groups.parse)] = NONE

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            extent = getattr(self, name)
            if not 1 <= extent <= MAX_EXTENT:
                raise UsageError(f"{name.upper()} must be from 1 to {MAX_EXTENT}, got {extent}")
        columns = {"lda": self.a_shape[1], "ldb": self.b_shape[1], "ldc": self.n}
        for name, least in columns.items():
            stride = getattr(self, name) or least
            if not least <= stride <= MAX_EXTENT:
                raise UsageError(
                    f"{name} must be at least the {least} columns stored (layout {self.layout}), "
                    f"got {stride}"
                )
            object.__setattr__(self, name, stride)
        object.__setattr__(self, "batch", self.batch.completed(self.own_rows))
        if self.dtype.has_exact_sums:
            self._check_exact_sums()
        if not self.epilogue.is_plain:
            self._check_epilogue()
        if not self.groups.is_none:
            self._check_groups()

    def _check_exact_sums(self) -> None:
        if not self.epilogue.is_plain:
            raise UsageError(
                f"C of {self.dtype} is sums as they are, in 32-bit integers: for the epilogue "
                f"{self.epilogue} use {self.dtype.scaled}"
            )
        self.dtype.require_factors(self.alpha, self.beta)

    def _check_groups(self) -> None:
        if self.layout is Layout.TT:
            raise UsageError(
                f"groups are rows of A as it is stored: layout {self.layout} has them as columns"
            )
        if not self.batch.is_one:
            raise UsageError(f"a problem has groups or a batch: leave out --batch {self.batch}")
        if self.epilogue.output is not None:
            raise UsageError(
                f"{self.epilogue.output.label} is written for one product: leave out the groups "
                f"{self.groups}, or {self.epilogue.output.name}"
            )
        groups, rows, name = self.groups, self.grouped_rows, "K" if self.divides_k else "M"
        if groups.masked and rows % groups.count:
            raise UsageError(
                f"{groups.count} masked groups must have equally many rows: {name} = {rows} is no "
                f"multiple of {groups.count}"
            )
        if groups.used_rows(rows) > rows:
            raise UsageError(
                f"groups {groups} have {groups.used_rows(rows)} rows, which is more than {name} = "
                f"{rows}"
            )
        if groups.masked and max(groups.rows(rows)) > rows // groups.count:
            raise UsageError(
                f"groups {groups} have room for {rows // groups.count} rows each ({name} / "
                f"{groups.count})"
            )

    def _check_epilogue(self) -> None:
        for name, neutral in (("alpha", 1.0), ("beta", 0.0)):
            if getattr(self, name) != neutral and not self.epilogue.reads(name):
                raise UsageError(
                    f"{name}={getattr(self, name):g} has no effect: the epilogue {self.epilogue} "
                    f"does not read {name}"
                )
        of_groups = [one.label for one in self.epilogue.arrays if "g" in one.axes]
        if of_groups and (self.groups.is_none or self.divides_k):
            raise UsageError(
                f"{of_groups[0]} has the group of a row as its index: give groups in nn or nt"
            )
        if self.epilogue.num_columns > 1 and not self.batch.is_one:
            raise UsageError(
                f"the epilogue {self.epilogue} takes two columns of one product: "
                f"leave out the batch of {self.batch.count}"
            )
        if self.epilogue.num_columns > 1 and self.divides_k:
            raise UsageError(
                f"the epilogue {self.epilogue} takes two columns of one product, and the groups "
                f"{self.groups} have one each in layout {self.layout}: use layout nn or nt"
            )
        if self.epilogue.output is not None:
            self._check_output(self.epilogue.output)
        if self.epilogue.scales:
            self._check_scales()
        object.__setattr__(self, "epilogue", self.epilogue.in_dtype(self.dtype))

    def _check_scales(self) -> None:
        """Scales of blocks are those of 8-bit floats, of one product."""
        if self.dtype.ab.size_bytes != 1 or self.dtype.ab.is_integer:
            raise UsageError(f"scales of blocks are for 8-bit floats, got {self.dtype}")
        if not self.batch.is_one or self.divides_k:
            raise UsageError(
                "scales of blocks are for one product, or groups of rows: leave out "
                + (f"the batch of {self.batch.count}" if self.groups.is_none else "groups along K")
            )
        of_b = self.epilogue.scales[1]
        if not self.groups.is_none and "g" not in of_b.axes:
            raise UsageError(
                f"each group has a B with scales of its own: write {of_b.name}[{SCALES_OF_GROUPS}] "
                f"for {of_b.label}"
            )

    def _check_output(self, output: EpilogueInput) -> None:
        if not self.batch.is_one:
            raise UsageError(
                f"all products of a batch would write the same {output.label}: leave out the batch "
                f"of {self.batch.count}, or {output.name}"
            )
        known = (self.dtype.of_arrays, Element.F32)
        if output.element(self.dtype) not in known:
            raise UsageError(
                f"{output.label} is {' or '.join(dict.fromkeys(map(str, known)))} where dtype is "
                f"{self.dtype}, got {output.declared}"
            )

    @property
    def reads_c(self) -> bool:
        """Whether the old C is read; never where a beta that the epilogue reads is 0."""
        scaled = not self.epilogue.reads("beta") or self.beta != 0.0
        return self.epilogue.reads("c") and scaled

    @property
    def of_output(self) -> "Problem":
        """A plain problem whose C is as the second output of this one: packed, of its type."""
        output = self.epilogue.output
        assert output is not None, "there is a second output"
        dtype = self.dtype.with_c(output.element(self.dtype))
        return replace(self.plain_product, n=self.n, ldb=0, ldc=0, dtype=dtype)

    def with_epilogue(self, epilogue: Epilogue) -> Self:
        """The problem with that epilogue, without a factor that it does not read; the rows of B are
        as far apart as before, behind columns that it needs more.
        """
        more = self.n * (epilogue.num_columns - self.epilogue.num_columns)
        ldb = self.ldb + (0 if self.layout.trans_b else more)
        alpha = self.alpha if epilogue.reads("alpha") else 1.0
        beta = self.beta if epilogue.reads("beta") else 0.0
        return replace(self, epilogue=epilogue, alpha=alpha, beta=beta, ldb=ldb)

    @property
    def plain_product(self) -> "Problem":
        """The product alone, with all its columns, packed."""
        columns = self.n * self.epilogue.num_columns
        return replace(self, n=columns, ldc=columns, alpha=1.0, beta=0.0, epilogue=PLAIN)

    @property
    def needs_pass(self) -> bool:
        """Whether behind a product of cuBLAS there is a pass over C: for an epilogue, and for a C
        that cuBLAS does not make, or to which it adds nothing.
        """
        if not self.epilogue.is_plain:
            return True
        if self.dtype.c.saturates:
            return self.reads_c or self.dtype.ab is not Element.E4M3
        return self.dtype.of_sums is not self.dtype

    @property
    def multiplied(self) -> DType:
        """The types of the product that cuBLAS is asked for."""
        # Where it makes a C of 8 bits itself, there are no sums apart.
        has_sums = self.needs_pass or self.dtype.of_sums is self.dtype
        return self.dtype.multiplied if has_sums else self.dtype

    @property
    def converts(self) -> bool:
        """Whether cuBLAS is given operands of another type, and converted ones take the scales of
        blocks with them.
        """
        return self.multiplied.ab is not self.dtype.ab

    @property
    def spelled_out(self) -> "Problem":
        """The same with alpha and beta in an expression, where there is no epilogue."""
        if not self.epilogue.is_plain:
            return self
        # The other order is the text of none.
        old = "beta * c[m, n] + " if self.reads_c else ""
        return replace(self, epilogue=Epilogue(f"{old}alpha * acc"))

    def with_factors(self, alpha: float, beta: float) -> Self:
        """The problem with these factors, as far as its epilogue reads them."""
        alpha = alpha if self.epilogue.reads("alpha") else self.alpha
        beta = beta if self.epilogue.reads("beta") else self.beta
        return replace(self, alpha=alpha, beta=beta)

    @property
    def a_shape(self) -> tuple[int, int]:
        """Rows and columns of A as stored."""
        return (self.k, self.m) if self.layout.trans_a else (self.m, self.k)

    @property
    def b_shape(self) -> tuple[int, int]:
        """Rows and columns of B as stored."""
        columns = self.n * self.epilogue.num_columns
        return (columns, self.k) if self.layout.trans_b else (self.k, columns)

    @property
    def own_rows(self) -> tuple[int, int, int]:
        """Rows of one product's A, B and C as stored."""
        return (self.a_shape[0], self.b_shape[0], self.m)

    @property
    def batch_rows(self) -> tuple[int, int, int]:
        """Rows of A, B and C as stored from one product's to the next's; 0 of a shared one."""
        given = zip(self.batch.rows, self.own_rows, strict=True)
        a, b, c = (own if rows is None else rows for rows, own in given)
        return (a, b, c)

    @property
    def divides_k(self) -> bool:
        """Whether groups divide K: each has a range of it, and a C of its own."""
        return not self.groups.is_none and self.layout.trans_a

    @property
    def grouped_rows(self) -> int:
        """Rows that groups divide: M, or K where they divide that."""
        return self.k if self.divides_k else self.m

    def regrouped(self, rows: int, groups: Groups) -> Self:
        """The problem with so many rows that these groups divide."""
        if self.layout.trans_a:
            return replace(self, k=rows, groups=groups)
        return replace(self, m=rows, groups=groups)

    def product_of_group(self, rows: int) -> "Problem":
        """The product of a group of so many rows, with nothing of the epilogue but scales of
        blocks.
        """
        of_scales = Epilogue(SCALED_PRODUCT) if self.epilogue.scales else PLAIN
        one = replace(self.plain_product, ldc=self.ldc, groups=NONE, epilogue=of_scales)
        return one.regrouped(rows, NONE)

    @property
    def num_products(self) -> int:
        """The number of C matrices, M rows each."""
        return self.num_matrices[2]

    @property
    def used_rows(self) -> int:
        """Rows of a C that are computed: all, or those that belong to a group."""
        if self.groups.is_none or self.divides_k:
            return self.m
        return self.groups.used_rows(self.m)

    @property
    def used_k(self) -> int:
        """Length of the dot products; of groups that divide K that of all of them."""
        return self.groups.used_rows(self.k) if self.divides_k else self.k

    @property
    def stacked_rows(self) -> tuple[int, int, int]:
        """Rows of A, B and C as stored, from the first product's or group's first to the last one's
        last.
        """
        if self.divides_k:
            return (self.k, self.k, self.groups.count * self.m)
        if not self.groups.is_none:
            return (self.m, self.groups.count * self.b_shape[0], self.m)
        between = self.batch.count - 1
        a, b, c = (
            between * rows + own for rows, own in zip(self.batch_rows, self.own_rows, strict=True)
        )
        return (a, b, c)

    @property
    def num_matrices(self) -> tuple[int, int, int]:
        """The numbers of A, B and C: 1 where all products share it; for each group a B, or a C
        where groups divide K.
        """
        if self.divides_k:
            return (1, 1, self.groups.count)
        if not self.groups.is_none:
            return (1, self.groups.count, 1)
        a, b, c = (self.batch.count if rows else 1 for rows in self.batch_rows)
        return (a, b, c)

    @property
    def one_product(self) -> Self:
        """The problem of a single one of its products."""
        return replace(self, batch=ONE)

    @property
    def flops(self) -> int:
        """Multiply and add counted separately: 2 * M * N * K of each product, twice that of a gated
        one; M or K without the rows that belong to no group.
        """
        each = 2 * self.used_rows * self.n * self.used_k * self.epilogue.num_columns
        return each * self.batch.count

    @property
    def operand_bytes(self) -> int:
        """Bytes of A, B and C as stored, padding between rows and between products included."""
        a, b, c = self.stacked_rows
        inputs = a * self.lda + b * self.ldb
        return inputs * self.dtype.ab.size_bytes + c * self.ldc * self.dtype.c.size_bytes

    @property
    def moved_bytes(self) -> int:
        """Bytes that must move at least: A, B and inputs of the epilogue read, C and a second
        output written, each element once; nothing for groups without rows.
        """
        a, b, c = self.num_matrices
        if not (self.groups.is_none or self.divides_k):
            b = self.groups.num_used(self.m)
        inputs = self.used_k * (a * self.used_rows + b * self.n * self.epilogue.num_columns)
        extents = (self.used_rows, self.n, self.k, self.groups.count)
        own = self.epilogue.input_bytes(extents, self.dtype)
        own += self.epilogue.output_bytes(self.m, self.n, self.dtype)
        result = c * self.used_rows * self.n * self.dtype.c.size_bytes
        return inputs * self.dtype.ab.size_bytes + result + own

    @property
    def flop_per_byte(self) -> float:
        """Arithmetic intensity: operations per byte that must move."""
        return self.flops / self.moved_bytes

    @property
    def size_label(self) -> str:
        """``4096`` for a square, ``MxNxK`` otherwise."""
        if self.m == self.n == self.k:
            return str(self.m)
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def products_label(self) -> str:
        """The size, and the batch or groups: ``4096 groups=8 uniform``."""
        named = {"batch": self.batch, "groups": self.groups}
        parts = [f"{name}={one}" for name, one in named.items() if str(one)]
        return " ".join([self.size_label, *parts])

    @property
    def label(self) -> str:
        """Size, layout and dtype, and whatever is not the default: ``4096 nn f32``."""
        parts = [self.size_label, str(self.layout), str(self.dtype)]
        packed = {"lda": self.a_shape[1], "ldb": self.b_shape[1], "ldc": self.n}
        parts += [
            f"{name}={getattr(self, name)}"
            for name, least in packed.items()
            if getattr(self, name) != least
        ]
        if not self.batch.is_one:
            parts.append(f"batch={self.batch}")
        if not self.groups.is_none:
            parts.append(f"groups={self.groups}")
        if self.alpha != 1.0:
            parts.append(f"alpha={self.alpha:g}")
        if self.beta != 0.0:
            parts.append(f"beta={self.beta:g}")
        if not self.epilogue.is_plain:
            parts.append(f"epilogue={self.epilogue}")
        return " ".join(parts)

    def tflops(self, time_us: float) -> float:
        """TFLOP/s when all products take ``time_us`` microseconds."""
        return self.flops / time_us * 1e-6

    @classmethod
    def parse_size(cls, text: str) -> tuple[int, int, int]:
        """``4096`` or ``MxNxK`` as (m, n, k). Raises UsageError for anything else."""
        match = re.fullmatch(r"(\d{1,10})(?:x(\d{1,10})x(\d{1,10}))?", text.strip().lower())
        if match is None:
            raise UsageError(
                f"a size is one positive integer (4096) or MxNxK (4096x256x1024), got {text!r}"
            )
        m, n, k = match.groups()
        return (int(m), int(n or m), int(k or m))

    @classmethod
    def of_size(cls, text: str, layout: Layout = Layout.NN, dtype: DType = DType.F32) -> Self:
        """The packed problem of that size: ``4096`` or ``4096x256x1024``."""
        return cls(*cls.parse_size(text), layout=layout, dtype=dtype)
