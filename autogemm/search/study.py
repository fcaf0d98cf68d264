"""The search: an Optuna study over the legal configs of a space."""

import math
from dataclasses import dataclass

import optuna
from optuna.pruners import NopPruner
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from autogemm.model.config import Config
from autogemm.model.results.outcome import Outcome
from autogemm.search.chains import accurate_seeds, more_accurate
from autogemm.search.enumerated import EnumeratedSpace
from autogemm.search.making import make_sampler
from autogemm.search.names import DEFAULT_SAMPLER


@dataclass(frozen=True, slots=True)
class Proposal:
    """A config to be tried. ``number`` is the number of its trial in the Optuna study."""

    number: int
    index: int
    config: Config


class Search:
    """Asks for configs of a space, each at most once, and learns from what they took.

    The study is kept in memory: what earlier processes found is told again with `remember`. One
    thread at a time.

    With ``meanwhile`` the sampler proposes without waiting for what takes it long; then proposals
    depend on time, too.

    Raises UsageError for an unknown sampler.
    """

    def __init__(
        self,
        space: EnumeratedSpace,
        sampler: str = DEFAULT_SAMPLER,
        seed: int = 0,
        *,
        meanwhile: bool = False,
    ) -> None:
        self._space = space
        self._sampler = make_sampler(sampler, space, seed)
        if meanwhile:
            self._sampler.learn_meanwhile()
        self._history = self._sampler.history
        self._best_config: tuple[int, Config] | None = None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(
            storage=InMemoryStorage(), sampler=self._sampler, pruner=NopPruner()
        )

    @property
    def num_told(self) -> int:
        """Trials that ended, well or not, of this process and earlier ones."""
        return len(self._history.told)

    @property
    def best(self) -> tuple[Config, float] | None:
        """The fastest config and its time in microseconds, None while nothing has worked."""
        best = self._history.best
        if best is None or best.time_us is None:
            return None
        # It is asked for several times for each proposal where families take turns, by two threads.
        known = self._best_config
        if known is None or known[0] != best.index:
            known = self._best_config = (best.index, self._space.config(best.index))
        return known[1], best.time_us

    @property
    def expected_improvement(self) -> float | None:
        """The share of the best time that the next config is expected to save.

        It is what the model expected of the best config not yet proposed when it was last asked,
        0.01 for 1 %. None while no model is in use, and always for samplers that have none.
        """
        return self._sampler.expected_improvement

    def shorten_chains(self, config: Config, excess: float) -> None:
        """Ask next for configs like this one that are more accurate.

        ``excess`` is its error as a multiple of the one that is allowed.
        """
        index = self._space.index(config)
        if index is not None:
            self._sampler.want(more_accurate(self._space, index, excess))

    def keep_error(self, limit: float) -> None:
        """Ask first for what seeds are with shorter sums, where they are expected to miss a limit.

        ``limit`` is the largest relative error that is allowed. Before the first `ask`.
        """
        self._sampler.want(accurate_seeds(self._space, limit))

    def remember(self, outcome: Outcome, cost: float | None = None) -> None:
        """Learn an outcome of an earlier process, unless its config is known already.

        Before the first `ask`. A config that is not legal here is passed over. ``cost`` is that of
        `tell`.
        """
        index = self._space.index(outcome.config)
        if index is None or self._history.seen[index]:
            return
        values = outcome.config.as_dict()
        value = _value(outcome, cost)
        trial = create_trial(
            state=TrialState.FAIL if value is None else TrialState.COMPLETE,
            value=value,
            params={name: values[name] for name in self._sampler.distributions},
            distributions=self._sampler.distributions,
        )
        # The number that the study gives it: nothing but what is remembered is in it yet.
        trial.number = self.num_told
        self._study.add_trial(trial)
        self._history.finish(trial)

    def ask(self) -> Proposal | None:
        """A config never proposed before, None when there is none left.

        Several proposals may be out at a time.
        """
        if self._history.num_unseen == 0:
            return None
        trial = self._study.ask(self._sampler.distributions)
        # Optuna does not consult the sampler where all parameters are fixed.
        _ = trial.relative_params
        index = self._history.pending[trial.number]
        return Proposal(trial.number, index, self._space.config(index))

    def tell(self, proposal: Proposal, outcome: Outcome, cost: float | None = None) -> None:
        """Learn what became of a proposal, once.

        ``cost`` is what is minimised, the time in microseconds if it is None; of a candidate that
        failed there is none.
        """
        value = _value(outcome, cost)
        state = TrialState.FAIL if value is None else None
        self._history.finish(self._study.tell(proposal.number, value, state=state))


def _value(outcome: Outcome, cost: float | None) -> float | None:
    """Return the value of a trial, None if it failed or has no usable time."""
    value = outcome.time_us if outcome.time_us is None or cost is None else cost
    return value if value is not None and 0.0 < value < math.inf else None
