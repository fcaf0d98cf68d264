"""References of epilogues whose results may be infinite, and what passes as equal to them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from autogemm.model.bounded import Bounded, exactly, result_of
from autogemm.model.dtypes import DType, Element
from autogemm.model.elements import loaded, stored
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.reference import Data, Inputs, compare, make_inputs
from autogemm.reference.fused import rounded_results
from autogemm.space import launch_plan, load_family

INF, NAN = np.inf, np.nan
MOST = float(np.finfo(np.float32).max)


def f32(value: object) -> np.ndarray:
    return np.asarray(value, np.float32)


# Each step in FP32, as kernels do it.
IN_FP32: Mapping[str, object] = {
    "acc / 0": lambda acc: acc / f32(0),
    "1 / acc": lambda acc: f32(1) / acc,
    "acc * 1e38 * 1e38": lambda acc: acc * f32(1e38) * f32(1e38),
    "acc * 1e38 * 1e38 / 1e38": lambda acc: acc * f32(1e38) * f32(1e38) / f32(1e38),
    "1 / (acc * 1e38)": lambda acc: f32(1) / (acc * f32(1e38)),
    "exp(acc)": np.exp,
    "max(acc / 0, 3) - 1": lambda acc: np.fmax(acc / f32(0), f32(3)) - f32(1),
    "acc * 3e38 + -3e38": lambda acc: acc * f32(3e38) + f32(-3e38),
}


@pytest.mark.parametrize("text", IN_FP32)
def test_what_fp32_makes_of_it_is_within_the_bound(text: str) -> None:
    acc = f32([0.0, 1.0, -2.0, 3e5, 1e-38, 1e30, -1e30, 88.7, 88.8, -104.0, MOST])
    found = result_of(Epilogue(text), {"acc": exactly(acc.astype(np.float64))})
    with np.errstate(all="ignore"):
        got = IN_FP32[text](acc).astype(np.float64)  # type: ignore[operator]
        near = np.abs(got - found.value) <= found.error
    same = (got == found.value) | (np.isnan(got) & np.isnan(found.value))
    assert np.all(same | near | np.isinf(found.error))
    # Of values that are exact nearly all is known.
    assert np.count_nonzero(np.isinf(found.error)) <= 1


@pytest.mark.parametrize("element", [Element.F16, Element.BF16, Element.F32])
def test_the_least_that_is_rounded_to_infinity_stands_for_what_may_be_infinite(
    element: Element,
) -> None:
    step = element.overflow - element.largest
    sums = np.array([INF, -INF, element.overflow, element.largest, -element.largest, NAN])
    error = np.array([0.0, 0.0, 1.5, 1.5, 1.5, 0.0]) * np.array([0, 0, step, step, step, 0])
    expected = rounded_results(Bounded(sums, error), element, sums.shape, is_exact=True)
    assert expected.value[:2].tolist() == [INF, -INF]
    # The neighbour below, and the infinity that is rounded to from above.
    assert expected.value[2:5].tolist() == [element.overflow, element.largest, -element.largest]
    assert np.isnan(expected.value[5])
    assert expected.bound[[0, 1, 5]].tolist() == [0.0, 0.0, 0.0]
    assert np.all(expected.bound[2:5] >= step)
    assert np.all(expected.bound[2:5] <= 4 * step)


@pytest.mark.parametrize("is_exact", [True, False])
def test_nothing_is_known_of_a_quotient_whose_divisor_may_be_zero(is_exact: bool) -> None:
    acc = Bounded(np.array([1e-9, 1.0]), np.array([1e-8, 1e-8]))
    found = result_of(Epilogue("1 / acc"), {"acc": acc})
    expected = rounded_results(found, Element.F16, (2,), is_exact=is_exact)
    assert np.isinf(expected.bound).tolist() == [True, False]
    assert np.isfinite(expected.value).all()


def one_by_four(value: list[float], bound: list[float]) -> tuple[Problem, Inputs]:
    family = load_family("gemm_skinny")
    problem = Problem(1, 4, 8, Layout.NT, DType.F16).with_epilogue(Epilogue("acc / 0"))
    plan = launch_plan(family, family.completed(family.seeds[0]), problem)
    inputs = make_inputs(problem, plan, Data.INTEGERS, 1)
    shape = inputs.expected.shape
    return problem, replace(
        inputs, expected=np.reshape(value, shape), bound=np.reshape(bound, shape)
    )


def test_an_infinity_is_that_infinity_and_no_number() -> None:
    overflow = Element.F16.overflow
    problem, inputs = one_by_four([INF, -INF, overflow, 7.0], [0.0, 0.0, 32.0, INF])
    for right in ([INF, -INF, INF, NAN], [INF, -INF, 65504.0, INF], [INF, -INF, 65504.0, 1.0]):
        assert not compare(problem, inputs, stored(f32(right), Element.F16)).is_wrong
    for at, value in [(0, -INF), (0, 65504.0), (0, NAN), (1, INF), (2, -INF), (2, NAN)]:
        wrong = f32([INF, -INF, INF, 7.0])
        wrong[at] = value
        found = compare(problem, inputs, stored(wrong, Element.F16))
        assert found.first_wrong == (0, 0, at)


def test_what_is_not_written_is_no_nan_of_the_kernel() -> None:
    problem, inputs = one_by_four([NAN, NAN, 7.0, INF], [0.0, 0.0, INF, 0.0])
    right = stored(f32([NAN, -NAN, NAN, INF]), Element.F16)
    assert not compare(problem, inputs, right).is_wrong
    for at in range(4):
        wrong = right.copy()
        wrong[at] = inputs.c[at]
        assert np.isnan(loaded(wrong[at : at + 1], Element.F16))
        assert compare(problem, inputs, wrong).first_wrong == (0, 0, at)
