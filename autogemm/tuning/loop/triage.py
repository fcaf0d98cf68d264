"""The outcomes of configs that are plain without a GPU."""

import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Candidate, CompiledKernel, KernelSource
from autogemm.model.results.outcome import Outcome, Status
from autogemm.support.errors import CompilerDiedError, CompileTimeoutError, KernelCompileError
from autogemm.tuning.loop.ledger import Ledger
from autogemm.tuning.loop.static_checks import why_hopeless, why_not_launchable
from autogemm.tuning.task.build import Builder, Building

if TYPE_CHECKING:
    from autogemm.search import Proposal

# A kernel that is not compiled so long after it was asked for is given up. The compiler has a
# shorter limit of its own; this one holds where many wait for few processes.
COMPILE_DEADLINE_S = 120.0


@dataclass(slots=True)
class Pending:
    """One config between ask and tell. ``number`` is its trial's in the store.

    ``building`` is None while nothing has been done for it, ``outcome`` until it is known.
    """

    number: int
    proposal: "Proposal"
    source: KernelSource
    asked_at: float
    building: Building | None = None
    outcome: Outcome | None = None
    is_reused: bool = False
    is_pruned: bool = False

    @property
    def compiling(self) -> Future[CompiledKernel] | None:
        """The compiler's work on it, None where there is none."""
        return self.building.compiling if self.building is not None else None

    def ended(self, status: Status, reason: str) -> Outcome:
        """An outcome without having been measured."""
        return Outcome(self.proposal.config, status, reason, self.source.sha256)


@dataclass(frozen=True, slots=True)
class Triage:
    """Begins to make what must be tried, and gives everything else its outcome.

    With ``prune`` a candidate that static facts rule out is rejected.
    """

    builder: Builder
    ledger: Ledger
    device: Device
    prune: bool

    def advance(self, pending: Pending, in_flight: Iterable[Pending]) -> None:
        """One step further, unless it has to wait: for the compiler, or for a twin.

        A twin is a config of the same source. While one of ``in_flight`` is being made or measured
        the others wait, and take its outcome if another try would repeat that.
        """
        building = pending.building
        if pending.outcome is not None:
            return
        if building is None:
            if known := self.ledger.known(pending.source):
                pending.outcome = replace(known, config=pending.proposal.config)
                pending.is_reused = True
            elif not _has_twin(pending, in_flight):
                self._begin(pending)
        elif building.is_ready:
            self._check_compiled(pending, building)
        elif time.monotonic() - pending.asked_at > COMPILE_DEADLINE_S:
            reason = f"not compiled after {COMPILE_DEADLINE_S:.0f} s"
            pending.outcome = pending.ended(Status.COMPILE_TIMEOUT, reason)

    def _begin(self, pending: Pending) -> None:
        plan = self.builder.plan(pending.source)
        if reason := self._why_hopeless(Candidate(pending.source, plan, None)):
            pending.outcome = pending.ended(Status.REJECTED, reason)
            pending.is_pruned = True
        else:
            pending.building = self.builder.start(pending.source, plan)

    def _check_compiled(self, pending: Pending, building: Building) -> None:
        """Give a compiled candidate an outcome if it need not be tried."""
        try:
            candidate = building.candidate()
        except KernelCompileError as error:
            pending.outcome = pending.ended(_compile_status(error), str(error))
            return
        compiled = candidate.compiled
        if compiled is None:
            return
        reason = why_not_launchable(compiled, building.plan, self.device)
        if not reason:
            reason = self._why_hopeless(candidate)
            pending.is_pruned = bool(reason)
        if reason:
            pending.outcome = replace(
                pending.ended(Status.REJECTED, reason),
                resources=compiled.resources,
                compile_seconds=compiled.seconds,
            )

    def _why_hopeless(self, candidate: Candidate) -> str:
        best_us = self.ledger.best_us
        if not self.prune or best_us is None:
            return ""
        return why_hopeless(candidate, self.builder.problem, self.device, best_us)


def _has_twin(pending: Pending, in_flight: Iterable[Pending]) -> bool:
    return any(
        one.building is not None and one.source.sha256 == pending.source.sha256 for one in in_flight
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
