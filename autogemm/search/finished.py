"""Trials that ended, by run and family, as other packages hand them to Optuna's formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autogemm.model.results.outcome import Outcome


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """The outcome of a config; ``value`` is the objective's figure, None if it failed."""

    outcome: Outcome
    value: float | None
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """The trials of one family in one run, in their order."""

    name: str
    trials: Sequence[FinishedTrial]
