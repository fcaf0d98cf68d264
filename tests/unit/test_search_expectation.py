"""Expected times lead the search, as far as they turn out to be right."""

import math

import numpy as np
import pytest
from fake_search_space import GridSpace, failed, ok, tiles, tiles_time_us

from autogemm.model.config import Config, Value
from autogemm.search import Search
from autogemm.search.chains import ERROR_OF_ROOT, accurate_seeds, more_accurate
from autogemm.search.enumerated import CHAIN, EXPECTED_TIME, UnitFeatures
from autogemm.search.model import fitted_slope
from autogemm.search.samplers import NUM_EXPECTED

TILES = tiles()
TIMES_US = np.array([tiles_time_us(TILES.config(i)) for i in range(len(TILES))])


class Expecting:
    """The tiles, and log2 of an expected time for each."""

    def __init__(self, log2_times: np.ndarray) -> None:
        self._log2_times = log2_times
        self.parameters, self.codes, self.seeds = TILES.parameters, TILES.codes, TILES.seeds

    def __len__(self) -> int:
        return len(TILES)

    def config(self, index: int) -> Config:
        return TILES.config(index)

    def index(self, config: Config) -> int | None:
        return TILES.index(config)

    def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
        names, columns = TILES.features(rows)
        expected = self._log2_times if rows is None else self._log2_times[rows]
        return [*names, EXPECTED_TIME], np.column_stack([columns, expected])


def rough(sign: float) -> Expecting:
    """Right but for a third or so, or the other way round."""
    noise = np.random.default_rng(0).normal(0.0, 0.4, len(TILES))
    return Expecting(sign * (np.log2(TIMES_US) + noise))


def best_after(space: Expecting | GridSpace, seed: int, evaluations: int, batch: int = 1) -> float:
    """Best time as a multiple of the optimum."""
    search = Search(space, "surrogate", seed)
    for _ in range(evaluations // batch):
        for proposal in [search.ask() for _ in range(batch)]:
            assert proposal is not None
            search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))
    assert search.best is not None
    return search.best[1] / float(TIMES_US.min())


@pytest.mark.parametrize("batch", [1, 4])
def test_a_rough_expectation_saves_evaluations(batch: int) -> None:
    seeds = range(7)
    led = np.median([best_after(rough(1.0), seed, 16, batch) for seed in seeds])
    alone = np.median([best_after(TILES, seed, 16, batch) for seed in seeds])
    assert led < 1.0 + 0.6 * (alone - 1.0)


def test_a_wrong_expectation_is_overcome() -> None:
    assert np.median([best_after(rough(-1.0), seed, 48) for seed in range(3)]) < 1.05


def test_nothing_is_to_gain_where_the_best_is_found_and_expected() -> None:
    space = Expecting(np.log2(TIMES_US))
    search = Search(space, "surrogate", 0)
    gains = []
    for _ in range(24):
        proposal = search.ask()
        assert proposal is not None
        gains.append(search.expected_improvement)
        search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))
    assert search.best is not None
    assert search.best[1] == TIMES_US.min()
    assert gains[-1] is not None
    assert gains[-1] < 0.01


def test_the_first_configs_are_the_best_expected_of_more_and_more() -> None:
    space = rough(1.0)
    rank = np.argsort(np.argsort(space.features()[1][:, -1]))
    first = []
    for seed in range(20):
        search = Search(space, "surrogate", seed)
        asked = [search.ask() for _ in range(NUM_EXPECTED + 4)]
        first.append([rank[one.index] for one in asked if one is not None])
    share = np.median(first, axis=0) / len(TILES)
    assert share[0] > 0.005
    # Nothing is told meanwhile: what follows is expected to be fast, too.
    assert share[NUM_EXPECTED - 1 :].max() < 0.005


def test_seeds_and_what_is_expected_take_turns() -> None:
    space = rough(1.0)
    rank = np.argsort(np.argsort(space.features()[1][:, -1]))
    space.seeds = [int(one) for one in np.flatnonzero(rank > 0.9 * len(TILES))[:NUM_EXPECTED]]
    search = Search(space, "surrogate", 0)
    asked = [search.ask() for _ in range(2 * NUM_EXPECTED)]
    indices = [one.index for one in asked if one is not None]
    assert indices[::2] == space.seeds
    assert max(rank[indices[1::2]]) < 0.06 * len(TILES)


def test_seeds_come_first_where_nothing_is_expected() -> None:
    search = Search(TILES, "surrogate", 0)
    asked = [search.ask() for _ in TILES.seeds]
    assert [one.index for one in asked if one is not None] == list(TILES.seeds)


class Chained(Expecting):
    """Also says how many products are added up one after the other: more in a deeper tile."""

    def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
        names, columns = super().features(rows)
        depth = columns[:, names.index("BK")]
        return [*names, CHAIN], np.column_stack([columns, 2.0 * np.log2(np.exp2(depth) - 1.0)])


def changed(index: int, depth: Value) -> Config:
    config = TILES.config(index)
    return Config.of(config.family, config.as_dict() | {"BK": depth})


def test_what_is_fast_and_not_accurate_is_tried_with_shorter_chains() -> None:
    space = Chained(np.log2(TIMES_US))
    depths = next(one.values for one in TILES.parameters if one.name == "BK")
    index = next(
        one
        for one in range(len(TILES))
        if all(TILES.index(changed(one, depth)) is not None for depth in depths)
        and TILES.config(one)["BK"] == depths[-1]
    )
    # A chain grows with the square of BK: half of BK is a quarter of the chain, and of the square
    # of an error.
    for excess, found in ((1.01, depths[:-1]), (2.0, depths[:-1]), (2.01, depths[:-2])):
        configs = [TILES.config(one) for one in more_accurate(space, index, excess)]
        assert {one["BK"] for one in configs} == {*found}, excess
        times = [tiles_time_us(one) for one in configs]
        assert times == sorted(times), "the fastest first"
    hopeless = [TILES.config(one)["BK"] for one in more_accurate(space, index, 1e9)]
    assert hopeless == [depths[0]], "the shortest, where none is short enough"
    assert more_accurate(rough(1.0), index, 2.0) == [], "it does not say how long chains are"
    search = Search(space, "surrogate", 0)
    search.shorten_chains(TILES.config(index), 2.0)
    proposal = search.ask()
    assert proposal is not None
    assert proposal.index == more_accurate(space, index, 2.0)[0]


def test_seeds_that_will_miss_a_limit_are_tried_with_shorter_chains_first() -> None:
    space = Chained(np.log2(TIMES_US))
    space.seeds = list(range(0, len(TILES), len(TILES) // 5))
    names, columns = space.features(np.array(space.seeds))
    errors = ERROR_OF_ROOT * np.exp2(0.5 * columns[:, names.index(CHAIN)])
    assert len(set(errors)) > 1, "seeds of one depth would show nothing"
    assert accurate_seeds(space, 2.0 * errors.max()) == []
    assert accurate_seeds(space, errors.max()) == [], "what may just miss it is tried as it is"
    silent = rough(1.0)
    silent.seeds = space.seeds
    assert accurate_seeds(silent, 1e-9) == [], "it does not say how long chains are"
    limit = errors.min()
    found = accurate_seeds(space, limit)
    missed = [seed for seed, error in zip(space.seeds, errors, strict=True) if error > 1.2 * limit]
    expected = [
        more_accurate(space, seed, error / limit)[0]
        for seed, error in zip(space.seeds, errors, strict=True)
        if seed in missed
    ]
    assert missed
    assert found == [*dict.fromkeys(expected)]
    search = Search(space, "surrogate", 0)
    search.keep_error(limit)
    asked = [search.ask() for _ in range(len(found) + 1)]
    assert [one.index for one in asked if one is not None][:-1] == found
    assert asked[-1] is not None
    assert asked[-1].index not in found


def test_failures_alone_are_no_trouble() -> None:
    search = Search(rough(1.0), "surrogate", 0)
    for turn in range(30):
        proposal = search.ask()
        assert proposal is not None
        search.tell(
            proposal,
            failed(proposal.config) if turn < 24 else ok(proposal.config, 7.0 - 0.1 * turn),
        )
    assert search.best is not None


def test_an_expectation_is_no_direction_of_the_kernel() -> None:
    space = rough(1.0)
    features = UnitFeatures(space, 20_000)
    plain = UnitFeatures(TILES, 20_000)
    assert features.directions.shape == (len(plain) + 1, plain.directions.shape[1])
    assert not features.directions[-1].any()
    every = np.arange(len(TILES))
    expected = features(every) @ features.expectation
    difference = expected - math.log(2.0) * space.features()[1][:, -1]
    assert np.ptp(difference) < 1e-9
    assert not plain.expectation.any()


def test_the_slope_is_one_until_measured() -> None:
    expected = np.linspace(0.0, 2.0, 60)
    assert fitted_slope(expected[:0], expected[:0]) == 1.0
    assert fitted_slope(expected[:1], expected[:1]) == 1.0
    assert fitted_slope(np.ones(5), np.arange(5.0)) == 1.0
    assert fitted_slope(expected, 3.0 + 0.5 * expected) == pytest.approx(0.5, abs=0.03)
    assert 0.6 < fitted_slope(expected[:6], 0.5 * expected[:6]) < 0.7
    assert fitted_slope(expected, -expected) == 0.0
