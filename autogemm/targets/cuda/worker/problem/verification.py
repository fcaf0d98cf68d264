"""Checks a result on the GPU, element by element, before any time is believed.

Two checks catch different faults. On integer inputs every right kernel gives exactly the
reference, so one dropped or doubled product is seen. On real inputs |C - reference| must stay
within a bound on the rounding error of float32 arithmetic, which lower precision does not meet
(`autogemm.targets.cuda.worker.problem.reference` has it, with its sources).

A kernel that adds tensor cores' sums of 8-bit floats in FP32 every so often must be as exact as
that (`autogemm.model.accuracy.short_sums`). FP32 results must also have errors that, taken
together, are possible for FP32 in some order, on the real inputs and on some with few products,
where even BF16x3 and sums of 20 bits are detected
(`autogemm.targets.cuda.worker.problem.precision`).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autogemm.model.accuracy.short_sums import Promise
from autogemm.model.elements import arrays_of_groups
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Verification
from autogemm.targets.cuda.worker.gpu.gpu import Gpu, pointer
from autogemm.targets.cuda.worker.problem.inputs import (
    ALIGNMENT_BYTES,
    GUARD,
    NAN_BITS,
    InputSet,
    aligned_address,
    num_elements,
)
from autogemm.targets.cuda.worker.problem.precision import (
    MOST_OF_ALL,
    MOST_OF_FEW,
    chain_variance,
    few_step,
    most,
    num_few,
)
from autogemm.targets.cuda.worker.problem.reference import Reference, rounding_allowance

# Layout of what check_result() in verify.cu writes per block.
CHECK_FIELDS = 13
CHECK_BLOCKS = 512


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One comparison of C with its reference, all elements counted."""

    mismatches: int
    worst_score: float
    worst_at: tuple[int, int]
    value: float
    expected: float
    max_abs_error: float
    relative_frobenius: float
    overwritten: int
    shape: tuple[int, int]
    # Rows of one product, where C is that of several.
    rows: int = 0
    # Root mean square of the errors over that expected of FP32; None where that is not asked.
    of_fp32: float | None = None
    most_of_fp32: float = math.inf
    # The same of errors expected of a kernel that says how deep its sums of 8-bit floats are.
    of_promise: float = 0.0
    promise: Promise | None = None
    # C, or the second output.
    matrix: str = "C"

    def complaint(self, inputs: str) -> str:
        """One line on what is wrong; empty when nothing is."""
        row, col = self.worst_at
        of_product = ""
        if self.rows:
            product, row = divmod(row, self.rows)
            of_product = f" of product {product}"
        if self.mismatches:
            return (
                f"{self.mismatches} of {self.shape[0] * self.shape[1]} elements are wrong on "
                f"{inputs} inputs, worst {self.matrix}[{row}, {col}]{of_product}: "
                f"got {self.value:.9g}, expected {self.expected:.9g}"
            )
        if self.overwritten:
            return (
                f"{self.overwritten} elements outside {self.matrix} (between or around its rows) "
                "were written"
            )
        if self.of_fp32 is not None and not self.of_fp32 <= self.most_of_fp32:
            return (
                f"less exact than FP32 on {inputs} inputs: errors are {self.of_fp32:.3g} times "
                f"those of FP32 in its worst order, {self.most_of_fp32:.3g} times at most are "
                f"rounding"
            )
        return self.promise.complaint(inputs, self.of_promise) if self.promise is not None else ""

    @property
    def verification(self) -> Verification | None:
        """The errors as the outcome keeps them; None when the result holds NaN or infinity."""
        errors = (self.max_abs_error, self.worst_score, self.relative_frobenius)
        return Verification(*errors) if all(map(math.isfinite, errors)) else None


class Result:
    """C on the GPU, with canaries between its rows and around it; so is a second output, which is
    the C of `Problem.of_output` and has a name.
    """

    def __init__(self, gpu: Gpu, problem: Problem, name: str = "C") -> None:
        self._gpu, self._name, self._reads_c = gpu, name, problem.reads_c
        self._rows = 0 if problem.num_products == 1 else problem.m
        self._shape = (problem.used_rows * problem.num_products, problem.n)
        # Rows that belong to no group are canaries, as those between two products.
        used, apart = problem.used_rows, problem.batch_rows[2]
        self._counts = None
        if problem.groups.masked and not problem.divides_k:
            used = apart = problem.m // problem.groups.count
            self._counts = gpu.allocate(4 * problem.groups.count)
            (counts,) = arrays_of_groups(problem).values()
            gpu.write(int(self._counts.ptr), counts)
        self._sides = tuple(map(np.int64, (used, problem.n, apart, problem.ldc)))
        self._element = problem.dtype.c
        self._total = num_elements(problem.stacked_rows[2], problem.n, problem.ldc) + 2 * GUARD
        num_bytes = self._element.size_bytes * self._total
        self._buffer = gpu.allocate(num_bytes + ALIGNMENT_BYTES)
        self._fields = gpu.allocate(8 * CHECK_FIELDS * CHECK_BLOCKS)
        self.address = aligned_address(int(self._buffer.ptr), self._element)

    def reset(self, inputs: InputSet) -> None:
        """C as it is before a launch: the inputs' C, or NaN where a kernel must not read it, in
        place of which integers have canaries.
        """
        self._gpu.run_helper(
            "reset_result",
            self._total,
            self._begin,
            np.int32(self._element.size_bytes),
            *self._geometry,
            pointer(inputs.c0_address if self._reads_c else 0),
            np.uint32(self._element.canary_bits if self._element.is_integer else NAN_BITS),
            np.uint32(self._element.canary_bits),
        )

    def check(self, reference: Reference, promise: Promise | None = None) -> CheckResult:
        """Compare every element, and every canary; all errors with those that are promised. Waits
        for the GPU.
        """
        self._gpu.run_helper_blocks(
            "check_result",
            CHECK_BLOCKS,
            self._begin,
            np.int32(self._element.format_code),
            *self._geometry,
            np.uint32(self._element.canary_bits),
            pointer(reference.exact_address),
            pointer(reference.real_address),
            pointer(reference.bound_address),
            pointer(self._fields.ptr),
        )
        fields = self._read_fields()
        found = summarised(fields, self._shape, reference.predicted, MOST_OF_ALL)
        times = 0.0
        if promise is not None:
            times = reference.times_expected(
                promise, math.prod(self._shape), *fields[:, 11:].sum(0)
            )
        return replace(found, rows=self._rows, matrix=self._name, of_promise=times, promise=promise)

    def check_few(self, problem: Problem, inputs: InputSet) -> CheckResult:
        """Compare with the few products that are left of these inputs. Waits for the GPU."""
        fields = np.concatenate(
            [
                self._fields_of_few(problem, inputs, group, first, end)
                for group, (first, end) in enumerate(row_ranges(problem))
                if first < end
            ]
        )
        found = summarised(fields, self._shape, float(fields[:, 10].sum()), MOST_OF_FEW)
        return replace(found, rows=self._rows)

    def _fields_of_few(
        self, problem: Problem, inputs: InputSet, group: int, first: int, end: int
    ) -> NDArray[np.float64]:
        """Numbers of `check_few` for the rows of a group; for all where there are no groups."""
        num_products = num_few(problem.k)
        operand, trans = inputs.a.element, problem.layout
        to_c = first * problem.ldc * self._element.size_bytes
        to_a = first * problem.lda * operand.size_bytes
        to_c0 = first * problem.n * self._element.size_bytes if inputs.c0_address else 0
        addresses = (
            self.address + to_c,
            inputs.a.address + to_a,
            inputs.b.address_of(group),
            inputs.c0_address + to_c0,
        )
        self._gpu.run_helper_blocks(
            "check_few",
            CHECK_BLOCKS,
            *map(pointer, addresses),
            *map(np.int32, (self._element.format_code, operand.format_code)),
            *map(np.int64, (end - first, problem.n, problem.k)),
            *map(np.int64, (problem.lda, problem.ldb, problem.ldc)),
            *map(np.int32, (trans.trans_a, trans.trans_b)),
            np.int64(few_step(problem.k)),
            *map(np.int64, (problem.batch.count, *problem.batch_rows)),
            np.float64(inputs.alpha),
            np.float64(inputs.beta),
            np.float64(rounding_allowance(problem, num_products)),
            np.float64(chain_variance(num_products)),
            pointer(self._fields.ptr),
        )
        fields = self._read_fields()
        fields[:, 2] += first * problem.n
        return fields

    def _read_fields(self) -> NDArray[np.float64]:
        fields = np.zeros((CHECK_BLOCKS, CHECK_FIELDS))
        self._gpu.read(self._fields.ptr, fields)
        return fields

    @property
    def _begin(self) -> np.uint64:
        return pointer(self.address - self._element.size_bytes * GUARD)

    @property
    def _geometry(self) -> tuple[np.generic, ...]:
        counts = pointer(self._counts.ptr if self._counts is not None else 0)
        return (np.int64(self._total), np.int64(GUARD), *self._sides, counts)


def row_ranges(problem: Problem) -> list[tuple[int, int]]:
    """The first row of each group and the one behind its last; all rows where there are none."""
    if problem.groups.is_none:
        return [(0, problem.m)]
    return list(problem.groups.ranges(problem.m))


def summarised(
    fields: NDArray[np.float64],
    shape: tuple[int, int],
    predicted: float = 0.0,
    limit: float = math.inf,
) -> CheckResult:
    """The blocks' rows of CHECK_FIELDS numbers as one result.

    ``predicted`` is the sum of squared errors expected of FP32, of whose root the errors' may be
    ``limit`` times at most; nothing is judged where it is 0.
    """
    _, score, index, value, expected = fields[int(np.argmax(fields[:, 1])), :5]
    squared_error, squared_expected = fields[:, 6].sum(), fields[:, 7].sum()
    # An all-zero reference has no relative error; its absolute one is zero if C is right.
    relative = math.sqrt(squared_error / squared_expected) if squared_expected > 0 else 0.0
    return CheckResult(
        mismatches=int(fields[:, 0].sum()),
        worst_score=float(score),
        worst_at=divmod(int(index), shape[1]),
        value=float(value),
        expected=float(expected),
        max_abs_error=float(fields[:, 5].max()),
        relative_frobenius=relative,
        overwritten=int(fields[:, 8].sum()),
        shape=shape,
        of_fp32=math.sqrt(squared_error / predicted) if predicted > 0 else None,
        most_of_fp32=most(limit, shape[0] * shape[1]),
    )
