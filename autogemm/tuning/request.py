"""What a tuning run is asked for, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autogemm.certificate import Certificate
from autogemm.config import Value
from autogemm.errors import UsageError
from autogemm.outcome import Environment, Finals, Outcome, Provenance, Status
from autogemm.problem import Problem
from autogemm.space import Family
from autogemm.targets import MeasureOptions

DEFAULT_FINALISTS = 8
DEFAULT_ROUNDS = 30


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """One search: the problem, the space to look in, and when to stop.

    The search ends after ``trials`` trials of the run (those resumed included), after
    ``budget_s`` seconds of this call, or when the space is used up, whichever comes first; None
    sets no such limit. ``fresh`` starts a new run where the same request was left unfinished,
    ``certify`` has the winner checked further (some seconds; needs a measuring target).
    ``prune`` rejects what static facts rule out before it meets the card.
    Raises UsageError for a count below 1 or a budget that is not positive.
    """

    problem: Problem
    family: Family
    fix: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    sampler: str = "surrogate"
    seed: int = 0
    trials: int | None = None
    budget_s: float | None = None
    finalists: int = DEFAULT_FINALISTS
    rounds: int = DEFAULT_ROUNDS
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    fresh: bool = False
    prune: bool = True
    certify: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for name in ("trials", "finalists", "rounds"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UsageError(f"{name} must be at least 1, got {count}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(f"the budget must be more than 0 seconds, got {self.budget_s:g}")


@dataclass(frozen=True, slots=True)
class TuneResult:
    """A run as far as it got. ``finals`` is None when nothing ran well or it was interrupted.

    ``certificate`` is the winner's, None where none was asked for or a recording was replayed.

    ``search_s`` and ``finals_s`` are seconds of this call, ``gpu_busy`` the share of ``search_s``
    in which a candidate was being measured.
    """

    run_id: int
    problem: Problem
    device_name: str
    environment: Environment
    provenance: Provenance
    finals: Finals | None
    certificate: Certificate | None
    outcomes: tuple[Outcome, ...]
    num_resumed: int
    num_reused: int
    num_pruned: int
    num_legal: int
    search_s: float
    finals_s: float
    gpu_busy: float
    interrupted: bool

    @property
    def best(self) -> Outcome | None:
        """The fastest outcome of the search, None if none ran well."""
        return fastest(self.outcomes)

    @property
    def num_trials(self) -> int:
        """Trials of the run, those resumed included."""
        return len(self.outcomes)

    @property
    def trials_per_s(self) -> float:
        """Trials per second of this call's search."""
        done = self.num_trials - self.num_resumed
        return done / self.search_s if self.search_s > 0 else 0.0

    @property
    def counts(self) -> dict[Status, int]:
        """How many trials ended in which status; statuses that did not occur are left out."""
        ends = [outcome.status for outcome in self.outcomes]
        return {status: ends.count(status) for status in Status if status in ends}


def fastest(outcomes: tuple[Outcome, ...] | list[Outcome]) -> Outcome | None:
    """The outcome with the least time, None if none has one."""
    timed = [outcome for outcome in outcomes if outcome.time_us is not None]
    return min(timed, key=lambda outcome: outcome.time_us or 0.0, default=None)
