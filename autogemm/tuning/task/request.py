"""The request of a tuning run, and its result."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autogemm.model.config import Value
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Finals,
    Objective,
    Outcome,
    Provenance,
    Status,
    StopRule,
)
from autogemm.model.results.shown import finals_html, html_table, speed_words
from autogemm.space import Family
from autogemm.support.amounts import counted
from autogemm.support.errors import UsageError
from autogemm.targets import MeasureOptions

DEFAULT_FINALISTS = 8
DEFAULT_ROUNDS = 30

# For ``max_error``: no worse than the baseline.
AS_BASELINE = "cublas"
_NUMBER = re.compile(r"\d{1,20}(\.\d{0,20})?(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def checked_max_error(text: str) -> str:
    """``cublas``, or the number as Python writes it; empty for no condition.

    Raises UsageError for anything else, and for what is not more than 0.
    """
    text = text.strip().lower()
    if text in ("", AS_BASELINE):
        return text
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0.0 < value < math.inf:
        raise UsageError(
            f"the largest error is a number above 0 (1e-6) or {AS_BASELINE}, got {text!r}"
        )
    return str(value)


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """One search: the problem, the families to look in, and when to stop.

    The search ends after ``trials`` trials of the run (those resumed included), after
    ``budget_s`` seconds of this call, when the finals confirm a ratio to the baseline of at least
    ``until_ratio``, when the search expects less than ``until_gain`` (a share of the best time) of
    the next candidate, or when the spaces are used up, whichever comes first; None sets no such
    limit. ``fresh`` starts a new run where the same request was left unfinished. ``prune`` rejects
    what static facts rule out before it meets the GPU. ``warm_start`` tries the winners of the
    most similar stored results first. ``max_error`` is the largest relative Frobenius error against
    float64 that the winner may have: a number, or ``cublas`` for no worse than the baseline on the
    same inputs; empty sets no such condition. With ``sustained_s`` the winner and the baseline then
    run each alone, twice for so many seconds (`autogemm.model.results.outcome.Sustained`).
    ``certify`` has the winner checked further (some
    seconds; needs a measuring target).

    Raises UsageError for a number out of range, without a family, for two of one name, and for a
    ratio of times where another objective is minimised.
    """

    problem: Problem
    families: tuple[Family, ...]
    fix: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    sampler: str = "surrogate"
    seed: int = 0
    trials: int | None = None
    budget_s: float | None = None
    until_ratio: float | None = None
    until_gain: float | None = None
    finalists: int = DEFAULT_FINALISTS
    rounds: int = DEFAULT_ROUNDS
    sustained_s: float | None = None
    measure: MeasureOptions = field(default_factory=MeasureOptions)
    max_error: str = ""
    fresh: bool = False
    prune: bool = True
    warm_start: bool = True
    certify: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for name in ("trials", "finalists", "rounds"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UsageError(f"{name} must be at least 1, got {count}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"the seed must be a number from 0 to 2^63 - 1, got {self.seed}")
        object.__setattr__(self, "max_error", checked_max_error(self.max_error))
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(f"the budget must be more than 0 seconds, got {self.budget_s:g}")
        if self.sustained_s is not None and not self.sustained_s > 0:
            raise UsageError(f"a sustained run takes more than 0 seconds, got {self.sustained_s:g}")
        if self.sustained_s is not None and self.measure.l2 is CacheState.COLD:
            raise UsageError("sustained runs are back to back: they do not go with --l2 cold")
        if self.until_ratio is not None and not self.until_ratio > 0:
            raise UsageError(f"the ratio to stop at must be more than 0, got {self.until_ratio:g}")
        if self.until_gain is not None and not 0 < self.until_gain < 1:
            raise UsageError(
                f"the gain to stop at is a share between 0 and 1, got {self.until_gain:g}"
            )
        if self.until_ratio is not None and self.measure.objective is not Objective.TIME:
            raise UsageError(
                "the ratio to stop at is one of times: leave it out where "
                f"{self.measure.objective} is minimised"
            )
        measure = self.measure
        if measure.objective is not Objective.TIME and measure.l2 is not CacheState.WARM:
            raise UsageError(
                f"energy is measured over launches back to back: --l2 {measure.l2} does not go "
                f"with --objective {measure.objective}"
            )
        names = [family.name for family in self.families]
        if not names or len(set(names)) < len(names):
            raise UsageError(
                f"name one family or more, each once, got {', '.join(names) or 'none'}"
            )

    def share_done(self, num_trials: int, elapsed_s: float) -> float:
        """Return the share of the search that is over: of trials or time, whichever is more."""
        of_trials = num_trials / (self.trials or math.inf)
        return min(1.0, max(of_trials, elapsed_s / (self.budget_s or math.inf)))


@dataclass(frozen=True, slots=True)
class SearchedFamily:
    """One family of a run, with how many of its configs are legal there, and how many there are."""

    name: str
    num_legal: int
    num_raw: int


@dataclass(frozen=True, slots=True)
class TuneResult:
    """A run as far as it got. ``finals`` is None when nothing ran well or it was interrupted.

    ``certificate`` is the winner's, None where none was asked for or a recording was replayed.

    ``search_s`` and ``finals_s`` are seconds of this call, ``gpu_busy`` the share of ``search_s``
    in which a candidate was being measured, the mean of all GPUs. ``stopped_by`` is what ended the
    search, ``max_error`` the largest relative error that the winner may have, None if any.
    ``phase_s`` are seconds of the search by phase.
    """

    run_id: int
    problem: Problem
    device_name: str
    environment: Environment
    provenance: Provenance
    objective: Objective
    finals: Finals | None
    certificate: Certificate | None
    outcomes: tuple[Outcome, ...]
    num_resumed: int
    num_reused: int
    num_pruned: int
    families: tuple[SearchedFamily, ...]
    search_s: float
    finals_s: float
    gpu_busy: float
    stopped_by: StopRule
    max_error: float | None = None
    phase_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def ms_by_phase(self) -> dict[str, float]:
        """Milliseconds for each candidate of this call that was asked for, by phase.

        ``ask``, ``render`` and ``tell`` are of the search's thread, ``store`` of the main one;
        ``compile`` lasts from asking to a free place in the GPU's queue, ``compiler`` of that is
        the work of a core. On the GPU are ``load``, ``verify`` (the launches that are checked),
        ``compare`` (all of C with the reference), ``inputs`` (whether they are as before),
        ``sparse`` (FP32 with few products), ``time``, ``baseline``, and ``hand over``, which is
        what its worker takes besides; ``launches`` of all these is the time in which the
        candidate's own launches ran, the floor. ``idle`` is the time in which a GPU had no
        candidate. Phases of different candidates overlap: the sum is more than the time passed.
        """
        done = max(1, self.num_trials - self.num_resumed)
        return {name: 1e3 * seconds / done for name, seconds in self.phase_s.items()}

    def __repr__(self) -> str:
        return f"<TuneResult: {self._words}, {self._speed}>"

    def _repr_html_(self) -> str:
        """Return the finals as a table for a notebook; without finals, the best trial in words."""
        if self.finals is None:
            return html_table(self._words, ("best",), [(self._speed,)])
        return finals_html(self._words, self.problem, self.finals)

    @property
    def _words(self) -> str:
        end = f"{counted(self.num_trials, 'trial')}, stopped by {self.stopped_by}"
        where = f"{self.problem.label} on {self.device_name}"
        return f"run {self.run_id}, {where}, {self.provenance}, {end}"

    @property
    def _speed(self) -> str:
        if self.finals is None:
            return speed_words(self.problem, self.best.time_us if self.best is not None else None)
        winner = self.finals.winner
        return f"{speed_words(self.problem, winner.time_us, winner.ratio)}, {winner.name}"

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.stopped_by is StopRule.INTERRUPTED

    @property
    def best(self) -> Outcome | None:
        """The outcome that the objective likes best, None if none ran well."""
        return best_of(self.outcomes, self.objective)

    @property
    def num_legal(self) -> int:
        """Legal configs of all families."""
        return sum(family.num_legal for family in self.families)

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
        """Count the trials by status; statuses that did not occur are left out."""
        ends = [outcome.status for outcome in self.outcomes]
        return {status: ends.count(status) for status in Status if status in ends}

    @property
    def wrong(self) -> tuple[Outcome, ...]:
        """The trials with wrong results: of the family, or of the compiler, each is a defect."""
        return tuple(one for one in self.outcomes if one.status is Status.WRONG_RESULT)

    @property
    def trials_by_gpu(self) -> dict[int, int]:
        """Trials by the number of the GPU that measured them; empty where one measured all."""
        return dict(
            sorted(
                Counter(
                    one.gpu_number for one in self.outcomes if one.gpu_number is not None
                ).items()
            )
        )

    def of_family(self, name: str) -> tuple[Outcome, ...]:
        """The outcomes of one family's configs."""
        return tuple(outcome for outcome in self.outcomes if outcome.config.family == name)


def ranked(outcomes: Iterable[Outcome], objective: Objective) -> list[Outcome]:
    """The outcomes that have what the objective minimises, the least first."""
    figures = ((outcome.cost(objective), outcome) for outcome in outcomes)
    known = [(figure, outcome) for figure, outcome in figures if figure is not None]
    return [outcome for _, outcome in sorted(known, key=lambda pair: pair[0])]


def best_of(outcomes: Iterable[Outcome], objective: Objective = Objective.TIME) -> Outcome | None:
    """The first of `ranked`, None if there is none."""
    return next(iter(ranked(outcomes, objective)), None)
