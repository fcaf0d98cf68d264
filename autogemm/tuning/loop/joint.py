"""One search over several families: the order of their turns, and the results they are told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autogemm.model.results.outcome import Objective, Outcome, cost
from autogemm.search import Proposal, Search
from autogemm.tuning.task.accuracy import ANY_ACCURACY, Accuracy

# Trials of each family before they are compared: its seeds, and a few that its model needs; and of
# one that is hopelessly slower than another.
OPENING, OPENING_OF_HOPELESS = 16, 12
# Every so many turns go to the family that had the fewest, unless it is this much behind: the
# model of a family that is never tried again stays as wrong as it is.
VISIT_EVERY = 8
HOPELESS_RATIO = 1.5
# The gain that a search without a model is assumed to expect, as a share of the best time.
UNKNOWN_GAIN = 0.02


def opening_for(trials: int | None, num_families: int, num_seeds: int = 0) -> int:
    """Trials that each family gets first: OPENING, or ``num_seeds``, the most that one of them has,
    and half of OPENING more. Half of all trials at most go there.
    """
    opening = max(OPENING, num_seeds + OPENING // 2)
    return opening if trials is None else min(opening, max(1, trials // (2 * num_families)))


@dataclass(slots=True)
class _Family:
    search: Search
    num_asked: int
    is_used_up: bool = False

    @property
    def best(self) -> float | None:
        return self.search.best[1] if self.search.best is not None else None


class JointSearch:
    """Asks the family from which most is expected; numbers proposals through all families.

    Each family gets ``opening`` trials first, or few where they show it to be far behind. Then the
    turn is that of the family whose next config is expected to improve most on the best of all
    families, but every VISIT_EVERY-th turn is that of the one that had the fewest. The search
    receives the objective's figure, made worse where ``accuracy`` is missed.

    ``searches`` are by family, ``before`` is what the run has found in earlier calls: the store is
    the truth, what a killed process recorded a search may lack. One thread at a time.
    """

    def __init__(
        self,
        searches: Mapping[str, Search],
        *,
        opening: int = OPENING,
        objective: Objective = Objective.TIME,
        before: Sequence[Outcome] = (),
        accuracy: Accuracy = ANY_ACCURACY,
    ) -> None:
        self._opening = opening
        self._objective = objective
        self._accuracy = accuracy
        self._next_number = 0
        self._asked: dict[int, tuple[_Family, Proposal]] = {}
        # The best that is accurate enough: searches are told worse costs of the others.
        self._best_accurate = math.inf
        # Energy / time of the last that had both: for those that were not worth measuring it.
        self._power: float | None = None
        for outcome in before:
            self._note_power(outcome)
        for outcome in before:
            searches[outcome.config.family].remember(*self._lesson(outcome))
        self._families = [_Family(search, search.num_told) for search in searches.values()]
        for outcome in before:
            self._mend(searches[outcome.config.family], outcome)

    @property
    def expected_improvement(self) -> float | None:
        """The share of the best of all families that the next config is expected to save.

        None while a family still in the running has no model.
        """
        families = [family for family in self._families if not family.is_used_up]
        if len(families) > 1 and any(map(self._is_opening, families)):
            return None
        in_running = [family for family in families if self._gap(family) < math.log(HOPELESS_RATIO)]
        if not in_running or any(f.search.expected_improvement is None for f in in_running):
            return None
        return max(self._promise(family) for family in in_running)

    def ask(self) -> Proposal | None:
        """The next config to try, None when all spaces are used up."""
        while waiting := [family for family in self._families if not family.is_used_up]:
            family = self._next(waiting)
            proposal = family.search.ask()
            if proposal is None:
                family.is_used_up = True
                continue
            family.num_asked += 1
            numbered = replace(proposal, number=self._next_number)
            self._asked[self._next_number] = (family, proposal)
            self._next_number += 1
            return numbered
        return None

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """Learn what became of it."""
        family, own = self._asked.pop(proposal.number)
        family.search.tell(own, *self._lesson(outcome))
        self._mend(family.search, outcome)

    def _mend(self, search: Search, outcome: Outcome) -> None:
        """Let what would be fastest, were it accurate enough, be tried with shorter sums."""
        told, excess = self._accuracy.lesson(outcome)
        figure = self._cost(told)
        if figure is None or figure > self._best_accurate:
            return
        if excess > 1.0:
            search.shorten_chains(outcome.config, excess)
        else:
            self._best_accurate = figure

    def _next(self, waiting: list[_Family]) -> _Family:
        if len(waiting) == 1:
            return waiting[0]
        if opening := [family for family in waiting if self._is_opening(family)]:
            return min(opening, key=lambda family: family.num_asked)
        num_asked = sum(family.num_asked for family in self._families)
        near = [family for family in waiting if self._gap(family) < math.log(HOPELESS_RATIO)]
        if near and num_asked % VISIT_EVERY == 0:
            return min(near, key=lambda family: family.num_asked)
        return max(waiting, key=lambda family: (self._promise(family), -self._gap(family)))

    def _is_opening(self, family: _Family) -> bool:
        if family.num_asked < min(self._opening, OPENING_OF_HOPELESS):
            return True
        return family.num_asked < self._opening and not self._is_hopeless(family)

    def _is_hopeless(self, family: _Family) -> bool:
        return family.best is not None and self._gap(family) > math.log(HOPELESS_RATIO)

    def _gap(self, family: _Family) -> float:
        """Log of the family's best over the best of all; infinite if nothing of it has worked."""
        # First: another thread may be told of a best while this one looks at the others.
        own = family.best
        if own is None:
            return math.inf
        return math.log(own / min(one.best for one in self._families if one.best is not None))

    def _promise(self, family: _Family) -> float:
        """Return what the family's next config is expected to save of the best of all families.

        Its search knows what to expect below its own best. Savings taken as exponentially
        distributed, gain * exp(-gap / gain) of that lies below the best of all.
        """
        gain = family.search.expected_improvement
        gain = UNKNOWN_GAIN if gain is None else gain
        return gain * math.exp(-self._gap(family) / gain) if gain > 0.0 else 0.0

    def _lesson(self, outcome: Outcome) -> tuple[Outcome, float | None]:
        """Return what a search is told of an outcome, and its cost."""
        told, factor = self._accuracy.lesson(outcome)
        figure = self._cost(told)
        return told, None if figure is None else factor * figure

    def _cost(self, outcome: Outcome) -> float | None:
        """The objective's figure; where energy was not measured, that of the last known power."""
        self._note_power(outcome)
        known, time_us = outcome.cost(self._objective), outcome.time_us
        if known is not None or time_us is None:
            return known
        energy_mj = math.inf if self._power is None else self._power * time_us
        return cost(self._objective, time_us, energy_mj)

    def _note_power(self, outcome: Outcome) -> None:
        energy_mj = outcome.measurement.energy_mj if outcome.measurement is not None else None
        if energy_mj is not None and outcome.time_us is not None:
            self._power = energy_mj / outcome.time_us
