"""The tuner: space, search, compiler, target and store made into one run."""

from autogemm.tuning.choice import Chosen, choose_target
from autogemm.tuning.events import (
    Event,
    FinalsStarted,
    Notice,
    SearchResumed,
    SearchStarted,
    TrialDone,
)
from autogemm.tuning.request import SearchedFamily, TuneRequest, TuneResult
from autogemm.tuning.tuner import tune

__all__ = [
    "Chosen",
    "Event",
    "FinalsStarted",
    "Notice",
    "SearchResumed",
    "SearchStarted",
    "SearchedFamily",
    "TrialDone",
    "TuneRequest",
    "TuneResult",
    "choose_target",
    "tune",
]
