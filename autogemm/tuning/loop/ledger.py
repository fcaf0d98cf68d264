"""The outcomes of a run so far, in memory and in the store."""

import logging
import math
import time

from autogemm.model.kernel import KernelSource
from autogemm.model.results.outcome import Outcome, Status
from autogemm.store import RunSpec, Store
from autogemm.support.errors import StoreLockedError
from autogemm.tuning.task.accuracy import ANY_ACCURACY, Accuracy

# Ends that another try would repeat.
LASTING = frozenset({Status.OK, Status.INACCURATE, Status.COMPILE_FAILED, Status.WRONG_RESULT})

# How long another process may hold the database's lock before the run ends. Results are kept in
# memory in the meantime, and the GPU continues with candidates that are already queued.
LOCK_PATIENCE_S = 600.0

_log = logging.getLogger(__name__)


class Ledger:
    """All outcomes of one run, those of calls before this one included.

    ``best`` has the least of what the run's objective minimises. ``next_number`` is that of the
    first trial that is added from here on.
    """

    def __init__(
        self, store: Store, run_id: int, spec: RunSpec, accuracy: Accuracy = ANY_ACCURACY
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._spec = spec
        self._accuracy = accuracy
        self.reload()

    def reload(self) -> None:
        """Read the run again: its finals may have found a candidate wrong."""
        self.outcomes: list[Outcome] = []
        self.best: Outcome | None = None
        self._by_kernel: dict[str, Outcome] = {}
        self.next_number = self._store.next_trial_number(self._run_id)
        self._known_before = self._store.known_kernels(self._spec)
        for outcome in self._store.trials(self._run_id):
            self._note(outcome)

    @property
    def best_us(self) -> float | None:
        """The time of the best at the pace of the run's first GPU, None while there is none."""
        return self.best.comparable_us if self.best is not None else None

    def known(self, source: KernelSource) -> Outcome | None:
        """A lasting outcome of the same kernel from this run, or an earlier one in the same place
        and with the same cache state.
        """
        # Two configs may render one text.
        twin = self._by_kernel.get(source.sha256)
        if twin is not None or source.sha256 not in self._known_before:
            return twin
        known = self._store.known_outcome(source.sha256, self._spec)
        if known is None:
            return None
        # The other run may have asked for another accuracy.
        known = self._accuracy.judged(known)
        # It may not have measured energy either.
        lacks_cost = known.time_us is not None and known.cost(self._spec.objective) is None
        return None if lacks_cost else known

    def record(self, number: int, outcome: Outcome, source: KernelSource | None) -> bool:
        """Keep one more outcome, durably. True if it is the best so far.

        Waits while another process holds the database's lock. The source is kept with it if the
        outcome is of a kernel, and not of a config alone. Raises StoreError.
        """
        kept = source if outcome.kernel_sha256 else None
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                self._store.record_trial(self._run_id, number, outcome, kept)
            except StoreLockedError as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("waiting to store trial %d: %s", number, error)
            else:
                return self._note(outcome)

    def _note(self, outcome: Outcome) -> bool:
        self.outcomes.append(outcome)
        if outcome.status in LASTING and outcome.kernel_sha256:
            self._by_kernel.setdefault(outcome.kernel_sha256, outcome)
        objective = self._spec.objective
        cost = outcome.cost(objective)
        best = self.best.cost(objective) if self.best is not None else None
        if cost is None or cost >= (best or math.inf):
            return False
        self.best = outcome
        return True
