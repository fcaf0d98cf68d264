"""The four words, on samples whose truth is known."""

from collections import Counter

import numpy as np
import pytest

from autogemm.model.results.change import Change, compare_samples


def samples(mean: float, spread: float, count: int, seed: int) -> list[float]:
    drawn: list[float] = np.random.default_rng(seed).normal(mean, spread * mean, count).tolist()
    return drawn


@pytest.mark.parametrize(
    ("after", "change"),
    [(100.0, Change.SAME), (100.4, Change.SAME), (95.0, Change.FAST), (105.0, Change.SLOW)],
)
def test_clear_cases(after: float, change: Change) -> None:
    compared = compare_samples(samples(100.0, 0.003, 30, 1), samples(after, 0.003, 30, 2))
    assert compared.change is change
    assert compared.low is not None and compared.high is not None
    assert compared.low <= compared.ratio <= compared.high
    assert compared.ratio == pytest.approx(100.0 / after, rel=0.005)


def test_the_medians_alone_do_not_decide() -> None:
    before, after = samples(100.0, 0.2, 20, 1), samples(97.0, 0.2, 20, 4)
    compared = compare_samples(before, after)
    assert compared.ratio > 1.02
    assert compared.change is Change.AMBG
    # A wide interval is no evidence of being the same either.
    assert compare_samples(before, before).change is Change.AMBG


def test_few_samples_say_nothing() -> None:
    compared = compare_samples([100.0] * 30, [50.0] * 5)
    assert (compared.ratio, compared.low, compared.change) == (2.0, None, Change.AMBG)
    with pytest.raises(ValueError, match="both sides"):
        compare_samples([], [1.0])


def test_the_order_of_samples_does_not_matter() -> None:
    before, after = samples(100.0, 0.01, 31, 1), samples(99.0, 0.01, 20, 2)
    assert compare_samples(before, after) == compare_samples(before[::-1], sorted(after))


def test_how_often_equal_things_are_called_different() -> None:
    """At most one time in twenty, of 400 pairs drawn from one distribution."""
    words = Counter(
        compare_samples(samples(100.0, 0.03, 30, 2 * i), samples(100.0, 0.03, 30, 2 * i + 1)).change
        for i in range(400)
    )
    assert 0 < words[Change.FAST] + words[Change.SLOW] <= 20


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    held = 0
    for i in range(400):
        pair = samples(100.0, 0.02, 25, 2 * i), samples(98.0, 0.02, 25, 2 * i + 1)
        compared = compare_samples(*pair)
        assert compared.low is not None and compared.high is not None
        held += compared.low <= 100.0 / 98.0 <= compared.high
    assert 0.92 <= held / 400 <= 0.985
