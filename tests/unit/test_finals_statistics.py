"""The statistics of finals on synthetic rounds with a common drift."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from autogemm.cli.tune.report import ties_line
from autogemm.model.results.finals import FinalsSamples, decide, fastest_call, paired_ratio
from autogemm.model.results.outcome import (
    AgainstBaseline,
    Finals,
    Objective,
    Provenance,
    against_baseline,
    confidence_of,
)

ROUNDS = 30


def contestant(name: str, time_us: float, seed: int, *, noise: float = 0.003) -> FinalsSamples:
    """Times with 6 % drift that all contestants share, and noise of their own."""
    drift = 1 + 0.06 * np.linspace(0, 1, ROUNDS)
    own = 1 + noise * np.random.default_rng(seed).standard_normal(ROUNDS)
    return FinalsSamples(name, None, name, tuple(time_us * drift * own))


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
    wild = FinalsSamples("x", None, "x", (*calm.samples_us[:-1], 9000.0))
    baseline = contestant("cuBLAS", 100.0, 1)
    ratio_calm, ratio_wild = (decide(baseline, [one], 0)[0][0].ratio for one in (calm, wild))
    assert ratio_wild == pytest.approx(ratio_calm, abs=0.002)


def test_the_interval_is_the_bootstrap_of_its_seed() -> None:
    """Computed without the code under test: nothing kept from a first call helps."""
    baseline, one = contestant("cuBLAS", 100.0, 1), contestant("x", 100.0, 2)
    ratios = np.array(baseline.samples_us) / np.array(one.samples_us)
    intervals = []
    for seed in (7, 8):
        rows = np.random.default_rng(seed).integers(0, ROUNDS, size=(2000, ROUNDS))
        low, high = np.quantile(np.median(ratios[rows], axis=1), (0.025, 0.975))
        found = decide(baseline, [one], seed)[0][0]
        assert (found.ratio, found.ratio_low, found.ratio_high) == (np.median(ratios), low, high)
        intervals.append((low, high))
    assert intervals[0] != intervals[1]


def test_the_interval_is_as_wide_as_order_statistics_say() -> None:
    """The sign test, by scipy, holds the same median with the same confidence."""
    times, ones = np.random.default_rng(3).lognormal(0.0, 0.01, 400), np.ones(400)
    found = paired_ratio(times, ones, seed=0)
    rank = int(binom.ppf(0.025, 400, 0.5))
    low, high = np.sort(times)[[rank - 1, 400 - rank]]
    assert found.high - found.low == pytest.approx(high - low, rel=0.15)


def test_the_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    over, under = (1.0, 4.0, 10.0), (1.0, 2.0, 1.0)
    assert paired_ratio(over, under, seed=0).ratio == 2.0
    assert np.median(over) / np.median(under) == 4.0
    entries, _ = decide(
        FinalsSamples("cuBLAS", None, "", over), [FinalsSamples("x", None, "x", under)], seed=0
    )
    assert entries[0].ratio == 2.0


@pytest.mark.parametrize(
    ("over", "under", "expected"),
    [
        ((3.0,) * 8, (2.0,) * 8, AgainstBaseline.FASTER),
        ((2.0,) * 8, (3.0,) * 8, AgainstBaseline.SLOWER),
        # Shown by the interval of paired ratios (1.01 in every round), not by the medians.
        (
            (1.01, 5.05, 1.01, 5.05, 1.01, 5.05, 1.01),
            (1.0, 5.0) * 3 + (1.01,),
            AgainstBaseline.TIED,
        ),
        # The medians say 2, every other round says 1/2.
        ((2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0), (1.0, 2.0) * 3 + (1.0,), AgainstBaseline.TIED),
        ((1.0,) * 8, (1.0,) * 8, AgainstBaseline.TIED),
    ],
)
def test_faster_needs_the_interval_and_the_ratio_of_medians(
    over: tuple[float, ...], under: tuple[float, ...], expected: AgainstBaseline
) -> None:
    entries, baseline = decide(
        FinalsSamples("cuBLAS", None, "", over), [FinalsSamples("x", None, "x", under)], seed=0
    )
    finals = Finals(entries, baseline, len(over), Provenance.MEASURED)
    assert finals.against_baseline is expected
    assert finals.ratio_of_medians(finals.winner) == np.median(over) / np.median(under)
    assert baseline.tied is (expected is AgainstBaseline.TIED)


@pytest.mark.parametrize(
    ("ratio", "interval", "ratio_of_medians", "expected"),
    [
        (1.02, (1.01, 1.03), 1.02, AgainstBaseline.FASTER),
        (1.02, (1.0, 1.03), 1.02, AgainstBaseline.TIED),
        (1.02, (1.01, 1.03), 1.0, AgainstBaseline.TIED),
        (1.02, (1.01, 1.03), 0.994, AgainstBaseline.TIED),
        (0.98, (0.97, 0.99), 1.001, AgainstBaseline.TIED),
        (0.98, (0.97, 0.99), 0.98, AgainstBaseline.SLOWER),
        (1.02, None, 1.02, AgainstBaseline.FASTER),
        (1.0, None, 1.0, AgainstBaseline.TIED),
    ],
)
def test_at_or_below_one_by_either_estimator_is_a_tie(
    ratio: float,
    interval: tuple[float, float] | None,
    ratio_of_medians: float,
    expected: AgainstBaseline,
) -> None:
    assert against_baseline(ratio, interval, ratio_of_medians) is expected


def test_the_fastest_call_makes_no_kernel_look_faster() -> None:
    """Chosen in the same rounds, it is favoured: against any other call the ratio is no smaller."""
    calls = [contestant(f"call {i}", 100.0, 10 + i) for i in range(8)]
    baseline = fastest_call(calls)
    medians = [float(np.median(one.samples_us)) for one in calls]
    assert float(np.median(baseline.samples_us)) == min(medians) < max(medians)


def test_few_rounds_give_the_extremes() -> None:
    baseline = FinalsSamples("cuBLAS", None, "", (100.0, 110.0, 120.0))
    entries, _ = decide(baseline, [FinalsSamples("x", None, "x", (100.0, 100.0, 100.0))], seed=0)
    assert (entries[0].ratio_low, entries[0].ratio, entries[0].ratio_high) == (1.0, 1.1, 1.2)


@pytest.mark.parametrize("rounds", range(1, 6))
def test_the_extremes_of_few_rounds_hold_the_true_ratio_as_often_as_is_said(rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    covered = 0
    for _ in range(1000):
        times = 1.03 * generator.lognormal(0.0, 0.01, rounds)  # its median is 1.03
        found = paired_ratio(times, np.ones(rounds), seed=0)
        covered += found.low <= 1.03 <= found.high
    assert covered / 1000 == pytest.approx(confidence_of(rounds), abs=0.04)
    assert confidence_of(rounds) < confidence_of(6) == 0.95


@pytest.mark.parametrize(
    ("baseline", "others"),
    [((1.0,), []), ((), [()]), ((1.0, 2.0), [(1.0,)])],
)
def test_unpaired_or_missing_rounds_are_refused(
    baseline: tuple[float, ...], others: list[tuple[float, ...]]
) -> None:
    contestants = [FinalsSamples("x", None, "x", samples) for samples in others]
    with pytest.raises(ValueError, match="finals"):
        decide(FinalsSamples("cuBLAS", None, "", baseline), contestants, seed=0)


def noisy(
    name: str, time_us: float, seed: int, noise: float, registers: int = 128
) -> FinalsSamples:
    return replace(contestant(name, time_us, seed, noise=noise), registers=registers)


def test_among_equals_the_smaller_spread_wins_and_all_ties_are_listed() -> None:
    baseline = contestant("cuBLAS", 103.0, 1, noise=0.001)
    # "wild" may well lead by its median, but nobody can tell.
    wild, calm = noisy("wild", 99.95, 2, 0.02), noisy("calm", 100.0, 3, 0.001)
    slower = noisy("slower", 102.0, 4, 0.001)
    entries, baseline_entry = decide(baseline, [slower, wild, calm], seed=0)
    assert [entry.name for entry in entries] == ["calm", "wild", "slower"]
    assert [entry.tied for entry in entries] == [False, True, False]
    assert not baseline_entry.tied
    finals = Finals(entries, baseline_entry, ROUNDS, Provenance.MEASURED)
    spreads = [finals.spread_of(entry) for entry in entries]
    # Both have 0.1 % noise, whatever the drift: half of them lie within 1.35 x 1.4 of it.
    assert spreads[0] == pytest.approx(0.0019, rel=0.5)
    assert spreads[1] == pytest.approx(0.027, rel=0.5)
    assert finals.spread_of(baseline_entry) is None
    assert [entry.name for entry in finals.ties] == ["wild"]


def test_among_equals_one_that_the_baseline_does_not_beat_wins() -> None:
    # Each is ahead of the other in half of the rounds; the baseline is ahead of "calm" in all.
    calm = FinalsSamples("calm", None, "calm", (100.5,) * ROUNDS, registers=32)
    noisy = FinalsSamples("noisy", None, "noisy", (99.0, 102.0) * (ROUNDS // 2), registers=200)
    baseline = FinalsSamples("cuBLAS", None, "", (100.0,) * ROUNDS)
    entries, _ = decide(baseline, [calm, noisy], seed=0)
    assert [entry.name for entry in entries] == ["noisy", "calm"]
    assert entries[1].tied
    # Where the baseline beats both, the spread decides.
    slower = FinalsSamples("noisy", None, "noisy", (100.2, 100.9) * (ROUNDS // 2), registers=200)
    entries, _ = decide(baseline, [calm, slower], seed=0)
    assert [entry.name for entry in entries] == ["calm", "noisy"]


def test_among_equals_of_one_spread_fewer_registers_win() -> None:
    baseline = contestant("cuBLAS", 103.0, 1)
    same = contestant("", 100.0, 2).samples_us
    contestants = [
        FinalsSamples(f"{registers}", None, f"{registers}", same, registers=registers)
        for registers in (200, 96, 128)
    ]
    unknown = FinalsSamples("unknown", None, "unknown", same)
    entries, _ = decide(baseline, [unknown, *contestants], seed=0)
    assert entries[0].name == "96"
    assert entries[0].registers == 96
    assert all(entry.tied for entry in entries[1:])


def test_the_winner_is_never_one_that_another_is_shown_to_beat() -> None:
    # The leader is noisy; "calm" is tied with it, but "fast" beats "calm" in every round.
    baseline = FinalsSamples("cuBLAS", None, "", (110.0,) * ROUNDS)
    leader = noisy("leader", 98.0, 5, 0.08)
    calm = FinalsSamples("calm", None, "calm", (100.0,) * ROUNDS, registers=32)
    fast = FinalsSamples("fast", None, "fast", (99.0,) * ROUNDS, registers=200)
    entries, _ = decide(baseline, [leader, calm, fast], seed=0)
    assert entries[0].name == "fast"
    assert {entry.name: entry.tied for entry in entries}["calm"] is False


def test_a_clear_lead_is_not_given_away_for_registers() -> None:
    entries, _ = decide(
        contestant("cuBLAS", 103.0, 1),
        [noisy("lean", 101.0, 2, 0.001, 32), noisy("fast", 100.0, 3, 0.004, 255)],
        seed=0,
    )
    assert [entry.name for entry in entries] == ["fast", "lean"]
    assert not entries[1].tied


def with_energy(name: str, time_us: float, energy_mj: float, seed: int) -> FinalsSamples:
    noise = 1 + 0.002 * np.random.default_rng(100 + seed).standard_normal(5)
    return replace(contestant(name, time_us, seed), samples_mj=tuple(energy_mj * noise))


@pytest.mark.parametrize(
    ("objective", "order"),
    [
        (Objective.TIME, ["fast", "middle", "frugal"]),
        (Objective.ENERGY, ["frugal", "middle", "fast"]),
        (Objective.EDP, ["middle", "fast", "frugal"]),
    ],
)
def test_finals_are_ranked_by_the_objective(objective: Objective, order: list[str]) -> None:
    contestants = [
        with_energy("fast", 100.0, 60.0, 1),
        with_energy("middle", 110.0, 50.0, 2),
        with_energy("frugal", 140.0, 45.0, 3),
    ]
    baseline = with_energy("cuBLAS", 105.0, 70.0, 4)
    entries, baseline_entry = decide(baseline, contestants, 0, objective)
    assert [entry.name for entry in entries] == order
    # The ratio stays one of times: it compares across runs and objectives.
    by_name = {entry.name: entry for entry in entries}
    assert by_name["frugal"].ratio == pytest.approx(105 / 140, rel=0.01)
    assert by_name["frugal"].energy_mj == pytest.approx(45.0, rel=0.01)
    assert baseline_entry.energy_mj == pytest.approx(70.0, rel=0.01)
    assert not any(entry.tied for entry in (*entries, baseline_entry))


def test_an_objective_without_its_figures_is_refused() -> None:
    baseline, one = contestant("cuBLAS", 100.0, 1), contestant("x", 100.0, 2)
    with pytest.raises(ValueError, match="at least one contestant and one round"):
        decide(baseline, [one], 0, Objective.ENERGY)
    with pytest.raises(ValueError, match="every round"):
        decide(with_energy("cuBLAS", 100.0, 1.0, 1), [one], 0, Objective.ENERGY)


@pytest.mark.parametrize(("energies", "rounds"), [((3, 0), ROUNDS), ((5, 5), 5)])
def test_a_tie_names_the_rounds_that_compared_kernels(
    energies: tuple[int, int], rounds: int
) -> None:
    entries, baseline = decide(
        contestant("cuBLAS", 100.0, 1),
        [contestant("one", 100.0, 2), contestant("two", 100.0, 3)],
        seed=0,
    )
    measured = tuple(
        replace(entry, samples_mj=(1.0,) * count)
        for entry, count in zip(entries, energies, strict=True)
    )
    finals = Finals(measured, baseline, ROUNDS, Provenance.MEASURED)
    assert f"no significant difference in {rounds} rounds" in ties_line(finals, is_recorded=False)
