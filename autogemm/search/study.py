"""The search: an Optuna study over the legal configs of a space."""

import math
from dataclasses import dataclass

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import NopPruner
from optuna.trial import FrozenTrial, Trial, TrialState

from autogemm.config import Config
from autogemm.errors import StoreError
from autogemm.outcome import Outcome, Status
from autogemm.search import DEFAULT_SAMPLER
from autogemm.search.enumerated import EnumeratedSpace, fingerprint
from autogemm.search.history import INTERRUPTED, REASON_ATTR, STATUS_ATTR
from autogemm.search.samplers import make_sampler
from autogemm.search.storage import as_store_error, close_storage, open_storage

SPACE_ATTR = "autogemm_space"
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

    The state is an Optuna study named ``study_name`` in the database at ``storage_url`` (None:
    memory). If it exists, its trials count as told and the search goes on; trials that a killed
    process left running are closed, and their configs may be proposed again. One process at a time.

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
        self._storage = open_storage(storage_url)
        with as_store_error():
            self._study = optuna.create_study(
                storage=self._storage,
                sampler=self._sampler,
                pruner=NopPruner(),
                study_name=study_name,
                load_if_exists=True,
            )
            self._check_space(fingerprint(space))
            self._close_leftovers()
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

    def ask(self) -> Proposal | None:
        """A config never proposed before, None when there is none left.

        Several proposals may be out at a time. Raises StoreError if the database fails.
        """
        if self._history.num_unseen == 0:
            return None
        with as_store_error():
            trial = self._study.ask(self._sampler.distributions)
            # Optuna does not consult the sampler where all parameters are fixed.
            _ = trial.relative_params
        index = self._history.pending[trial.number]
        self._pending[trial.number] = trial
        return Proposal(trial.number, index, self._space.config(index))

    def tell(self, proposal: Proposal, outcome: Outcome, cost: float | None = None) -> None:
        """What became of a proposal, once. Raises StoreError if the database fails.

        ``cost`` is what is minimised, the time in microseconds if it is None; of a candidate that
        failed there is none.
        """
        trial = self._pending.pop(proposal.number)
        with as_store_error():
            try:
                finished = self._finish(trial, outcome, cost)
            except (UpdateFinishedTrialError, ValueError) as error:
                raise StoreError(
                    f"trial {proposal.number} of {self._study.study_name!r} was closed by another "
                    "process; let one process at a time work on a run"
                ) from error
        self._history.finish(finished)

    def close(self) -> None:
        """Let go of the database. May be called twice."""
        close_storage(self._storage)

    def _finish(self, trial: Trial, outcome: Outcome, cost: float | None) -> FrozenTrial:
        value = outcome.time_us if outcome.time_us is None or cost is None else cost
        if value is not None and 0.0 < value < math.inf:
            return self._study.tell(trial, value)
        trial.set_user_attr(STATUS_ATTR, str(outcome.status))
        trial.set_user_attr(REASON_ATTR, _reason(outcome)[:MAX_REASON])
        return self._study.tell(trial, state=TrialState.FAIL)

    def _check_space(self, identity: str) -> None:
        known = self._study.user_attrs.get(SPACE_ATTR)
        if known is None and not self._study.get_trials(deepcopy=False):
            self._study.set_user_attr(SPACE_ATTR, identity)
        elif known != identity:
            raise StoreError(
                f"the study {self._study.study_name!r} was made for a search space with other "
                "parameters, values or constraints; start a new run, or use another database "
                "(--db)"
            )

    def _close_leftovers(self) -> None:
        study_id = self._storage.get_study_id_from_name(self._study.study_name)
        unfinished = (TrialState.RUNNING, TrialState.WAITING)
        for trial in self._study.get_trials(deepcopy=False, states=unfinished):
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
            self._storage.set_trial_user_attr(trial_id, STATUS_ATTR, INTERRUPTED)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)


def _reason(outcome: Outcome) -> str:
    if outcome.status is Status.OK:
        return f"no usable time: {outcome.time_us} us"
    return outcome.reason
