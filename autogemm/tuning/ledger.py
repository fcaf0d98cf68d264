"""What a run has found so far, in memory and in the store."""

import math

from autogemm.config import Config
from autogemm.kernel import KernelSource
from autogemm.outcome import Outcome, Status
from autogemm.store import RunSpec, Store

# Ends that another try would repeat.
LASTING = frozenset({Status.OK, Status.COMPILE_FAILED, Status.WRONG_RESULT})


class Ledger:
    """All outcomes of one run, those of calls before this one included.

    ``best`` has the least of what the run's objective minimises.
    """

    def __init__(self, store: Store, run_id: int, spec: RunSpec) -> None:
        self._store = store
        self._run_id = run_id
        self._spec = spec
        self.reload()

    def reload(self) -> None:
        """Read the run again: its finals may have found a candidate wrong."""
        self.outcomes: list[Outcome] = []
        self.best: Outcome | None = None
        self._by_kernel: dict[str, Outcome] = {}
        self._by_config: dict[str, Outcome] = {}
        for outcome in self._store.trials(self._run_id):
            self._note(outcome)

    def recorded(self, config: Config) -> Outcome | None:
        """What this run has recorded for the config, None if nothing."""
        return self._by_config.get(config.sha256)

    def twin(self, source: KernelSource) -> Outcome | None:
        """A lasting outcome of the same kernel in this run: two configs may render one text."""
        return self._by_kernel.get(source.sha256)

    def known(self, source: KernelSource) -> Outcome | None:
        """A lasting outcome of the same kernel from this run, or an earlier one in the same place
        and with the same cache state.
        """
        spec = self._spec
        known = self.twin(source) or self._store.known_outcome(
            source.sha256, spec.problem, spec.device, spec.environment, spec.provenance, spec.l2
        )
        if known is not None and known.time_us is not None and known.cost(spec.objective) is None:
            # From a run that did not measure energy.
            return None
        return known

    def record(self, number: int, outcome: Outcome, source: KernelSource | None) -> bool:
        """Keep one more outcome, durably. True if it is the best so far."""
        self._store.record_trial(self._run_id, number, outcome, source)
        return self._note(outcome)

    def _note(self, outcome: Outcome) -> bool:
        self.outcomes.append(outcome)
        self._by_config[outcome.config.sha256] = outcome
        if outcome.status in LASTING and outcome.kernel_sha256:
            self._by_kernel.setdefault(outcome.kernel_sha256, outcome)
        objective = self._spec.objective
        cost = outcome.cost(objective)
        best = self.best.cost(objective) if self.best is not None else None
        if cost is None or cost >= (best or math.inf):
            return False
        self.best = outcome
        return True
