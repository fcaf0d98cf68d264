"""The surrogate finds what random search does not, in batches and among failures too."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from fake_search_space import GridSpace, failed, ok, tiles, tiles_time_us
from waiting import PATIENCE_S, wait_until

from autogemm.model.config import Config
from autogemm.search import Search, surrogate
from autogemm.search.enumerated import UnitFeatures
from autogemm.search.gp import Kernel, Posterior, fit
from autogemm.search.model import log_expected_improvement, relative_improvement
from autogemm.search.surrogate import last_fit_size

Fails = Callable[[Config], bool]
TILES = tiles()
OPTIMUM_US = min(tiles_time_us(TILES.config(i)) for i in range(len(TILES)))


def too_many_registers(config: Config) -> bool:
    return int(config["TM"]) * int(config["TN"]) >= 128


def flaky(config: Config) -> bool:
    return int(config.sha256, 16) % 5 == 0


def best_after(
    sampler: str, seed: int, evaluations: int, batch: int = 1, fails: Fails = too_many_registers
) -> float:
    """Best time as a multiple of the optimum, which is among the configs that work."""
    search = Search(TILES, sampler, seed)
    for _ in range(evaluations // batch):
        for proposal in [search.ask() for _ in range(batch)]:
            assert proposal is not None
            config = proposal.config
            broken = fails(config) and tiles_time_us(config) > OPTIMUM_US
            search.tell(proposal, failed(config) if broken else ok(config, tiles_time_us(config)))
    assert search.best is not None
    return search.best[1] / OPTIMUM_US


@pytest.mark.parametrize("fails", [too_many_registers, flaky])
@pytest.mark.parametrize("batch", [1, 8])
def test_surrogate_is_far_better_than_random_among_failures(batch: int, fails: Fails) -> None:
    ours = [best_after("surrogate", seed, 40, batch, fails) for seed in range(3)]
    chance = [best_after("random", seed, 40, batch, fails) for seed in range(3)]
    assert np.median(ours) <= 1.03
    assert np.median(chance) >= 1.1


def test_all_failed_so_far_goes_on_exploring() -> None:
    search = Search(TILES, "surrogate", 0)
    seen = set()
    for _ in range(30):
        proposal = search.ask()
        assert proposal is not None
        seen.add(proposal.index)
        search.tell(proposal, failed(proposal.config))
    assert len(seen) == 30
    assert search.best is None


class Featureless(GridSpace):
    def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
        return ["constant"], np.ones((len(self) if rows is None else len(rows), 1))


def test_constant_features_fall_back_to_chance() -> None:
    search = Search(Featureless({"A": tuple(range(40))}), "surrogate", 0)
    seen = set()
    while (proposal := search.ask()) is not None:
        seen.add(proposal.index)
        search.tell(proposal, ok(proposal.config, 1.0 + proposal.index))
    assert len(seen) == 40


def test_a_space_larger_than_the_pool_is_searched_beyond_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surrogate, "MAX_POOL", 60)
    monkeypatch.setattr(surrogate, "MAX_OBSERVED", 30)
    # 60 of 2,122 configs are seldom the best ones: the neighbours of the best lead there.
    found = [best_after("surrogate", seed, 60) for seed in range(3)]
    assert np.median(found) <= 1.05


def test_a_large_pool_is_narrowed_and_the_next_proposal_is_that_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = Search(TILES, "surrogate", 0)
    history = search._history
    compared = set()
    for turn in range(45):
        if turn in {20, 27, 33, 34, 40, 41}:
            whole = surrogate.Surrogate(TILES, 0)
            index = whole.propose(history)
            monkeypatch.setattr(surrogate, "MAX_KEPT", 200)
            narrowed = surrogate.Surrogate(TILES, 0)
            assert narrowed.propose(history) == index
            assert narrowed.expected_improvement == pytest.approx(whole.expected_improvement)
            monkeypatch.undo()
            for one, most in ((whole, len(TILES)), (narrowed, 300)):
                assert one._model is not None
                assert len(one._model.pool) <= most
            compared.add(index)
        tried(search, 1)
    assert len(compared) > 3


@pytest.mark.parametrize("most", [20, 300])
def test_a_search_with_a_narrowed_pool_is_as_good(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surrogate, "MAX_KEPT", most)
    assert np.median([best_after("surrogate", seed, 40, 8) for seed in range(3)]) <= 1.03


def test_a_pool_that_going_uphill_makes_large_is_narrowed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surrogate, "MAX_POOL", 60)
    monkeypatch.setattr(surrogate, "MAX_KEPT", 40)
    space = GridSpace({name: tuple(range(1, 10)) for name in "ABCD"})
    search = Search(space, "surrogate", 0)
    own: Any = search._sampler
    sizes = []
    for _ in range(60):
        proposal = search.ask()
        assert proposal is not None
        time_us = 1.0 + sum((int(value) - 5) ** 2 for _, value in proposal.config)
        search.tell(proposal, ok(proposal.config, time_us))
        sizes.append(0 if own._surrogate._model is None else len(own._surrogate._model.pool))
    assert max(sizes) <= 80
    assert search.best is not None
    assert search.best[1] < 4.0


def test_a_narrowed_pool_is_not_the_end_of_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MAX_KEPT", 8)
    space = GridSpace({"A": tuple(range(10)), "B": tuple(range(6))})
    search = Search(space, "surrogate", 3)
    seen = []
    while (proposal := search.ask()) is not None:
        seen.append(proposal.index)
        search.tell(proposal, ok(proposal.config, 1.0 + int(proposal.config["A"])))
    assert sorted(seen) == list(range(60))


def test_of_a_sampled_pool_many_configs_go_uphill_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MAX_POOL", 60)

    class Counting(GridSpace):
        num_reads = 0

        def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
            self.num_reads += 1
            return super().features(rows)

    def num_reads(climbers: int) -> int:
        monkeypatch.setattr(surrogate, "CLIMBERS", climbers)
        space = Counting({name: tuple(range(1, 10)) for name in "ABCD"})
        search = Search(space, "surrogate", 0)
        for _ in range(40):
            proposal = search.ask()
            assert proposal is not None
            time_us = 1.0 + sum((int(value) - 5) ** 2 for _, value in proposal.config)
            search.tell(proposal, ok(proposal.config, time_us))
        # Behind the last fit.
        before = space.num_reads
        for _ in range(20):
            assert search.ask() is not None
        own: Any = search._sampler
        pool = own._surrogate._model.pool.tolist()
        assert len(pool) == len({*pool})
        return space.num_reads - before

    assert num_reads(32) < 0.5 * num_reads(1)


def test_features_of_a_large_space_are_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MAX_POOL", 60)
    read: set[int] = set()

    class Watched(GridSpace):
        def features(self, rows: np.ndarray | None = None) -> tuple[list[str], np.ndarray]:
            assert rows is not None
            read.update(rows.tolist())
            return super().features(rows)

    space = Watched({name: tuple(range(1, 10)) for name in "ABCD"})
    search = Search(space, "surrogate", 0)
    for _ in range(20):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, ok(proposal.config, 1.0 + int(proposal.config["A"])))
    # A few samples of 60 and the neighbourhoods of a few good configs, of 6,561 in all.
    assert len(read) < 0.7 * len(space)


def test_a_space_larger_than_the_pool_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MAX_POOL", 8)
    space = GridSpace({"A": tuple(range(10)), "B": tuple(range(5))})
    search = Search(space, "surrogate", 3)
    seen = []
    while (proposal := search.ask()) is not None:
        seen.append(proposal.index)
        search.tell(proposal, ok(proposal.config, 1.0 + int(proposal.config["A"])))
    assert sorted(seen) == list(range(50))


def test_equal_times_are_no_trouble() -> None:
    search = Search(TILES, "surrogate", 0)
    for _ in range(15):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, ok(proposal.config, 3.0))
    assert search.best is not None


def test_a_single_config_that_worked_is_no_trouble() -> None:
    search = Search(TILES, "surrogate", 0)
    for turn in range(14):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, failed(proposal.config) if turn else ok(proposal.config, 3.0))
    # Nothing is known of how much times differ: no reason to stop.
    assert search.expected_improvement is not None
    assert 0.01 < search.expected_improvement < 1.0


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = np.sin(1.5 * x[:, 0]) + 0.3 * x[:, 1] ** 2
    return x, (y - y.mean()) / y.std()


def test_fit_predicts_held_out_points_and_finds_the_idle_feature(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = data
    kernel = fit(x[:30], y[:30], np.eye(3))
    mean, spread = Posterior(kernel, x[:30], x[30:]).predict(y[:30])
    assert np.sqrt(np.mean((mean - y[30:]) ** 2)) < 0.4
    assert (np.abs(mean - y[30:]) < 4 * spread + 0.1).all()
    weight = np.linalg.norm(kernel.metric, axis=1)
    assert weight[0] > 1.5 * weight[2]


def test_a_ratio_of_parameters_is_found_where_no_feature_says_it() -> None:
    rng = np.random.default_rng(1)
    space = GridSpace(dict.fromkeys("ABCD", (1, 3, 7, 15, 31, 63)))
    features = UnitFeatures(space, 20_000)
    # Log2 of A / B, which no column is: log2(1 + v) are 1 to 6.
    depends = np.array(
        [np.log2((1 + c["A"]) / (1 + c["B"])) for c in map(space.config, range(1296))]
    )
    y = np.cos(depends)
    y = (y - y.mean()) / y.std()
    known, rest = np.split(rng.permutation(1296), [60])

    def error(directions: np.ndarray) -> float:
        kernel = fit(features(known), y[known], directions)
        mean = Posterior(kernel, features(known), features(rest)).mean(y[known])
        return float(np.sqrt(np.mean((mean - y[rest]) ** 2)))

    assert features.directions.shape == (4, 4 + 2 * 6)
    assert error(features.directions) < 0.5 * error(np.eye(4))


def test_appending_equals_starting_anew(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    kernel = Kernel(np.diag([1.0, 0.5, 1 / 3]), 1.3, 1e-3)
    grown = Posterior(kernel, x[:5], x)
    for start, end in ((5, 6), (6, 20), (20, 30)):
        grown.append(x[start:end])
    whole = Posterior(kernel, x[:30], x)
    for ours, theirs in zip(grown.predict(y[:30]), whole.predict(y[:30]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
    narrow = Posterior(kernel, x[:30], x[:7])
    narrow.widen(x[7:])
    for ours, theirs in zip(narrow.predict(y[:30]), whole.predict(y[:30]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_a_posterior_goes_on_with_the_candidates_that_it_keeps(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = data
    kernel = Kernel(np.diag([1.0, 0.5, 1 / 3]), 1.3, 1e-3)
    kept = np.array([3, 30, 7, 39])
    part = Posterior(kernel, x[:10], x)
    part.keep(kept)
    part.append(x[10:30])
    part.widen(x[31:35])
    whole = Posterior(kernel, x[:30], x[[*kept, 31, 32, 33, 34]])
    for ours, theirs in zip(part.predict(y[:30]), whole.predict(y[:30]), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_posterior_agrees_with_the_textbook_formula(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    kernel = Kernel(np.diag([1.0, 0.5, 1 / 3]), 1.3, 1e-3)
    mean, spread = Posterior(kernel, x[:20], x[20:]).predict(y[:20])
    inverse = np.linalg.inv(kernel(x[:20], x[:20]) + kernel.noise * np.eye(20))
    across = kernel(x[20:], x[:20])
    np.testing.assert_allclose(mean, across @ inverse @ y[:20], atol=1e-4)
    variance = kernel.variance - np.einsum("pn,nm,pm->p", across, inverse, across)
    np.testing.assert_allclose(spread**2, variance, atol=1e-4)


def test_believed_targets_do_not_move_the_mean(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = data
    kernel = Kernel(np.diag([1.0, 0.5, 1 / 3]), 1.3, 1e-3)
    targets = y[:20].copy()
    targets[[3, 11]] = np.nan
    known = ~np.isnan(targets)
    with_pending = Posterior(kernel, x[:20], x)
    without = Posterior(kernel, x[:20][known], x)
    mean, spread = with_pending.predict(with_pending.believe(targets))
    expected_mean, wider = without.predict(targets[known])
    np.testing.assert_allclose(mean, expected_mean, atol=1e-3)
    assert (spread <= wider + 1e-3).all()
    assert spread[3] < 0.2 * wider[3]


def test_log_expected_improvement_orders_where_the_plain_one_underflows() -> None:
    mean = np.array([-1e6, -50.0, -1.0, 0.0, 5.0, 50.0, 60.0])
    score = log_expected_improvement(mean, np.ones(7), 0.0)
    assert np.isfinite(score).all()
    assert (np.diff(score) < 0).all()
    # At u = 0 the expected improvement is the normal density at 0.
    assert score[3] == pytest.approx(np.log(1 / np.sqrt(2 * np.pi)))


def test_expected_improvement_is_a_share_of_the_best_time_and_falls() -> None:
    search = Search(TILES, "surrogate", 0)
    expected = []
    for _ in range(60):
        proposal = search.ask()
        assert proposal is not None
        expected.append(search.expected_improvement)
        search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))
    assert expected[:5] == [None] * 5
    known = [value for value in expected if value is not None]
    assert all(0.0 <= value < 1.0 for value in known)
    assert known[0] > 0.02
    assert np.median(known[-5:]) < 0.1 * known[0]


def test_samplers_without_a_model_expect_nothing() -> None:
    search = Search(TILES, "random", 0)
    assert search.ask() is not None
    assert search.expected_improvement is None


@pytest.mark.parametrize(("log_ratio", "spread"), [(0.0, 0.1), (-0.3, 0.05), (0.4, 0.3)])
def test_relative_improvement_agrees_with_sampling(log_ratio: float, spread: float) -> None:
    draws = np.random.default_rng(0).normal(log_ratio, spread, 400_000)
    sampled = np.maximum(0.0, 1.0 - np.exp(draws)).mean()
    assert relative_improvement(log_ratio, spread) == pytest.approx(sampled, rel=0.02, abs=1e-4)


def test_configs_differing_in_one_parameter_are_neighbours() -> None:
    from autogemm.search.enumerated import neighbours

    space = GridSpace(
        {"A": (1, 2, 3), "B": ("x", "y")}, lambda c: not (c["A"] == 3 and c["B"] == "y")
    )
    here = space.index(Config("grid", (("A", 1), ("B", "y"))))
    assert here is not None
    assert {space.config(i).label for i in neighbours(space, here)} == {"A=2 B=y", "A=1 B=x"}
    assert {space.config(i).label for i in neighbours(space, here, 2)} == {"A=2 B=x", "A=3 B=x"}


def test_where_nothing_is_in_doubt_the_improvement_is_what_is_predicted() -> None:
    assert relative_improvement(0.1, 0.0) == 0.0
    assert relative_improvement(math.log(0.9), 0.0) == pytest.approx(0.1)


def test_times_that_are_all_the_same_leave_nothing_to_expect() -> None:
    search = Search(TILES, "surrogate", 0)
    for _ in range(12):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, ok(proposal.config, 100.0))
    assert search.expected_improvement == pytest.approx(0.0, abs=1e-9)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Fits in threads of their own wait for it."""
    event = threading.Event()

    def late(*given: Any) -> Kernel:
        if threading.current_thread().name.startswith("fit"):
            assert event.wait(PATIENCE_S)
        return fit(*given)

    monkeypatch.setattr(surrogate, "fit", late)
    yield event
    event.set()


def tried(search: Search, count: int) -> None:
    for _ in range(count):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, ok(proposal.config, tiles_time_us(proposal.config)))


def test_proposals_do_not_wait_for_a_model_that_is_being_fitted(
    released: threading.Event,
) -> None:
    search = Search(TILES, "surrogate", 0, meanwhile=True)
    tried(search, 3 * surrogate.FEWEST_MEANWHILE)
    own: Any = search._sampler
    model = own._surrogate._model
    assert model.fit.size < surrogate.FEWEST_MEANWHILE
    # What was told since is in it all the same.
    assert len(model._rows) > 2 * surrogate.FEWEST_MEANWHILE

    released.set()
    wait_until(own._surrogate._fitting.done, "the model is fitted")
    tried(search, 1)
    assert own._surrogate._model.fit.size >= surrogate.FEWEST_MEANWHILE
    assert search.best is not None
    assert search.best[1] <= 1.03 * OPTIMUM_US


def test_a_replay_waits_for_its_models(released: threading.Event) -> None:
    """So that it depends on nothing but its seed."""
    search = Search(TILES, "surrogate", 0)
    tried(search, 2 * surrogate.FEWEST_MEANWHILE)
    own: Any = search._sampler
    last = last_fit_size(2 * surrogate.FEWEST_MEANWHILE - 1)
    assert own._surrogate._model.fit.size == last >= surrogate.FEWEST_MEANWHILE


def test_an_error_of_a_model_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> Kernel:
        if threading.current_thread().name.startswith("fit"):
            raise FloatingPointError("no such kernel")
        return fit(*given)

    monkeypatch.setattr(surrogate, "fit", broken)
    search = Search(TILES, "surrogate", 0, meanwhile=True)
    own: Any = search._sampler
    while own._surrogate._fitting is None:
        tried(search, 1)
    wait_until(own._surrogate._fitting.done, "the fit has failed")
    with pytest.raises(FloatingPointError, match="no such kernel"):
        tried(search, 1)


def test_blas_has_its_threads_back_once_all_have_left() -> None:
    blas = surrogate._OneBlasThread()

    def limits() -> set[int]:
        found = threadpoolctl.threadpool_info()
        return {one["num_threads"] for one in found if one["user_api"] == "blas"}

    before = limits()
    with blas.entered():
        with blas.entered():
            assert limits() == {1}
        # One of two has left.
        assert limits() == {1}
    assert limits() == before
