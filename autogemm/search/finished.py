"""Runs that others than the search look at: trials that ended, by run and family."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from autogemm.model.outcome import Outcome


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """What became of a config; ``value`` is the objective's figure, None if it failed."""

    outcome: Outcome
    value: float | None
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class FinishedStudy:
    """The trials of one family in one run, in their order."""

    name: str
    trials: Sequence[FinishedTrial]
