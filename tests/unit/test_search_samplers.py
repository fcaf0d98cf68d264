"""Every sampler proposes legal configs, none of them twice, and seeds first."""

import importlib.util

import numpy as np
import pytest
from fake_search_space import GridSpace, failed, ok, tiles, tiles_time_us
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers import RandomSampler

from autogemm.model.config import Config
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status
from autogemm.search import SAMPLERS, Search, making, stock
from autogemm.search.history import History
from autogemm.support.errors import UsageError

NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="Optuna's Gaussian process needs torch"
)
EVERY_SAMPLER = [
    pytest.param(name, marks=NEEDS_TORCH) if name == "gp" else name for name in SAMPLERS
]
SMALL = GridSpace(
    {"A": (1, 2, 4, 8), "B": (1, 2, 4), "MODE": ("x", "y", "z"), "ONE": (3,)},
    lambda c: c["A"] != c["B"] or c["MODE"] == "z",
    seeds=[
        {"A": 4, "B": 2, "MODE": "y", "ONE": 3},
        {"A": 1, "B": 4, "MODE": "x", "ONE": 3},
    ],
)


def small_time_us(config: Config) -> float:
    return 10.0 + int(config["A"]) * int(config["B"]) + len(str(config["MODE"]))


@pytest.mark.parametrize("sampler", EVERY_SAMPLER)
@given(data=st.data())
@settings(max_examples=6)
def test_each_legal_config_is_proposed_once_whatever_is_told(
    sampler: str, data: st.DataObject
) -> None:
    search = Search(SMALL, sampler, data.draw(st.integers(0, 99)))
    pending, proposed = [], []
    while (proposal := search.ask()) is not None:
        assert SMALL.index(proposal.config) == proposal.index
        assert proposal.number == len(proposed)
        proposed.append(proposal.index)
        pending.append(proposal)
        while pending and data.draw(st.booleans()):
            done = pending.pop(data.draw(st.integers(0, len(pending) - 1)))
            works = data.draw(st.booleans())
            outcome = ok(done.config, small_time_us(done.config)) if works else failed(done.config)
            search.tell(done, outcome)
    assert sorted(proposed) == list(range(len(SMALL)))
    if sampler != "exhaustive":
        assert proposed[:2] == SMALL.seeds


@pytest.mark.parametrize("sampler", EVERY_SAMPLER)
def test_same_seed_same_sequence_and_another_seed_another(sampler: str) -> None:
    # A Gaussian process takes its time for each proposal after the first ten, which are random.
    num_proposals = 13 if sampler == "gp" else 25

    def sequence(seed: int) -> list[int]:
        search = Search(tiles(), sampler, seed)
        indices = []
        for _ in range(num_proposals):
            proposal = search.ask()
            assert proposal is not None
            indices.append(proposal.index)
            search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))
        return indices

    first = sequence(1)
    assert sequence(1) == first
    if sampler == "exhaustive":
        assert first == list(range(num_proposals))
    else:
        assert sequence(2) != first


@pytest.mark.parametrize("sampler", EVERY_SAMPLER)
def test_space_of_one_config(sampler: str) -> None:
    search = Search(GridSpace({"A": (1,), "B": ("x",)}), sampler, 0)
    proposal = search.ask()
    assert proposal is not None
    assert proposal.config == Config("grid", (("A", 1), ("B", "x")))
    assert search.ask() is None
    search.tell(proposal, ok(proposal.config, 5.0))
    assert search.best == (proposal.config, 5.0)
    assert search.ask() is None


def test_unknown_sampler_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'anealing'.*surrogate, random, tpe"):
        Search(SMALL, "anealing", 0)


@pytest.mark.parametrize(("sampler", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_missing_package_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, sampler: str, package: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=f"'{sampler}' needs the Python package '{package}'") as e:
        Search(SMALL, sampler, 0)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_stock_samplers_learn_through_the_encoding(sampler: str) -> None:
    space = tiles()
    found, chance = [], []
    for seed in range(3):
        for name, best in ((sampler, found), ("random", chance)):
            search = Search(space, name, seed)
            for _ in range(100):
                proposal = search.ask()
                assert proposal is not None
                search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))
            assert search.best is not None
            best.append(search.best[1])
    assert np.mean(found) < 0.97 * np.mean(chance)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_stock_samplers_find_the_way_in_a_space_too_large_to_compare(
    monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    monkeypatch.setattr(stock, "MAX_COMPARED", 100)
    search = Search(SMALL, sampler, 1)
    monkeypatch.setattr(stock, "MAX_COMPARED", 5)
    seen = set()
    while (proposal := search.ask()) is not None:
        seen.add(proposal.index)
        search.tell(proposal, ok(proposal.config, small_time_us(proposal.config)))
    assert len(seen) == len(SMALL)


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_stock_samplers_are_told_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    made = []

    class Watched(stock.StockSampler):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(making, "StockSampler", Watched)
    search = Search(SMALL, sampler, 0)
    expected = []
    for turn in range(12):
        proposal = search.ask()
        assert proposal is not None
        config, works = proposal.config, turn % 4 != 3
        outcome = ok(config, small_time_us(config)) if works else failed(config)
        ranks = {"A": (1, 2, 4, 8).index(int(config["A"])), "B": (1, 2, 4).index(int(config["B"]))}
        expected.append((ranks | {"MODE": config["MODE"]}, outcome.time_us))
        search.tell(proposal, outcome)
    assert search.ask() is not None
    trials = made[0]._study.get_trials(deepcopy=False)
    told = [(trial.params, trial.value) for trial in trials if trial.state.is_finished()]
    # Seeds are told when the sampler is first asked, all others in their order.
    assert told == expected


def test_the_nearest_legal_config_stands_in_for_a_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    space = GridSpace({"A": tuple(range(9)), "B": tuple(range(9))}, lambda c: c["A"] != 4)
    sampler = stock.StockSampler(space, 0, RandomSampler(0))
    for most in (1000, 1):
        monkeypatch.setattr(stock, "MAX_COMPARED", most)
        index = sampler._nearest({"A": 4, "B": 7}, np.random.default_rng(0))
        assert space.config(index)["A"] in (3, 5)
        assert space.config(index)["B"] == 7


def test_best_is_the_fastest_that_worked() -> None:
    search = Search(SMALL, "random", 0)
    assert search.best is None
    asked = [search.ask() for _ in range(4)]
    proposals = [proposal for proposal in asked if proposal is not None]
    search.tell(proposals[0], failed(proposals[0].config))
    assert search.best is None
    for proposal, time_us in zip(proposals[1:], (7.0, 5.0, 6.0), strict=True):
        search.tell(proposal, ok(proposal.config, time_us))
    assert search.best == (proposals[2].config, 5.0)
    assert search.num_told == 4


@pytest.mark.parametrize("time_us", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_counts_as_failed(time_us: float) -> None:
    search = Search(SMALL, "surrogate", 0)
    proposal = search.ask()
    assert proposal is not None
    measured = Measurement((time_us,), Provenance.MEASURED)
    search.tell(proposal, Outcome(proposal.config, Status.OK, measurement=measured))
    assert search.best is None
    assert search.num_told == 1


def test_random_is_uniform() -> None:
    space = GridSpace({"A": tuple(range(1, 21))})
    first = []
    for seed in range(200):
        proposal = Search(space, "random", seed).ask()
        assert proposal is not None
        first.append(proposal.index)
    # In 200 draws among 20, each is expected 10 times; 25 is five standard deviations away.
    assert np.bincount(first, minlength=20).max() < 25
    assert len(set(first)) >= 18


def test_a_study_has_the_params_of_what_is_tried_and_of_what_was() -> None:
    """Samplers of other packages are handed the study."""
    search = Search(tiles(), "random", 0)
    first, second = search.ask(), search.ask()
    assert first is not None and second is not None
    search.tell(first, ok(first.config, 3.0))
    done, running = search._study.trials
    for trial, proposal in ((done, first), (running, second)):
        values = proposal.config.as_dict()
        del values["ARCH"]
        assert trial.params == values
        assert trial.distributions.keys() == values.keys()
    assert done.value == 3.0
    anew = History(tiles())
    anew.update(search._study)
    assert anew.pending == {second.number: second.index}
    assert [told.index for told in anew.told] == [first.index]


def test_the_best_is_that_of_all_that_was_told() -> None:
    search = Search(tiles(), "random", 0)
    for time_us, best_us in ((3.0, 3.0), (2.0, 2.0), (4.0, 2.0), (1.0, 1.0)):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, ok(proposal.config, time_us))
        if time_us == best_us:
            fastest = proposal.config
        assert search.best == (fastest, best_us)
