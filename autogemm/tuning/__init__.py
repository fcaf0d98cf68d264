"""The tuner: space, search, compiler, target and store made into one run."""

from autogemm.tuning.checking import Checked, Checker, Winner
from autogemm.tuning.choice import Chosen, choose_target
from autogemm.tuning.opening import Opened, open_run, open_target
from autogemm.tuning.sweep import Step, Sweep, Sweeper, Swept
from autogemm.tuning.task.events import (
    Certifying,
    Event,
    FinalsStarted,
    Notice,
    SearchResumed,
    SearchStarted,
    TrialDone,
)
from autogemm.tuning.task.options import TuneOptions
from autogemm.tuning.task.request import SearchedFamily, TuneRequest, TuneResult
from autogemm.tuning.tuner import tune
from autogemm.verify import Certifier

__all__ = [
    "Certifier",
    "Certifying",
    "Checked",
    "Checker",
    "Chosen",
    "Event",
    "FinalsStarted",
    "Notice",
    "Opened",
    "SearchResumed",
    "SearchStarted",
    "SearchedFamily",
    "Step",
    "Sweep",
    "Sweeper",
    "Swept",
    "TrialDone",
    "TuneOptions",
    "TuneRequest",
    "TuneResult",
    "Winner",
    "choose_target",
    "open_run",
    "open_target",
    "tune",
]
