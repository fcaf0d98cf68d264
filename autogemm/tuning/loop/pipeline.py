"""The search loop: compile ahead, measure without a pause, record, then tell and ask again.

Four places work at once: the compiler's processes, a thread for each GPU, the one in which the
search is asked and told, and the calling thread, which hands over and records. A kill loses only
trials that are not in the store yet.
"""

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autogemm.model.kernel import KernelSource
from autogemm.model.results.outcome import Outcome, Provenance
from autogemm.tuning.loop.gpu_queue import GpuQueue
from autogemm.tuning.loop.gpus import Gpus
from autogemm.tuning.loop.ledger import Ledger
from autogemm.tuning.loop.triage import Pending, Triage
from autogemm.tuning.task.accuracy import ANY_ACCURACY, Accuracy
from autogemm.tuning.task.build import Builder
from autogemm.tuning.task.events import TrialDone

if TYPE_CHECKING:
    from autogemm.search import Proposal
    from autogemm.tuning.loop.joint import JointSearch

# How soon a stop request and the end of the budget are noticed, in seconds.
TICK_S = 0.1
# How long a thread may go on in Python while another waits, at Python's default 5 ms: a GPU gets
# its next candidate from a thread that waits for this a few times, beside the search's arithmetic.
SWITCH_INTERVAL_S = 0.0005
# In flight before anything is known of compile and measuring times; and in every replay, so that a
# replay does not depend on the number of cores.
FIRST_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits: trials of the run, seconds of this call, configs in flight."""

    trials: float = math.inf
    budget_s: float = math.inf
    ahead: int = FIRST_AHEAD


# A proposal and its source: what the search's thread makes.
_Asked = tuple["Proposal", KernelSource]


class Pipeline:
    """One search. After `run`, the attributes tell how it went.

    With ``prune`` a candidate that static facts rule out is rejected without being measured.
    """

    def __init__(  # noqa: PLR0913  # the parts that meet here
        self,
        builder: Builder,
        gpus: Gpus,
        searcher: "JointSearch",
        ledger: Ledger,
        *,
        limits: Limits,
        on_trial: Callable[[TrialDone], None],
        accuracy: Accuracy = ANY_ACCURACY,
        prune: bool = False,
    ) -> None:
        self._builder = builder
        self._gpus = gpus
        self._searcher = searcher
        self._ledger = ledger
        self._limits = limits
        self._on_trial = on_trial
        self._accuracy = accuracy
        # A replay costs no GPU's time.
        self._is_replay = gpus.first.provenance is Provenance.RECORDED
        self._triage = Triage(
            builder, ledger, gpus.first.device, prune=prune and not self._is_replay
        )
        self._next_number = ledger.next_number
        self._pending: deque[Pending] = deque()
        self._queue: GpuQueue[Pending] = GpuQueue(gpus, lambda: ledger.best_us)
        # Measured or decided, and not in the store yet.
        self._ended: deque[tuple[Pending, Outcome]] = deque()
        self._search_thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._asking: Future[_Asked | None] | None = None
        self._telling: deque[Future[None]] = deque()
        self._used_up = False
        self._started = time.monotonic()
        self.num_reused = 0
        self.num_pruned = 0
        self.elapsed_s = 0.0

    def run(self, stop: threading.Event) -> None:
        """Until a limit is reached, the space is used up, or ``stop`` is set. Once.

        The candidate on the GPU is still awaited and recorded; those that wait for the GPU or are
        being compiled are dropped, unless the time is over and nothing has run correctly yet.
        """
        self._started = time.monotonic()
        busy_before_s = self._gpus.busy_s
        switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(min(switch_interval_s, SWITCH_INTERVAL_S))
        try:
            while not stop.is_set() and not self._is_over:
                if not (self._replay_turn() if self._is_replay else self._turn()):
                    break
            for pending, outcome in self._queue.finish():
                self._settle(pending, outcome)
            self._await_told()
        finally:
            sys.setswitchinterval(switch_interval_s)
            self._queue.close()
            for pending in self._pending:
                if pending.compiling is not None:
                    pending.compiling.cancel()
            # Its tables are closed next: not while it is at work on them.
            self._search_thread.shutdown(wait=True, cancel_futures=True)
            self.elapsed_s = self._seconds()
            busy_s = self._gpus.busy_s - busy_before_s
            self._gpus.phases.add("idle", self.elapsed_s * self._gpus.num_at_start - busy_s)

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def _is_time_up(self) -> bool:
        return self._seconds() >= self._limits.budget_s

    @property
    def _is_over(self) -> bool:
        """The time is up, and something has run correctly, or nothing more is to come."""
        return self._is_time_up and (self._ledger.best is not None or not self._in_flight)

    def _turn(self) -> bool:
        """One round of the loop on a GPU, in the order that keeps it busy. False: all done."""
        self._take_asked()
        self._ended += self._queue.take_finished()
        self._feed()
        while self._ended:
            self._settle(*self._ended[0])
            self._ended.popleft()
        if self._asking is None and self._may_ask(self._ahead()):
            self._asking = self._search_thread.submit(self._ask)
        elif not self._in_flight and self._asking is None:
            return False
        self._wait()
        return True

    def _replay_turn(self) -> bool:
        """One trial in the order of asking, so that a replay's result does not depend on timing."""
        while self._may_ask(FIRST_AHEAD):
            self._await_told()
            self._add(self._ask())
        if not self._pending:
            return False
        pending = self._pending[0]
        self._triage.advance(pending, self._in_flight)
        if pending.outcome is None and pending.building is not None:
            if pending.compiling is not None and not pending.compiling.done():
                wait([pending.compiling], timeout=TICK_S)
                return True
            pending.outcome = self._gpus.first.measure(
                pending.building.candidate(), self._ledger.best_us
            )
        if pending.outcome is not None:
            self._pending.popleft()
            self._settle(pending, pending.outcome)
        return True

    def _ahead(self) -> int:
        """Configs in flight so that no GPU ever waits, but no more: each was asked for in
        ignorance of those before it.
        """
        others, compiling = len(self._gpus) - 1, self._queue.num_compiling
        # The first are seeds mostly, which depend on no result: one for each core.
        first = max(FIRST_AHEAD, self._limits.ahead // 2) + others
        ahead = first if compiling is None else self._queue.depth + compiling
        return min(self._limits.ahead + others, ahead)

    @property
    def _in_flight(self) -> list[Pending]:
        return [*(one for one, _ in self._ended), *self._queue.tickets, *self._pending]

    def _may_ask(self, ahead: int) -> bool:
        num_in_flight = len(self._in_flight)
        return (
            not self._used_up
            and not self._is_time_up
            and num_in_flight < ahead
            and len(self._ledger.outcomes) + num_in_flight < self._limits.trials
        )

    def _ask(self) -> _Asked | None:
        """Ask and render, in the search's thread, where nothing waits for it."""
        phases = self._gpus.phases
        with phases.during("ask"):
            proposal = self._searcher.ask()
        if proposal is None:
            return None
        with phases.during("render"):
            return proposal, self._builder.render(proposal.config)

    def _tell(self, proposal: "Proposal", outcome: Outcome) -> None:
        """Tell, in the search's thread."""
        with self._gpus.phases.during("tell"):
            self._searcher.tell(proposal, outcome)

    def _take_asked(self) -> None:
        if self._asking is not None and self._asking.done():
            asked, self._asking = self._asking.result(), None
            self._add(asked)

    def _add(self, asked: _Asked | None) -> None:
        if asked is None:
            self._used_up = True
            return
        pending = Pending(self._next_number, *asked, time.monotonic())
        self._next_number += 1
        self._pending.append(pending)
        self._triage.advance(pending, self._in_flight)

    def _feed(self) -> None:
        """Give the GPU what is ready; set aside what needs no measuring."""
        for pending in list(self._pending):
            self._triage.advance(pending, self._in_flight)
            if pending.outcome is not None:
                self._pending.remove(pending)
                self._ended.append((pending, pending.outcome))
            elif (
                self._queue.has_room and pending.building is not None and pending.building.is_ready
            ):
                self._pending.remove(pending)
                self._gpus.phases.add("compile", time.monotonic() - pending.asked_at)
                self._queue.put(pending, pending.building.candidate())

    def _wait(self) -> None:
        """Until something is done that another can follow, or a tick is over."""
        futures: list[Future[Any]] = [
            pending.compiling
            for pending in self._pending
            if pending.compiling is not None and not pending.compiling.done()
        ]
        futures += self._queue.measuring
        futures += [self._asking] if self._asking is not None else []
        if futures:
            wait(futures, timeout=TICK_S, return_when=FIRST_COMPLETED)

    def _settle(self, pending: Pending, outcome: Outcome) -> None:
        """Into the store first: what the search has heard of is never lost."""
        outcome = self._accuracy.judged(outcome)
        with self._gpus.phases.during("store"):
            improved = self._ledger.record(pending.number, outcome, pending.source)
        self._telling.append(self._search_thread.submit(self._tell, pending.proposal, outcome))
        while self._telling and self._telling[0].done():
            self._telling.popleft().result()
        if not pending.is_reused:
            self._gpus.phases.add("compiler", outcome.compile_seconds)
        self.num_reused += pending.is_reused
        self.num_pruned += pending.is_pruned
        self._on_trial(
            TrialDone(
                number=pending.number,
                outcome=outcome,
                best=self._ledger.best,
                improved=improved,
                reused=pending.is_reused,
                num_trials=len(self._ledger.outcomes),
                elapsed_s=self._seconds(),
                baseline_us=self._gpus.baseline_us,
            )
        )

    def _await_told(self) -> None:
        """Until the search has heard of all that was settled. Raises what it raised."""
        while self._telling:
            self._telling.popleft().result()
