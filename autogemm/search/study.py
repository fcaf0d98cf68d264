"""The search: an Optuna study over the legal configs of a space."""

import math
from dataclasses import dataclass

import optuna
from optuna.pruners import NopPruner
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from autogemm.model.config import Config
from autogemm.model.outcome import Outcome, Status
from autogemm.search import DEFAULT_SAMPLER
from autogemm.search.enumerated import EnumeratedSpace, fingerprint
from autogemm.search.history import INTERRUPTED, REASON_ATTR, STATUS_ATTR
from autogemm.search.samplers import make_sampler
from autogemm.search.storage import StudyMirror

# A compiler's log can be long; the store keeps all of it.
MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Proposal:
    """A config to be tried. ``number`` is the number of its trial in the Optuna study."""

    number: int
    index: int
    config: Config


class Search:
    """Asks for configs of a space, each at most once, and learns from what they took.

    The study is kept in memory and copied, trial by trial, to a study named ``study_name`` in the
    database at ``storage_url`` (None: nowhere). If that exists, its trials count as told and the
    search goes on. What a killed process had told and not yet copied is to be told again with
    `remember`. One process at a time; within it, one thread at a time.

    Raises UsageError for an unknown sampler, StoreError if the database fails or if the study was
    made for another space.
    """

    def __init__(
        self,
        space: EnumeratedSpace,
        sampler: str = DEFAULT_SAMPLER,
        seed: int = 0,
        storage_url: str | None = None,
        study_name: str = "search",
    ) -> None:
        self._space = space
        self._sampler = make_sampler(sampler, space, seed)
        self._history = self._sampler.history
        self._pending: dict[int, Trial] = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._mirror = (
            StudyMirror(storage_url, study_name, fingerprint(space)) if storage_url else None
        )
        self._study = optuna.create_study(
            storage=InMemoryStorage(),
            sampler=self._sampler,
            pruner=NopPruner(),
            study_name=study_name,
        )
        for trial in self._mirror.found if self._mirror is not None else []:
            self._study.add_trial(trial)
        self._history.update(self._study)

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
        return self._space.config(best.index), best.time_us

    @property
    def expected_improvement(self) -> float | None:
        """By how much the next config is expected to beat the best time, as a share of that time.

        It is what the model expected of the best config not yet proposed when it was last asked,
        0.01 for 1 %. None while no model is in use, and always for samplers that have none.
        """
        return self._sampler.expected_improvement

    def remember(self, outcome: Outcome, cost: float | None = None) -> None:
        """An outcome of an earlier process: told now, unless the study has it.

        Before the first `ask`. A config that is not legal here is passed over. ``cost`` is that of
        `tell`.
        """
        index = self._space.index(outcome.config)
        if index is None or self._history.seen[index]:
            return
        values = outcome.config.as_dict()
        value, attrs = _result(outcome, cost)
        self._study.add_trial(
            create_trial(
                state=TrialState.FAIL if value is None else TrialState.COMPLETE,
                value=value,
                params={name: values[name] for name in self._sampler.distributions},
                distributions=self._sampler.distributions,
                user_attrs=attrs,
            )
        )
        self._finished(self._study.get_trials(deepcopy=False)[-1])

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
        self._pending[trial.number] = trial
        return Proposal(trial.number, index, self._space.config(index))

    def tell(self, proposal: Proposal, outcome: Outcome, cost: float | None = None) -> None:
        """What became of a proposal, once. Raises StoreError if another process told it too.

        ``cost`` is what is minimised, the time in microseconds if it is None; of a candidate that
        failed there is none.
        """
        trial = self._pending.pop(proposal.number)
        value, attrs = _result(outcome, cost)
        self._end(trial, value, attrs)

    def close(self) -> None:
        """Let go of the database. May be called twice.

        Proposals that are still out count as interrupted: they may be proposed again.
        """
        if self._mirror is None:
            return
        for number in sorted(self._pending):
            self._end(self._pending.pop(number), None, {STATUS_ATTR: INTERRUPTED})
        self._mirror.close()

    def _end(self, trial: Trial, value: float | None, attrs: dict[str, str]) -> None:
        for key, text in attrs.items():
            trial.set_user_attr(key, text)
        state = TrialState.FAIL if value is None else None
        self._finished(self._study.tell(trial, value, state=state))

    def _finished(self, trial: FrozenTrial) -> None:
        self._history.finish(trial)
        if self._mirror is not None:
            self._mirror.add(trial)


def _result(outcome: Outcome, cost: float | None) -> tuple[float | None, dict[str, str]]:
    """What a trial is worth, None if it failed, and its attributes."""
    value = outcome.time_us if outcome.time_us is None or cost is None else cost
    if value is not None and 0.0 < value < math.inf:
        return value, {}
    reason = outcome.reason
    if outcome.status is Status.OK:
        reason = f"no usable time: {outcome.time_us} us"
    return None, {STATUS_ATTR: str(outcome.status), REASON_ATTR: reason[:MAX_REASON]}
