"""Tests of many similar cases run a sample in ``make test``, all of them in ``make thorough``."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def _alike(case: Any) -> Hashable:
    return None


def one_in(
    every: int, cases: Iterable[Any], of_each: Callable[[Any], Hashable] = _alike
) -> list[ParameterSet]:
    """The cases for ``parametrize``; the sample is the first and every so many-th after it, of each
    kind that ``of_each`` tells.
    """
    seen: Counter[Hashable] = Counter()
    found = []
    for case in cases:
        kind = of_each(case)
        marks = (pytest.mark.thorough,) if seen[kind] % every else ()
        seen[kind] += 1
        found.append(pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks))
    return found
