"""The reference for a problem with an epilogue: the user's inputs, results and their bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autogemm.model.bounded import SECOND, Bounded, exactly, output_of, result_of
from autogemm.model.dtypes import Element
from autogemm.model.elements import Floats, rounded
from autogemm.model.epilogue import Gate
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Expected:
    """A result as it must be, [products, M, N], and the largest error that rounding explains; an
    infinite one where a number is expected, but nothing is known of what FP32 makes of it.
    """

    value: Doubles
    bound: Doubles


def expected_results(  # noqa: PLR0913  # a problem, and all that the results are made of
    problem: Problem,
    plan: LaunchPlan,
    arrays: Sequence[Floats],
    c: Floats,
    acc: Bounded,
    *,
    is_exact: bool,
) -> tuple[Expected, Expected | None]:
    """C that the epilogue makes of these sums, and the second output where there is one.

    ``arrays`` are those of the plan, ``c`` is the old C. With ``is_exact`` sums are what every
    right kernel has: a result is then an element between the two that the epilogue's own rounding
    leaves.
    """
    given = {
        **_columns(problem, acc),
        "alpha": exactly(float(np.float32(problem.alpha))),
        "beta": exactly(float(np.float32(problem.beta))),
        "c": exactly(c.astype(np.float64) if problem.reads_c else 0.0),
    }
    of_arrays = iter(arrays)
    values = [
        np.asarray(next(of_arrays) if extra.count is not None else extra.neutral, np.float64)
        for extra in plan.extras
    ]
    own = [value for extra, value in zip(plan.extras, values, strict=True) if extra.is_input]
    for one, value in zip(problem.epilogue.inputs, own, strict=True):
        if one.is_scale:
            # The sums have it.
            continue
        given[one.name] = exactly(_placed(value, one.axes, problem))
    outputs = output_of(problem.epilogue, given)
    found = result_of(problem.epilogue, given | outputs)
    of_c = rounded_results(found, problem.dtype.c, c.shape, is_exact=is_exact)
    if problem.epilogue.output is None:
        return of_c, None
    (second,) = outputs.values()
    element = problem.epilogue.output.element(problem.dtype)
    return of_c, rounded_results(second, element, c.shape, is_exact=is_exact)


def rounded_results(
    found: Bounded, element: Element, shape: tuple[int, ...], *, is_exact: bool
) -> Expected:
    """The values rounded to elements, and how far off these may be: of types that saturate, and
    where sums are exact, no further than the elements nearest to what is left of the errors.

    Where a result may be infinite or not, the least number that is rounded to infinity stands for
    it: a right result is within the bound of that.
    """
    expected, error = (np.broadcast_to(x, shape).copy() for x in (found.value, found.error))
    if is_exact or element.saturates:
        nearest, low, high = (
            rounded(values, element).astype(np.float64)
            for values in (expected, expected - error, expected + error)
        )
        is_certain = np.isnan(nearest) | (low == high)
        if element.has_infinity:
            most = element.overflow
            low, high = np.clip(low, -most, most), np.clip(high, -most, most)
            nearest = np.where(is_certain, nearest, np.clip(nearest, -most, most))
        with np.errstate(invalid="ignore"):
            bound = np.maximum(high - nearest, nearest - low)
        bound = np.where(is_certain, 0.0, bound)
        return Expected(nearest, np.where(np.isinf(error), np.inf, bound))
    if element.size_bytes < Element.F32.size_bytes:
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        error += element.unit_roundoff * (size + error) + element.half_step
    return Expected(expected, error)


def _columns(problem: Problem, sums: Bounded) -> dict[str, Bounded]:
    """The products [products, M, N], or from [1, M, 2 N] the two columns that yield one of C."""
    first, second = {
        Gate.NONE: (slice(None), slice(0)),
        Gate.HALVES: (slice(problem.n), slice(problem.n, None)),
        Gate.INTERLEAVED: (slice(0, None, 2), slice(1, None, 2)),
    }[problem.epilogue.gate]
    return {
        name: Bounded(sums.value[..., part], sums.error[..., part])
        for name, part in (("acc", first), (SECOND, second))
    }


def _placed(values: Doubles, axes: str, problem: Problem) -> Doubles:
    """The values with one axis for rows and one for columns of C."""
    if "g" in axes:
        of_row = np.zeros(problem.m, np.intp)
        for group, (first, end) in enumerate(problem.groups.ranges(problem.m)):
            of_row[first:end] = group
        return values.reshape(problem.groups.count, -1)[of_row]
    shapes = {"": (1, 1), "m": (-1, 1), "n": (1, -1), "m, n": (problem.m, problem.n)}
    return values.reshape(shapes[axes])
