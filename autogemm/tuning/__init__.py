"""The tuner: space, search, compiler, target and store made into one run."""

from autogemm.tuning.opening import Opened, open_run, open_target
from autogemm.tuning.recheck import Rechecked, Rechecker, StoredWinner
from autogemm.tuning.sweep import Step, Sweep, Sweeper, Swept, known_row
from autogemm.tuning.task.ahead import Begun
from autogemm.tuning.task.events import (
    Certifying,
    Event,
    FinalsRound,
    FinalsStarted,
    Notice,
    SearchResumed,
    SearchStarted,
    SustainedStarted,
    TrialDone,
)
from autogemm.tuning.task.options import TuneOptions, request_for
from autogemm.tuning.task.request import TuneRequest, TuneResult
from autogemm.tuning.tuner import environment_of, tune
from autogemm.verify import Certifier

__all__ = [
    "Begun",
    "Certifier",
    "Certifying",
    "Event",
    "FinalsRound",
    "FinalsStarted",
    "Notice",
    "Opened",
    "Rechecked",
    "Rechecker",
    "SearchResumed",
    "SearchStarted",
    "Step",
    "StoredWinner",
    "SustainedStarted",
    "Sweep",
    "Sweeper",
    "Swept",
    "TrialDone",
    "TuneOptions",
    "TuneRequest",
    "TuneResult",
    "environment_of",
    "known_row",
    "open_run",
    "open_target",
    "request_for",
    "tune",
]
