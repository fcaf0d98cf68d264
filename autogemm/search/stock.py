"""Optuna's own samplers on enumerated configs: each proposal is moved to a legal, new one.

A stock sampler works on a study of its own, in memory, where numbers are ranks and texts are
choices, and where it sees what was measured in place of what it proposed.
"""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from autogemm.model.config import Value
from autogemm.search.enumerated import EnumeratedSpace, Floats, Indices, neighbours
from autogemm.search.history import Told
from autogemm.search.samplers import EnumeratedSampler

Encoded = dict[str, int | str]

# Above this many configs the nearest legal one is looked for in a sample, and from there step by
# step: comparing ten million would take seconds.
MAX_COMPARED = 100_000


class StockSampler(EnumeratedSampler):
    """A stock sampler that knows nothing of constraints.

    The unseen config with the smallest sum of rank distances, relative to the number of values,
    stands in for its proposal. If several have that distance, one is drawn.

    ``in_generations`` is for samplers that learn from trials of their own only: all others are
    given to them as answers to proposals.
    """

    def __init__(
        self, space: EnumeratedSpace, seed: int, stock: BaseSampler, in_generations: bool = False
    ) -> None:
        super().__init__(space, seed)
        self._in_generations = in_generations
        self._encoding = {
            parameter.name: _encoding(parameter.values)
            for parameter in space.parameters
            if len(parameter.values) > 1
        }
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(storage=InMemoryStorage(), sampler=stock)
        # By the index of the config that stands in for the proposal.
        self._asked: dict[int, Trial] = {}
        self._num_told = 0

    def pick(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> int:
        """See EnumeratedSampler."""
        for told in self.history.told[self._num_told :]:
            self._tell(told)
        self._num_told = len(self.history.told)
        asked = self._ask()
        index = self._nearest(asked.params, rng)
        self._replace(asked, index)
        self._asked[index] = asked
        return index

    def _ask(self) -> Trial:
        with warnings.catch_warnings():
            # Optuna warns of what is experimental in samplers that the user chose by name.
            warnings.simplefilter("ignore")
            return self._study.ask(self._encoding)

    def _tell(self, told: Told) -> None:
        asked = self._asked.pop(told.index, None)
        if asked is None and self._in_generations:
            asked = self._ask()
            self._replace(asked, told.index)
        failed = told.time_us is None
        state = TrialState.FAIL if failed else TrialState.COMPLETE
        if asked is None:
            params = self._encoded(told.index)
            self._study.add_trial(
                create_trial(
                    state=state, value=told.time_us, params=params, distributions=self._encoding
                )
            )
            return
        self._study.tell(asked, told.time_us, state)

    def _replace(self, asked: Trial, index: int) -> None:
        """Lets the trial have the params of the config that is measured in its name."""
        for name, value in self._encoded(index).items():
            distribution = self._encoding[name]
            internal = distribution.to_internal_repr(value)
            asked.storage.set_trial_param(asked._trial_id, name, internal, distribution)

    def _encoded(self, index: int) -> Encoded:
        config = self.space.config(index)
        encoded: Encoded = {}
        for parameter in self.space.parameters:
            if parameter.name in self._encoding:
                value = config[parameter.name]
                is_rank = isinstance(self._encoding[parameter.name], IntDistribution)
                encoded[parameter.name] = parameter.values.index(value) if is_rank else str(value)
        return encoded

    def _nearest(self, proposed: Mapping[str, int | str], rng: np.random.Generator) -> int:
        steps = {
            column: _distances(parameter.values, proposed[parameter.name])
            for column, parameter in enumerate(self.space.parameters)
            if parameter.name in proposed
        }
        if len(self.space) <= MAX_COMPARED:
            return self._nearest_of(np.flatnonzero(~self.history.seen), steps, rng)
        near = self.pick_any(rng)
        # In order, they are read far faster.
        rows = np.sort(rng.integers(len(self.space), size=MAX_COMPARED))
        if len(rows := rows[~self.history.seen[rows]]):
            near = self._nearest_of(rows, steps, rng)
        while True:
            around = [near, *neighbours(self.space, near)]
            unseen = np.array([i for i in around if not self.history.seen[i]], dtype=np.int64)
            closer = self._nearest_of(unseen, steps, rng)
            if self._distance(closer, steps) >= self._distance(near, steps):
                return near
            near = closer

    def _nearest_of(
        self, rows: Indices, steps: Mapping[int, Floats], rng: np.random.Generator
    ) -> int:
        distance = np.zeros(len(rows))
        for column, of_value in steps.items():
            distance += of_value[self.space.codes[rows, column]]
        return int(rng.choice(rows[distance <= distance.min() + 1e-9]))

    def _distance(self, row: int, steps: Mapping[int, Floats]) -> float:
        return sum(float(of_value[self.space.codes[row, c]]) for c, of_value in steps.items())


def _encoding(values: Sequence[Value]) -> BaseDistribution:
    if _are_texts(values):
        return CategoricalDistribution([str(value) for value in values])
    return IntDistribution(0, len(values) - 1)


def _are_texts(values: Sequence[Value]) -> bool:
    return any(isinstance(value, str) for value in values)


def _distances(values: Sequence[Value], proposed: int | str) -> Floats:
    """Return each value's distance: 0 to 1 by rank for numbers, 0 or 1 for texts."""
    if _are_texts(values):
        return np.array([float(str(value) != proposed) for value in values])
    return np.abs(np.arange(len(values)) - int(proposed)) / (len(values) - 1)
