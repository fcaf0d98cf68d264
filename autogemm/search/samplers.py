"""Optuna samplers that propose each legal config at most once."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autogemm.search.enumerated import EnumeratedSpace
from autogemm.search.history import History
from autogemm.support.errors import UsageError

# Configs that the surrogate asks for, seeds included, before its model has a say.
NUM_INITIAL = 10
# In turns with the seeds, where the space expects times: configs that are each the best expected of
# some, of twice as many from one to the next.
NUM_EXPECTED = 6
FEWEST_COMPARED = 64


class EnumeratedSampler(BaseSampler):
    """Relative sampling over the legal configs of a space, seeds first.

    The state is the study: a sampler made anew goes on where another one stopped. Parameters with
    one value are left out of the study.
    """

    def __init__(self, space: EnumeratedSpace, seed: int) -> None:
        self.space = space
        self.seed = seed
        self.history = History(space)
        # Configs that are asked for before all others.
        self._wanted: list[int] = []
        self.distributions: dict[str, BaseDistribution] = {
            parameter.name: CategoricalDistribution(parameter.values)
            for parameter in space.parameters
            if len(parameter.values) > 1
        }

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """One categorical distribution a parameter, the same for all trials."""
        return self.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The params of an unseen config. Raises UsageError when there is none left."""
        self.history.update(study, now_sampled=trial.number)
        if self.history.num_unseen == 0:
            raise UsageError(f"all {len(self.space)} configs of the space have been proposed")
        rng = np.random.default_rng([self.seed, trial.number])
        index = self.next_seed()
        if index is None:
            index = self.pick(study, trial, rng)
        self.history.propose(trial.number, index)
        values = self.space.config(index).as_dict()
        return {name: values[name] for name in self.distributions}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> NoReturn:
        """Raises UsageError: a parameter alone cannot be chosen legally."""
        raise UsageError(
            f"{param_name!r} is not a parameter of this space; ask for the sampler's "
            "`distributions`"
        )

    def want(self, indices: Sequence[int]) -> None:
        """Propose these next, as far as they have not been."""
        self._wanted += indices

    def next_seed(self) -> int | None:
        """The first wanted config, or else seed, not yet proposed; None when all are."""
        first = (*self._wanted, *self.space.seeds)
        return next((one for one in first if not self.history.seen[one]), None)

    @property
    def expected_improvement(self) -> float | None:
        """The promised share of the best time of the last proposal; None without a model."""
        return None

    def learn_meanwhile(self) -> None:
        """Propose without waiting for a model of the latest results, where that takes long."""
        return

    @abstractmethod
    def pick(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> int:
        """Index of an unseen config, of which there is at least one."""

    def pick_any(self, rng: np.random.Generator) -> int:
        """An unseen config, each with the same probability."""
        # Nearly always a hit, and far cheaper than listing the unseen of ten million.
        for index in rng.integers(len(self.space), size=64):
            if not self.history.seen[index]:
                return int(index)
        return int(rng.choice(np.flatnonzero(~self.history.seen)))


class UniformSampler(EnumeratedSampler):
    """Random search: every unseen config with the same probability."""

    def pick(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> int:
        """See EnumeratedSampler."""
        return self.pick_any(rng)


class ExhaustiveSampler(EnumeratedSampler):
    """All configs in the order of their indices, for recordings. Seeds have no privilege."""

    def next_seed(self) -> None:
        """None."""

    def pick(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> int:
        """See EnumeratedSampler."""
        return int(np.argmin(self.history.seen))


class SurrogateSampler(EnumeratedSampler):
    """Expected improvement by a Gaussian process, after a few configs that are drawn at random.

    Where the space says which times it expects, seeds get every other turn alone: the first of the
    others are the best expected of some, and the model has the rest.
    """

    def __init__(self, space: EnumeratedSpace, seed: int) -> None:
        super().__init__(space, seed)
        # It needs SciPy, which takes a quarter of the time that the tuner takes to import. Nothing
        # else needs it: not the other samplers, and not what only reads results.
        from autogemm.search.surrogate import Surrogate

        self._surrogate = Surrogate(space, seed)

    @property
    def expected_improvement(self) -> float | None:
        """See EnumeratedSampler."""
        return self._surrogate.expected_improvement

    def learn_meanwhile(self) -> None:
        """See EnumeratedSampler."""
        self._surrogate.fits_meanwhile = True

    def next_seed(self) -> int | None:
        """See EnumeratedSampler; None also where it is the turn of what is expected."""
        seed = super().next_seed()
        is_turn = self._num_asked % 2 == 0 or not self._surrogate.expects
        return seed if is_turn or seed in self._wanted else None

    def pick(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> int:
        """See EnumeratedSampler."""
        if self._surrogate.is_blind:
            return self.pick_any(rng)
        num_seeds = int(np.count_nonzero(self.history.seen[self.space.seeds]))
        num_picked = self._num_asked - num_seeds
        knows_none = self.history.best is None
        if self._surrogate.expects and (num_picked < NUM_EXPECTED or knows_none):
            return self._best_expected(FEWEST_COMPARED << min(num_picked, NUM_EXPECTED - 1), rng)
        if self._num_asked < NUM_INITIAL or knows_none:
            return self.pick_any(rng)
        return self._surrogate.propose(self.history)

    @property
    def _num_asked(self) -> int:
        return len(self.history.told) + len(self.history.pending)

    def _best_expected(self, number: int, rng: np.random.Generator) -> int:
        drawn = rng.integers(len(self.space), size=number)
        unseen = drawn[~self.history.seen[drawn]].tolist()
        return self._surrogate.most_promising(unseen or [self.pick_any(rng)])
