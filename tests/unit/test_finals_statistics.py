"""The statistics of finals on synthetic rounds with a common drift."""

import numpy as np
import pytest

from autogemm.targets.finals import Contestant, decide

ROUNDS = 30


def contestant(name: str, time_us: float, seed: int, *, noise: float = 0.003) -> Contestant:
    """Times with 6 % drift that all contestants share, and noise of their own."""
    drift = 1 + 0.06 * np.linspace(0, 1, ROUNDS)
    own = 1 + noise * np.random.default_rng(seed).standard_normal(ROUNDS)
    return Contestant(name, None, name, tuple(time_us * drift * own))


def test_a_one_per_cent_difference_is_found_under_six_per_cent_drift() -> None:
    entries, _ = decide(
        contestant("cuBLAS", 100.0, 1),
        [contestant("slower", 101.0, 2), contestant("faster", 100.0, 3)],
        seed=0,
    )
    assert [entry.name for entry in entries] == ["faster", "slower"]
    assert not entries[1].tied
    assert entries[1].ratio == pytest.approx(100 / 101, abs=0.003)
    assert entries[1].ratio_high < 1


def test_equal_contestants_are_tied_and_their_interval_holds_one() -> None:
    entries, baseline = decide(
        contestant("cuBLAS", 100.0, 1),
        [contestant("one", 100.0, 2), contestant("two", 100.0, 3)],
        seed=0,
    )
    assert entries[1].tied
    assert not entries[0].tied
    assert baseline.tied
    assert all(entry.ratio_low <= 1 <= entry.ratio_high for entry in entries)


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    covered = 0
    for trial in range(200):
        entries, _ = decide(
            contestant("cuBLAS", 103.0, 2 * trial), [contestant("x", 100.0, 2 * trial + 1)], seed=0
        )
        covered += entries[0].ratio_low <= 1.03 <= entries[0].ratio_high
    assert 180 <= covered <= 200


def test_a_ratio_above_one_is_faster_than_the_baseline() -> None:
    entries, baseline = decide(contestant("cuBLAS", 200.0, 1), [contestant("x", 100.0, 2)], seed=0)
    assert entries[0].ratio == pytest.approx(2.0, rel=0.01)
    assert (baseline.ratio, baseline.ratio_low, baseline.ratio_high) == (1.0, 1.0, 1.0)
    assert not baseline.tied


def test_one_wild_round_moves_nothing() -> None:
    calm = contestant("x", 100.0, 2)
    wild = Contestant("x", None, "x", (*calm.samples_us[:-1], 9000.0))
    baseline = contestant("cuBLAS", 100.0, 1)
    ratio_calm, ratio_wild = (decide(baseline, [one], 0)[0][0].ratio for one in (calm, wild))
    assert ratio_wild == pytest.approx(ratio_calm, abs=0.002)


def test_the_same_seed_gives_the_same_interval() -> None:
    baseline, one = contestant("cuBLAS", 100.0, 1), contestant("x", 100.0, 2)
    assert decide(baseline, [one], 7) == decide(baseline, [one], 7)


def test_few_rounds_give_the_extremes() -> None:
    baseline = Contestant("cuBLAS", None, "", (100.0, 110.0, 120.0))
    entries, _ = decide(baseline, [Contestant("x", None, "x", (100.0, 100.0, 100.0))], seed=0)
    assert (entries[0].ratio_low, entries[0].ratio, entries[0].ratio_high) == (1.0, 1.1, 1.2)


@pytest.mark.parametrize(
    ("baseline", "others"),
    [((1.0,), []), ((), [()]), ((1.0, 2.0), [(1.0,)])],
)
def test_unpaired_or_missing_rounds_are_refused(
    baseline: tuple[float, ...], others: list[tuple[float, ...]]
) -> None:
    contestants = [Contestant("x", None, "x", samples) for samples in others]
    with pytest.raises(ValueError, match="finals"):
        decide(Contestant("cuBLAS", None, "", baseline), contestants, seed=0)
