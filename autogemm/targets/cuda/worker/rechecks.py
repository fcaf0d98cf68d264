"""Verification over and over during the finals: a kernel may be wrong once in a while."""

import math
from collections.abc import Sequence

from autogemm.targets.cuda.worker.problem import Contestant, PreparedProblem

# A kernel that is wrong once in ten launches passes so many with probability 0.9^44 < 1 %.
MIN_CHECKS = 44
# At the end, one after the other: between those after the rounds, which come at a steady pace, a
# fault at every tenth launch could fall for ever.
CHECKS_IN_A_ROW = 22


class Rechecks:
    """Compares results with the reference after each round, on both inputs in turn.

    Each check is a launch of its own on a poisoned C: what a timed launch left there says nothing
    of the one before it. ``complaints`` has, by the contestant's place, what was wrong first.
    """

    def __init__(
        self, prepared: PreparedProblem, contestants: Sequence[Contestant], rounds: int
    ) -> None:
        self._prepared_problem = prepared
        self._contestants = contestants
        per_round = math.ceil((MIN_CHECKS - CHECKS_IN_A_ROW) / rounds)
        # Of each contestant, once all rounds are over.
        self.num_checks = per_round * rounds + CHECKS_IN_A_ROW
        self._after_rounds = iter([per_round] * (rounds - 1) + [per_round + CHECKS_IN_A_ROW])
        self._done = 0
        self.complaints: dict[int, str] = {}

    def after_round(self) -> None:
        """Check who was right so far, until all checks are made (a round may be repeated).

        Timing then goes on from the C that it began with.
        """
        for _ in range(next(self._after_rounds, 0)):
            self._done += 1
            for place, contestant in enumerate(self._contestants):
                if place not in self.complaints:
                    self._check(place, contestant)
        self._prepared_problem.result.reset(self._prepared_problem.timed[0])

    def _check(self, place: int, contestant: Contestant) -> None:
        complaint = self._prepared_problem.complaint_once(contestant, integers=self._done % 2 == 1)
        if complaint:
            self.complaints[place] = (
                f"wrong in check {self._done} of {self.num_checks} in the finals: {complaint}"
            )
