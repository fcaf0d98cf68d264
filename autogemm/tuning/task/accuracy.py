"""Accuracy as a condition: a candidate less accurate than asked for cannot win.

The error is that of `autogemm.model.results.outcome.Verification`:
||C - reference||_F / ||reference||_F against a float64 reference, of the candidate and the baseline
on the same inputs.
"""

import math
from dataclasses import dataclass, replace

from autogemm.model.results.finals import without_winner
from autogemm.model.results.outcome import Finals, Objective, Outcome, Status, Verification
from autogemm.support.errors import CertificationError, UsageError
from autogemm.targets import Target
from autogemm.tuning.task.request import AS_BASELINE


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The largest relative error that a winner may have; infinite where none was asked for."""

    limit: float = math.inf

    def judged(self, outcome: Outcome) -> Outcome:
        """The outcome, INACCURATE where its error is above the limit and OK where it is not.

        An outcome that another limit judged before is judged anew. Every other end stays.
        """
        if outcome.status not in (Status.OK, Status.INACCURATE):
            return outcome
        reason = self.complaint(outcome.verification)
        return replace(outcome, status=Status.INACCURATE if reason else Status.OK, reason=reason)

    def complaint(self, verification: Verification | None) -> str:
        """Return what is wrong with a result of that error, empty if nothing is."""
        if math.isinf(self.limit):
            return ""
        if verification is None:
            return f"its error is not known, {self.limit:.4g} is allowed"
        error = verification.error
        return "" if error <= self.limit else f"error {error:.4g}, {self.limit:.4g} is allowed"

    def lesson(self, outcome: Outcome) -> tuple[Outcome, float]:
        """Return what the search is told: the outcome with its time, and the factor of that time.

        The factor is error / limit for one that is not accurate enough: the further off, the slower
        it looks, so that the search keeps what it learned of times and turns to those that may win.
        """
        if outcome.status is not Status.INACCURATE or outcome.verification is None:
            return outcome, 1.0
        excess = outcome.verification.error / self.limit
        return replace(outcome, status=Status.OK, reason=""), max(1.0, excess)

    def kept(self, finals: Finals, seed: int, objective: Objective) -> Finals:
        """The finals with a winner that is accurate enough.

        Raises CertificationError when none is any more.
        """
        while reason := self.complaint(finals.winner.verification):
            if len(finals.entries) == 1:
                raise CertificationError(f"no finalist is accurate enough: {reason}")
            finals = without_winner(finals, reason, seed, objective, Status.INACCURATE)
        return finals


ANY_ACCURACY = Accuracy()


def accuracy_for(max_error: str, target: Target) -> Accuracy:
    """The condition on a prepared target; ``max_error`` as `checked_max_error` gives it.

    Raises UsageError where nothing is known of errors there.
    """
    if not max_error:
        return ANY_ACCURACY
    if target.own_family is not None:
        raise UsageError("that recording contains no errors, only times: leave --max-error out")
    if max_error != AS_BASELINE:
        return Accuracy(float(max_error))
    if target.baseline_error is None:
        raise UsageError(
            f"the error of cuBLAS is not known there: give --max-error a number, not {AS_BASELINE}"
        )
    return Accuracy(target.baseline_error)
