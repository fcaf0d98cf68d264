"""The reference for a problem with an epilogue: the user's inputs, the result and its bound."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autogemm.model.bounded import SECOND, Bounded, exactly, result_of
from autogemm.model.elements import Floats, rounded
from autogemm.model.epilogue import Gate
from autogemm.model.kernel import LaunchPlan
from autogemm.model.problem import Problem

Doubles = npt.NDArray[np.float64]


def result_and_bound(  # noqa: PLR0913  # a problem, and all that the result is made of
    problem: Problem,
    plan: LaunchPlan,
    arrays: Sequence[Floats],
    c: Floats,
    acc: Bounded,
    *,
    is_exact: bool,
) -> tuple[Doubles, Doubles]:
    """The epilogue applied to these sums, and the largest error that C may have.

    ``arrays`` are those of the plan, ``c`` is the old C. With ``is_exact`` sums are what every
    right kernel has: C is then an element between the two that the epilogue's own rounding leaves.
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
        given[one.name] = exactly(_placed(value, one.axes, problem))
    found = result_of(problem.epilogue, given)
    expected, error = (np.broadcast_to(x, c.shape).copy() for x in (found.value, found.error))
    element = problem.dtype.c
    if is_exact:
        nearest, low, high = (
            rounded(expected + sign * error, element).astype(np.float64) for sign in (0, -1, 1)
        )
        return nearest, np.maximum(high - nearest, nearest - low)
    if element.size_bytes < 4:
        size = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        error += element.unit_roundoff * (size + error) + element.half_step
    return expected, error


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
    shapes = {"": (1, 1), "m": (-1, 1), "n": (1, -1), "m, n": (problem.m, problem.n)}
    return values.reshape(shapes[axes])
