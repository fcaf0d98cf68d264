"""The search loop: compile ahead, measure one at a time, record, then tell and ask again.

Three places work at once: the compiler's processes, one thread that waits for the target, and the
calling thread, which records results and asks for new configs while the others are busy. What is
not in the store yet is lost by a kill, and nothing else.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from autogemm.errors import CompilerDiedError, CompileTimeoutError, KernelCompileError
from autogemm.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.outcome import Outcome, Provenance, Status
from autogemm.targets import Target
from autogemm.tuning.events import TrialDone
from autogemm.tuning.launchable import why_not_launchable
from autogemm.tuning.ledger import Ledger
from autogemm.tuning.making import Maker, Making

if TYPE_CHECKING:
    from autogemm.search import Proposal

# How soon a wish to stop and the end of the budget are noticed, in seconds.
TICK_S = 0.1
# A kernel that is not compiled so long after it was asked for is given up. The compiler has a
# shorter limit of its own; this one holds where many wait for few processes.
COMPILE_DEADLINE_S = 120.0
# In flight before anything is known of compile and measuring times; and in every replay, so that a
# replay does not depend on the number of cores.
FIRST_AHEAD = 8


class Searcher(Protocol):
    """What the loop needs of :class:`autogemm.search.Search`."""

    def ask(self) -> "Proposal | None":
        """The next config to try, None when the space is used up."""

    def tell(self, proposal: "Proposal", outcome: Outcome) -> None:
        """What became of it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: trials of the run, seconds of this call; and most configs in flight."""

    trials: float = math.inf
    budget_s: float = math.inf
    ahead: int = FIRST_AHEAD


@dataclass(slots=True)
class _Pending:
    """One config between ask and tell. ``outcome`` is set once nothing needs to be measured."""

    proposal: "Proposal"
    asked_at: float
    source: KernelSource | None = None
    making: Making | None = None
    outcome: Outcome | None = None
    is_reused: bool = False
    is_recorded: bool = False

    @property
    def compiling(self) -> Future[CompiledKernel] | None:
        return self.making.compiling if self.making is not None else None


class Pipeline:
    """One search. After `run`, the attributes tell how it went."""

    def __init__(  # noqa: PLR0913  # the parts that meet here
        self,
        maker: Maker,
        target: Target,
        searcher: Searcher,
        ledger: Ledger,
        *,
        limits: Limits,
        on_trial: Callable[[TrialDone], None],
    ) -> None:
        self._maker = maker
        self._target = target
        self._searcher = searcher
        self._ledger = ledger
        self._limits = limits
        self._on_trial = on_trial
        self._pending: deque[_Pending] = deque()
        self._on_card: tuple[_Pending, Future[Outcome]] | None = None
        self._used_up = False
        self._mean_compile_s = 0.0
        self._mean_measure_s = 0.0
        self._started = time.monotonic()
        self.num_reused = 0
        self.busy_s = 0.0
        self.elapsed_s = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until a limit is reached, the space is used up, or ``stop`` is set.

        What is on the card then is still awaited and recorded; what is being compiled is dropped.
        """
        self._started = time.monotonic()
        card = ThreadPoolExecutor(1, thread_name_prefix="measure")
        is_replay = self._target.provenance is Provenance.RECORDED
        try:
            while not stop.is_set() and self._seconds() < self._limits.budget_s:
                if not (self._replay_turn() if is_replay else self._turn(card)):
                    break
            if self._on_card is not None:
                pending, measuring = self._on_card
                self._settle(pending, measuring.result())
        finally:
            card.shutdown(wait=False, cancel_futures=True)
            for pending in self._pending:
                if pending.compiling is not None:
                    pending.compiling.cancel()
            self.elapsed_s = self._seconds()

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _turn(self, card: ThreadPoolExecutor) -> bool:
        """One round of the loop on a card, in the order that keeps it busy. False: all done."""
        finished = self._take_finished()
        self._feed(card)
        if finished is not None:
            self._settle(*finished)
        if self._may_ask(self._ahead()):
            self._ask()
        elif not self._pending and self._on_card is None:
            return False
        else:
            self._wait()
        return True

    def _replay_turn(self) -> bool:
        """One trial in the order of asking, so that a replay's result does not depend on timing."""
        while self._may_ask(FIRST_AHEAD):
            self._ask()
        if not self._pending:
            return False
        pending = self._pending[0]
        self._decide(pending)
        if pending.outcome is None and pending.making is not None:
            if pending.compiling is not None and not pending.compiling.done():
                wait([pending.compiling], timeout=TICK_S)
                return True
            pending.outcome = self._target.measure(pending.making.candidate(), self._best_us())
        if pending.outcome is not None:
            self._pending.popleft()
            self._settle(pending, pending.outcome)
        return True

    def _ahead(self) -> int:
        """Configs in flight so that the card never waits, but no more: each was asked for in
        ignorance of those before it. By Little's law one is compiled per measuring time if
        compile time / measuring time of them are compiled at once; one is measured, one waits.
        """
        if not self._mean_measure_s:
            return min(self._limits.ahead, FIRST_AHEAD)
        compiling = math.ceil(self._mean_compile_s / self._mean_measure_s)
        return min(self._limits.ahead, 2 + compiling)

    def _may_ask(self, ahead: int) -> bool:
        on_card = [self._on_card[0]] if self._on_card is not None else []
        in_flight = [*self._pending, *on_card]
        to_come = sum(not pending.is_recorded for pending in in_flight)
        return (
            not self._used_up
            and len(in_flight) < ahead
            and len(self._ledger.outcomes) + to_come < self._limits.trials
        )

    def _ask(self) -> None:
        proposal = self._searcher.ask()
        if proposal is None:
            self._used_up = True
            return
        pending = _Pending(proposal, asked_at=time.monotonic())
        self._pending.append(pending)
        # Recorded, but killed before the search was told.
        pending.outcome = self._ledger.recorded(proposal.config)
        pending.is_recorded = pending.outcome is not None
        if pending.is_recorded:
            return
        pending.source = self._maker.render(proposal.config)
        if known := self._ledger.known(pending.source):
            pending.outcome = replace(known, config=proposal.config)
            pending.is_reused = True
            return
        pending.making = self._maker.start(pending.source)

    def _feed(self, card: ThreadPoolExecutor) -> None:
        """Settle what needs no measuring, and give the card the first candidate that is ready."""
        for pending in list(self._pending):
            self._decide(pending)
            if pending.outcome is not None:
                self._pending.remove(pending)
                self._settle(pending, pending.outcome)
            elif self._on_card is None and pending.making is not None and pending.making.is_ready:
                self._pending.remove(pending)
                candidate = pending.making.candidate()
                self._on_card = (pending, card.submit(self._timed, candidate, self._best_us()))

    def _best_us(self) -> float | None:
        return self._ledger.best.time_us if self._ledger.best is not None else None

    def _timed(self, candidate: Candidate, best_us: float | None) -> Outcome:
        """In the card's thread."""
        began = time.monotonic()
        outcome = self._target.measure(candidate, best_us)
        seconds = time.monotonic() - began
        self.busy_s += seconds
        self._mean_measure_s = _running_mean(self._mean_measure_s, seconds)
        if candidate.compiled is not None:
            compile_s = candidate.compiled.seconds
            self._mean_compile_s = _running_mean(self._mean_compile_s, compile_s)
        return outcome

    def _decide(self, pending: _Pending) -> None:
        """Give it an outcome if that is plain without measuring."""
        making = pending.making
        if pending.outcome is not None or making is None:
            return
        config, sha256 = pending.proposal.config, making.source.sha256
        if twin := self._ledger.twin(making.source):
            pending.outcome = replace(twin, config=config)
            pending.is_reused = True
        elif not making.is_ready:
            if time.monotonic() - pending.asked_at > COMPILE_DEADLINE_S:
                reason = f"not compiled after {COMPILE_DEADLINE_S:.0f} s"
                pending.outcome = Outcome(config, Status.COMPILE_TIMEOUT, reason, sha256)
        else:
            pending.outcome = self._failure(making)

    def _failure(self, making: Making) -> Outcome | None:
        """Why a compiled candidate need not be tried, None if it must be."""
        config, sha256 = making.source.config, making.source.sha256
        try:
            compiled = making.candidate().compiled
        except KernelCompileError as error:
            return Outcome(config, _compile_status(error), str(error), sha256)
        if compiled is None:
            return None
        reason = why_not_launchable(compiled, making.plan, self._target.device)
        if not reason:
            return None
        return Outcome(
            config,
            Status.REJECTED,
            reason,
            sha256,
            resources=compiled.resources,
            compile_seconds=compiled.seconds,
        )

    def _wait(self) -> None:
        """Until the card is free, or something is compiled for a free card, or a tick is over."""
        if self._on_card is not None:
            wait([self._on_card[1]], timeout=TICK_S)
            return
        compiling = [p.compiling for p in self._pending if p.compiling is not None]
        if compiling:
            wait(compiling, timeout=TICK_S, return_when=FIRST_COMPLETED)

    def _take_finished(self) -> tuple[_Pending, Outcome] | None:
        if self._on_card is None or not self._on_card[1].done():
            return None
        pending, measuring = self._on_card
        self._on_card = None
        return pending, measuring.result()

    def _settle(self, pending: _Pending, outcome: Outcome) -> None:
        """Into the store first: what the search has heard of is never lost."""
        number = pending.proposal.number
        if pending.is_recorded:
            self._searcher.tell(pending.proposal, outcome)
            return
        improved = self._ledger.record(number, outcome, pending.source)
        self._searcher.tell(pending.proposal, outcome)
        self.num_reused += pending.is_reused
        self._on_trial(
            TrialDone(
                number=number,
                outcome=outcome,
                best=self._ledger.best,
                improved=improved,
                reused=pending.is_reused,
                num_trials=len(self._ledger.outcomes),
                elapsed_s=self._seconds(),
                baseline_us=self._target.baseline_us,
            )
        )


def _compile_status(error: KernelCompileError) -> Status:
    """A kernel that does not compile never will; a compiler that failed may not fail again."""
    match error:
        case CompileTimeoutError():
            return Status.COMPILE_TIMEOUT
        case CompilerDiedError():
            return Status.CRASHED
        case _:
            return Status.COMPILE_FAILED


def _running_mean(mean: float, value: float) -> float:
    return value if not mean else 0.8 * mean + 0.2 * value
