"""The order of turns when several families are searched together."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autogemm.model.config import Config
from autogemm.model.results.outcome import (
    Measurement,
    Objective,
    Outcome,
    Provenance,
    Status,
    Verification,
)
from autogemm.search import Proposal
from autogemm.tuning.loop.joint import (
    HOPELESS_RATIO,
    OPENING,
    OPENING_OF_HOPELESS,
    VISIT_EVERY,
    JointSearch,
    opening_for,
)
from autogemm.tuning.task.accuracy import Accuracy


@dataclass
class Scripted:
    """A search whose configs get faster down to ``floor_us``, and that says what it expects."""

    name: str
    floor_us: float
    expected_improvement: float | None = 0.01
    size: int = 1000
    told: list[float | None] = field(default_factory=list)
    num_proposed: int = 0
    mended: list[tuple[Config, float]] = field(default_factory=list)

    @property
    def num_told(self) -> int:
        return len(self.told)

    @property
    def best(self) -> tuple[object, float] | None:
        known = [cost for cost in self.told if cost is not None]
        return (None, min(known)) if known else None

    def remember(self, outcome: Outcome, cost: float | None = None) -> None:
        assert outcome.config.family == self.name
        self.told.append(cost)

    def shorten_chains(self, config: Config, excess: float) -> None:
        self.mended.append((config, excess))

    def ask(self) -> Proposal | None:
        if self.num_proposed == self.size:
            return None
        number = self.num_proposed
        self.num_proposed += 1
        return Proposal(number, number, Config(self.name, (("TILE", number),)))

    def tell(self, proposal: Proposal, outcome: Outcome, cost: float | None = None) -> None:
        assert proposal.config.family == self.name
        assert proposal.number == proposal.index, "it is told by its own numbers"
        self.told.append(cost)


def ok(config: Config, time_us: float, energy_mj: float | None = None) -> Outcome:
    measurement = Measurement((time_us,), Provenance.MEASURED, energy_mj=energy_mj)
    return Outcome(config, Status.OK, measurement=measurement)


def joint_of(*searches: Scripted, **options: Any) -> JointSearch:
    return JointSearch({search.name: search for search in searches}, **options)


def play(joint: JointSearch, searches: Sequence[Scripted], turns: int) -> list[str]:
    """Ask and tell; whose turn each was."""
    floors = {search.name: search.floor_us for search in searches}
    names = []
    for _ in range(turns):
        proposal = joint.ask()
        if proposal is None:
            break
        config = proposal.config
        joint.tell(proposal, ok(config, floors[config.family] + 10 / (1 + int(config["TILE"]))))
        names.append(config.family)
    return names


def test_each_family_gets_its_opening_first() -> None:
    searches = [Scripted("good", 100), Scripted("bad", 140), Scripted("fair", 110)]
    names = play(joint_of(*searches), searches, 3 * OPENING)
    assert Counter(names) == {"good": OPENING, "bad": OPENING, "fair": OPENING}
    assert Counter(names[:6]) == {"good": 2, "bad": 2, "fair": 2}


def test_the_opening_of_a_family_that_is_far_behind_is_short() -> None:
    searches = [Scripted("good", 100), Scripted("bad", 300)]
    names = play(joint_of(*searches, opening=40), searches, 60)
    assert Counter(names) == {"good": 60 - OPENING_OF_HOPELESS, "bad": OPENING_OF_HOPELESS}


def test_a_short_opening_stays_so() -> None:
    searches = [Scripted("good", 100), Scripted("bad", 300)]
    names = play(joint_of(*searches, opening=3), searches, 30)
    assert Counter(names) == {"good": 27, "bad": 3}


def test_then_the_family_that_can_improve_on_the_best_gets_most() -> None:
    searches = [Scripted("good", 100), Scripted("far", 300), Scripted("near", 110)]
    names = play(joint_of(*searches), searches, 3 * OPENING + 160)[3 * OPENING :]
    count = Counter(names)
    assert count["good"] >= 0.8 * 160
    # Worth a visit now and then; what is hopelessly behind is not.
    assert 160 / VISIT_EVERY - 1 <= count["near"] <= 160 / VISIT_EVERY + 1
    assert count["far"] == 0
    assert HOPELESS_RATIO * 110 < 300


def test_what_a_family_still_expects_counts_against_its_distance() -> None:
    exhausted = Scripted("good", 100, expected_improvement=1e-5)
    promising = Scripted("near", 101, expected_improvement=0.05)
    names = play(joint_of(exhausted, promising), [exhausted, promising], 132)
    assert Counter(names[32:])["near"] >= 80


def test_a_family_of_which_nothing_works_gets_no_more_than_its_opening() -> None:
    good, broken = Scripted("good", 100), Scripted("broken", 100)
    joint = joint_of(good, broken)
    for _ in range(100):
        proposal = joint.ask()
        assert proposal is not None
        config = proposal.config
        failed = Outcome(config, Status.CRASHED, "it crashed")
        joint.tell(proposal, failed if config.family == "broken" else ok(config, 100.0))
    assert broken.num_proposed == OPENING


def test_a_family_that_is_used_up_leaves_its_turns_to_the_others() -> None:
    searches = [Scripted("small", 100, size=5), Scripted("large", 130, size=40)]
    names = play(joint_of(*searches), searches, 100)
    assert Counter(names) == {"small": 5, "large": 40}


def test_proposals_of_all_families_have_numbers_of_their_own() -> None:
    joint = joint_of(Scripted("a", 100), Scripted("b", 100))
    numbers = [proposal.number for _ in range(6) if (proposal := joint.ask()) is not None]
    assert len(set(numbers)) == 6


def test_each_search_hears_what_was_found_of_its_family_before() -> None:
    a, b = Scripted("a", 100), Scripted("b", 100)
    before = [ok(Config(name, (("TILE", 0),)), 100.0) for name in ("a", "b", "a")]
    joint_of(a, b, before=before)
    assert (a.num_told, b.num_told) == (2, 1)


def test_earlier_trials_count_towards_the_opening() -> None:
    resumed = Scripted("a", 100, told=[100.0] * OPENING, num_proposed=OPENING)
    fresh = Scripted("b", 100)
    assert set(play(joint_of(resumed, fresh), [resumed, fresh], OPENING)) == {"b"}


@pytest.mark.parametrize(
    ("trials", "families", "opening"),
    [(None, 3, OPENING), (300, 2, OPENING), (20, 2, 5), (1, 3, 1)],
)
def test_the_openings_take_half_of_few_trials(
    trials: int | None, families: int, opening: int
) -> None:
    assert opening_for(trials, families) == opening


def test_a_family_with_many_seeds_gets_to_try_them_first() -> None:
    assert opening_for(None, 2, num_seeds=25) == 25 + OPENING // 2
    assert opening_for(40, 2, num_seeds=25) == 10


def test_expected_improvement_is_that_over_the_best_of_all() -> None:
    good, near = Scripted("good", 100, 0.001), Scripted("near", 104, 0.02)
    joint = joint_of(good, near)
    assert joint.expected_improvement is None, "no family has had its opening"
    play(joint, [good, near], 2 * OPENING)
    gap = math.log((104 + 10 / OPENING) / (100 + 10 / OPENING))
    assert joint.expected_improvement == pytest.approx(max(0.001, 0.02 * math.exp(-gap / 0.02)))
    near.expected_improvement = None
    assert joint.expected_improvement is None, "one in the running has no model"


def test_a_first_time_may_be_told_while_another_thread_looks() -> None:
    class ToldMeanwhile(Scripted):
        looks = 0

        @property
        def best(self) -> tuple[object, float] | None:
            self.looks += 1
            return (None, 100.0) if self.looks > 1 else None

    joint = joint_of(ToldMeanwhile("first", 100))
    assert joint.expected_improvement is None, "nothing had worked when it looked"
    assert joint.expected_improvement is not None


def test_searches_are_told_the_objective() -> None:
    search = Scripted("a", 100)
    joint = joint_of(search, objective=Objective.EDP)
    for energy_mj, time_us in ((300.0, 10.0), (None, 20.0)):
        proposal = joint.ask()
        assert proposal is not None
        joint.tell(proposal, ok(proposal.config, time_us, energy_mj))
    # The second's energy was not measured: at the same 30 mJ/us it would take 600 mJ.
    assert search.told == [3000.0, 12000.0]


def test_energy_of_earlier_calls_serves_for_those_not_measured() -> None:
    search = Scripted("a", 100)
    earlier = [ok(Config("a", (("TILE", 0),)), 10.0, 50.0)]
    joint = joint_of(search, objective=Objective.ENERGY, before=earlier)
    proposal = joint.ask()
    assert proposal is not None
    joint.tell(proposal, ok(proposal.config, 20.0))
    assert search.told == [50.0, 100.0]


def test_what_would_be_fastest_is_tried_with_shorter_sums() -> None:
    search = Scripted("one", 5.0)
    joint = joint_of(search, accuracy=Accuracy(2e-7))
    # The second, as its search is told, takes 9.9: the best that is accurate still takes 10.
    ends = [(10.0, 1e-7), (9.0, 2.2e-7), (11.0, 4e-7), (9.95, 3e-7), (8.0, 2e-7), (8.5, 3e-7)]
    for time_us, error in ends:
        proposal = joint.ask()
        assert proposal is not None
        outcome = ok(proposal.config, time_us)
        outcome = replace(outcome, verification=Verification(None, 0.1, error))
        joint.tell(proposal, Accuracy(2e-7).judged(outcome))
    # Each but one that is slower than the best that is accurate, as that was then.
    assert [(config["TILE"], excess) for config, excess in search.mended] == [
        (1, pytest.approx(1.1)),
        (3, pytest.approx(1.5)),
    ]
