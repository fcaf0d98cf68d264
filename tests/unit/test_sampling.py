"""``one_in``: which cases of a test are in the sample."""

import pytest
from _pytest.mark import ParameterSet
from sampling import one_in


def in_sample(cases: list[ParameterSet]) -> list[object]:
    return [case.values[0] for case in cases if not case.marks]


def test_the_first_and_every_so_many_th() -> None:
    assert in_sample(one_in(3, range(8))) == [0, 3, 6]
    assert len(one_in(3, range(8))) == 8


def test_each_kind_is_in_it() -> None:
    words = ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]
    assert in_sample(one_in(3, words, lambda word: word[0])) == ["a1", "b1", "c1", "a4"]


def test_several_values_stay_apart() -> None:
    (only,) = one_in(1, [("bf16", 4)])
    assert only.values == ("bf16", 4)


@pytest.mark.parametrize("number", one_in(2, range(4)))
def test_a_run_without_thorough_has_the_sample(number: int, request: pytest.FixtureRequest) -> None:
    asked = request.config.getoption("--thorough") or "::" in "".join(request.config.args)
    assert asked or number % 2 == 0
