"""A study's trials in terms of a space's indices."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autogemm.model.config import Config
from autogemm.search.enumerated import EnumeratedSpace


@dataclass(frozen=True, slots=True)
class Told:
    """A finished trial. ``time_us`` is None for a config that failed."""

    index: int
    time_us: float | None


class History:
    """The pending configs and the told ones, rebuilt from the study alone.

    Finished trials never change, so :meth:`update` reads each of them once.
    """

    def __init__(self, space: EnumeratedSpace) -> None:
        self._space, self._family = space, space.config(0).family
        self._read: set[int] = set()
        self.told: list[Told] = []
        self.pending: dict[int, int] = {}
        self.seen: NDArray[np.bool_] = np.zeros(len(space), dtype=bool)
        self.num_unseen = len(space)
        self.best: Told | None = None

    def update(self, study: Study, now_sampled: int | None = None) -> None:
        """Take in what the study has got since the last time, in order of completion.

        ``now_sampled`` is the number of the trial that has no config yet.
        """
        new = [t for t in study.get_trials(deepcopy=False) if t.number not in self._read]
        finished = [trial for trial in new if trial.state.is_finished()]
        for trial in sorted(finished, key=_completion):
            self.finish(trial)
        for trial in new:
            if trial.state is not TrialState.RUNNING or trial.number == now_sampled:
                continue
            if trial.number in self.pending:
                continue
            if (index := self.index_of(trial)) is not None:
                self.propose(trial.number, index)

    def propose(self, number: int, index: int) -> None:
        """The config is out to be measured by that trial."""
        self.pending[number] = index
        self._see(index)

    def finish(self, trial: FrozenTrial) -> None:
        """The trial has ended and will not change any more."""
        self._read.add(trial.number)
        proposed = self.pending.pop(trial.number, None)
        index = self.index_of(trial) if proposed is None else proposed
        if index is None:
            return
        told = Told(index, trial.value if trial.state is TrialState.COMPLETE else None)
        self.told.append(told)
        self._see(index)
        if told.time_us is not None and (
            self.best is None or self.best.time_us is None or told.time_us < self.best.time_us
        ):
            self.best = told

    def index_of(self, trial: FrozenTrial) -> int | None:
        """Index of the trial's config, None if it has none or it is not legal here."""
        fixed = {one.name: one.values[0] for one in self._space.parameters if len(one.values) == 1}
        known = {**fixed, **trial.params}
        names = [one.name for one in self._space.parameters]
        if not known.keys() >= {*names}:
            return None
        return self._space.index(Config.of(self._family, {name: known[name] for name in names}))

    def _see(self, index: int) -> None:
        self.num_unseen -= int(not self.seen[index])
        self.seen[index] = True


def _completion(trial: FrozenTrial) -> tuple[float, int]:
    finished = trial.datetime_complete
    return (finished.timestamp() if finished else 0.0, trial.number)
