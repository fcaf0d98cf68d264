"""The numerics of the surrogate: densities, features, the observations that it keeps."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_search_space import GridSpace, ok
from optuna.distributions import CategoricalDistribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from autogemm.search import Search, enumerated, stock
from autogemm.search.enumerated import EXPECTED_TIME, UnitFeatures
from autogemm.search.gp import Kernel, _negative_log_likelihood, fit
from autogemm.search.history import History
from autogemm.search.surrogate import Surrogate, _informative, last_fit_size


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(12, 2)), rng.normal(size=12)


PARAMETERS = np.log([0.8, 2.5, 1.7, 0.01])


def matern(x: np.ndarray, lengths: np.ndarray, variance: float) -> np.ndarray:
    r = np.linalg.norm((x[:, None] - x[None]) / lengths, axis=2)
    return variance * (1 + math.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-math.sqrt(5) * r)


def test_the_likelihood_is_the_textbooks(data: tuple[np.ndarray, np.ndarray]) -> None:
    """Rasmussen & Williams, equation 2.30, without its constant; and 5.9 by differences."""
    x, y = data
    values = np.exp(PARAMETERS)
    covariance = matern(x, values[:2], values[2]) + values[3] * np.eye(12)
    expected = 0.5 * y @ np.linalg.solve(covariance, y) + 0.5 * np.linalg.slogdet(covariance)[1]
    found, _ = _negative_log_likelihood(PARAMETERS, x, y, np.eye(2))
    assert found == pytest.approx(expected, rel=1e-9)


def test_more_directions_than_features_are_features_of_their_own(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = data
    directions = np.array([[1.0, 0.0, 0.6, 0.7], [0.0, 1.0, 0.8, -0.7]])
    parameters = np.log([0.8, 2.5, 1.2, 3.0, 1.7, 0.01])
    along = _negative_log_likelihood(parameters, x @ directions, y, np.eye(4))
    found, gradient = _negative_log_likelihood(parameters, x, y, directions)
    assert found == pytest.approx(along[0], rel=1e-9)
    np.testing.assert_allclose(gradient, along[1], rtol=1e-6)
    for place in range(6):
        step = np.eye(6)[place] * 1e-5
        above, below = (
            _negative_log_likelihood(parameters + s, x, y, directions)[0] for s in (step, -step)
        )
        assert gradient[place] == pytest.approx((above - below) / 2e-5, rel=1e-4)


def test_the_kernel_is_matern(data: tuple[np.ndarray, np.ndarray]) -> None:
    x, _ = data
    kernel = Kernel(np.diag([1 / 0.8, 1 / 2.5]), 1.7, 0.01)
    assert np.allclose(kernel(x, x), matern(x, np.array([0.8, 2.5]), 1.7))


def test_without_data_the_kernel_is_that_of_the_priors() -> None:
    directions = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    kernel = fit(np.zeros((0, 2)), np.zeros(0), directions)
    length = math.exp(0.7) * math.sqrt(3)
    assert np.allclose(kernel.metric @ kernel.metric.T, directions @ directions.T / length**2)
    assert (kernel.variance, kernel.noise) == (pytest.approx(math.e), pytest.approx(1e-3))


def test_length_scales_are_fitted_anew_at_a_fifth_more_data() -> None:
    sizes = sorted({last_fit_size(n) for n in range(1, 100)})
    assert sizes == [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 48, 58, 70, 84]
    assert [last_fit_size(n) for n in (11, 12, 13)] == [10, 12, 12]


def test_of_many_observations_the_fastest_half_and_a_sample_are_kept() -> None:
    targets = np.random.default_rng(0).permutation(100).astype(float)
    rng = np.random.default_rng(1)
    kept = _informative(targets, 20, rng)
    assert list(kept) == sorted(set(kept.tolist()))
    assert len(kept) == 20
    times = np.sort(targets[kept])
    assert list(times[:10]) == list(range(10))
    # The rest is no second tenth, but of all that is left.
    assert times[10:].mean() > 35
    assert list(_informative(targets, 100, rng)) == list(range(100))


class Expecting(GridSpace):
    """Log2 of the expected time is a column: 2 A."""

    def features(self, rows: Any = None) -> tuple[list[str], np.ndarray]:
        names, columns = super().features(rows)
        expected = 2.0 * columns[:, [names.index("A")]]
        constant = np.full((len(columns), 1), 7.0)
        return [*names, EXPECTED_TIME, "constant"], np.hstack([columns, expected, constant])


@pytest.mark.parametrize("most_kept", [1000, 9])
def test_features_and_directions_have_spread_one(most_kept: int) -> None:
    """Also where the space is so large that only some rows are kept."""
    space = Expecting({"A": (1, 3, 7, 15), "B": (1, 3, 7), "C": (1, 31)})
    features = UnitFeatures(space, most_kept)
    assert len(features) == 4  # A, B, C and what is expected; none is constant
    sample = np.unique(np.linspace(0, len(space) - 1, most_kept, dtype=np.int64))
    columns = features(sample)
    assert np.allclose(columns.mean(axis=0), 0) and np.allclose(columns.std(axis=0), 1)
    assert np.allclose(features(range(24))[sample], columns)
    # Three columns, and a sum and a difference of each two; not the expectation.
    assert features.directions.shape == (4, 3 + 6)
    along = columns @ features.directions
    assert np.allclose(along.std(axis=0), 1)
    raw = space.features(sample)[1]
    pairs = [raw[:, 0] + raw[:, 1], raw[:, 0] - raw[:, 1], raw[:, 0] + raw[:, 2]]
    for place, pair in enumerate(pairs, 3):
        assert abs(np.corrcoef(along[:, place], pair)[0, 1]) == pytest.approx(1.0)
    # The natural log of the expected times, up to a constant: 2 A log 2.
    logs = columns @ features.expectation
    assert np.allclose(logs - logs.mean(), math.log(2) * 2 * (raw[:, 0] - raw[:, 0].mean()))


def test_few_features_of_a_large_space_are_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enumerated, "MOST_REMEMBERED", 30)
    space = Expecting({"A": (1, 3, 7, 15), "B": (1, 3, 7), "C": (1, 31)})
    whole, features = UnitFeatures(space, 1000), UnitFeatures(space, 9)
    # The columns' means and spreads come from other samples.
    scale = whole(range(24)).std(axis=0) / features(range(24)).std(axis=0)
    expected = features(range(24))
    assert np.allclose(expected - expected[0], (whole(range(24)) - whole([0])) / scale)
    asked: list[int] = []
    compute = space.features
    monkeypatch.setattr(space, "features", lambda rows: asked.extend(rows) or compute(rows))
    assert np.array_equal(features([5, 6, 5]), expected[[5, 6, 5]])
    assert np.array_equal(features([7, 6, 5]), expected[[7, 6, 5]])
    assert asked == [5, 6, 7]
    # Beyond the most that are remembered they are computed again, and are the same.
    monkeypatch.setattr(enumerated, "MOST_REMEMBERED", 10)
    for index in (*range(24), 5):
        assert np.array_equal(features([index]), expected[[index]])
    assert asked.count(5) == 2 and len(asked) < 2 * 24
    assert features([]).shape == (0, 4)


def test_the_most_promising_is_the_one_that_is_expected_to_be_fastest() -> None:
    space = Expecting({"A": (1, 3, 7, 15), "B": (1, 3, 7)})
    indices = [i for i in range(len(space)) if int(space.config(i)["A"]) > 1]
    chosen = Surrogate(space, 0).most_promising(indices)
    assert space.config(chosen)["A"] == 3
    plain = Surrogate(GridSpace({"A": (1, 3), "B": (1, 3)}), 0)
    assert plain.most_promising([2, 1]) == 2


GRID = GridSpace(
    {"A": (10, 20, 40, 80, 160), "B": (1, 2), "MODE": ("x", "y")},
    lambda c: not (c["A"] == 40 and c["MODE"] == "y"),
)


def chosen_for(proposal: dict[str, Any], seen: tuple[str, ...] = ()) -> set[str]:
    """The configs that may replace a stock sampler's proposal, over many draws."""
    found = set()
    for seed in range(12):
        sampler = stock.StockSampler(GRID, seed, RandomSampler(seed=seed))
        history = sampler.history
        for index in range(len(GRID)):
            history.seen[index] = GRID.config(index).label in seen
        rng = np.random.default_rng(seed)
        found.add(GRID.config(sampler._nearest(proposal, rng)).label)
    return found


@pytest.mark.parametrize("most_compared", [100_000, 3])
def test_the_nearest_unseen_config_stands_in_for_a_proposal(
    monkeypatch: pytest.MonkeyPatch, most_compared: int
) -> None:
    """By ranks, relative to the number of values: a step of A is a quarter, of B or MODE is 1."""
    monkeypatch.setattr(stock, "MAX_COMPARED", most_compared)
    # Ranks and texts as they are proposed.
    assert chosen_for({"A": 3, "B": 1, "MODE": "y"}) == {"A=80 B=2 MODE=y"}
    # Not legal: a step of A to either side is nearer than another MODE.
    beside = {"A=20 B=1 MODE=y", "A=80 B=1 MODE=y"}
    # From where the nearest of a sample has no nearer neighbour it goes no further.
    ends = {"A=40 B=1 MODE=x"} if most_compared < len(GRID) else set()
    assert beside <= chosen_for({"A": 2, "B": 0, "MODE": "y"}) <= beside | ends
    if not ends:
        others = chosen_for({"A": 2, "B": 0, "MODE": "y"}, ("A=20 B=1 MODE=y",))
        assert others == {"A=80 B=1 MODE=y"}


def test_a_stock_sampler_is_told_what_was_measured_in_place_of_its_proposal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    studies: list[Any] = []
    create = stock.optuna.create_study

    def spied(*args: Any, **kwargs: Any) -> Any:
        studies.append(create(*args, **kwargs))
        return studies[-1]

    monkeypatch.setattr(stock.optuna, "create_study", spied)
    search = Search(GRID, "tpe", 0)
    told = []
    for turn in range(6):
        proposal = search.ask()
        assert proposal is not None
        time_us = 100.0 + turn
        told.append((proposal.config, time_us))
        search.tell(proposal, ok(proposal.config, time_us))
    search.ask()
    (own,) = [one for one in studies if isinstance(one.sampler, TPESampler)]
    finished = [one for one in own.trials if one.state is TrialState.COMPLETE]
    assert [one.value for one in finished] == [time_us for _, time_us in told]
    for one, (config, _) in zip(finished, told, strict=True):
        values = [10, 20, 40, 80, 160]
        assert one.params == {
            "A": values.index(int(config["A"])),
            "B": [1, 2].index(int(config["B"])),
            "MODE": config["MODE"],
        }


def test_a_study_is_read_in_the_order_in_which_its_trials_ended() -> None:
    """Results steer the next proposals: a resumed search must get them as the first did."""
    space = GridSpace({"A": (1, 2, 3)})
    ended = [30, 10, 20]
    values = CategoricalDistribution((1, 2, 3))
    trials = [
        FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState.COMPLETE,
            value=float(second),
            datetime_start=datetime(2026, 1, 1, tzinfo=UTC),
            datetime_complete=datetime(2026, 1, 1, second=second, tzinfo=UTC),
            params={"A": number + 1},
            distributions={"A": values},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        for number, second in enumerate(ended)
    ]
    study: Any = SimpleNamespace(get_trials=lambda deepcopy: trials)
    history = History(space)
    history.update(study)
    assert [told.time_us for told in history.told] == [10.0, 20.0, 30.0]
    assert [space.config(told.index)["A"] for told in history.told] == [2, 3, 1]
    history.update(study)
    assert len(history.told) == 3
