"""Events of the tuner while it works. The library never prints: a listener draws these."""

from dataclasses import dataclass

from autogemm.model.results.outcome import Finals, Outcome
from autogemm.tuning.task.request import SearchedFamily


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should read: one line."""

    text: str


@dataclass(frozen=True, slots=True)
class SearchStarted:
    """The spaces are built and the target ready.

    ``left_out`` names the families of the request that have no legal config here. ``baseline_us``
    is a first time of cuBLAS, None where the target has none; the ratio that counts comes from the
    finals. ``started_from`` names the stored results whose configs are tried first, nearest first.
    """

    run_id: int
    num_resumed: int
    families: tuple[SearchedFamily, ...]
    left_out: tuple[str, ...]
    baseline_us: float | None
    best: Outcome | None
    started_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialDone:
    """One trial is in the store. ``num_trials`` counts the run's, those resumed included.

    ``reused`` says that the outcome was known from before and nothing was measured;
    ``baseline_us`` is the target's newest time of cuBLAS.
    """

    number: int
    outcome: Outcome
    best: Outcome | None
    improved: bool
    reused: bool
    num_trials: int
    elapsed_s: float
    baseline_us: float | None


@dataclass(frozen=True, slots=True)
class FinalsStarted:
    """The search is over; the best are re-timed beside cuBLAS."""

    num_finalists: int
    rounds: int


@dataclass(frozen=True, slots=True)
class FinalsRound:
    """So many rounds of the finals are done; a recording has none."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class SustainedStarted:
    """Winner and baseline run each alone, four runs of that many seconds in all."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SearchResumed:
    """The finals did not confirm the ratio to stop at, and the limits allow more trials."""

    finals: Finals
    until_ratio: float


@dataclass(frozen=True, slots=True)
class Certifying:
    """The winner is being checked further: what is done now, and how many of its cases are done."""

    step: str
    done: int = 0
    total: int = 0


Event = (
    Certifying
    | Notice
    | SearchStarted
    | TrialDone
    | FinalsStarted
    | FinalsRound
    | SustainedStarted
    | SearchResumed
)
