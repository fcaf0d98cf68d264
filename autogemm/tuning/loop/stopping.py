"""The rules that end a search before its trials, its time or its space are used up."""

from autogemm.model.results.outcome import Finals, Outcome, StopRule

# A model that expects little once may have learnt better by the next trial.
PATIENCE = 5


class StopRules:
    """Reach a ratio to the baseline, or expect too little gain.

    While searching a ratio is provisional: baseline and candidate were timed at different moments.
    The finals decide; if they fall short, the best time must fall by as much before they are asked
    again.
    """

    def __init__(self, until_ratio: float | None, until_gain: float | None) -> None:
        self._until_ratio = until_ratio
        self._until_gain = until_gain
        self._needed_us: float | None = None
        self._num_poor = 0

    def reached(
        self, best: Outcome | None, baseline_us: float | None, expected_gain: float | None
    ) -> StopRule | None:
        """The rule that holds now, after one more trial; None to go on.

        ``expected_gain`` is what the next candidate is expected to save, as a share of the best;
        None if nothing is known of it.
        """
        if self._is_fast_enough(best, baseline_us):
            return StopRule.RATIO
        if self._until_gain is None or expected_gain is None or expected_gain >= self._until_gain:
            self._num_poor = 0
            return None
        self._num_poor += 1
        return StopRule.GAIN if self._num_poor >= PATIENCE else None

    def confirm(self, finals: Finals, best: Outcome | None) -> bool:
        """Whether finals reach the ratio. ``best`` is the best of the search before them.

        Call it when RATIO ended the search.
        """
        confirmed = finals.winner.ratio
        if self._until_ratio is None or confirmed >= self._until_ratio:
            return True
        if best is not None and best.comparable_us is not None:
            self._needed_us = best.comparable_us * confirmed / self._until_ratio
        return False

    def _is_fast_enough(self, best: Outcome | None, baseline_us: float | None) -> bool:
        if self._until_ratio is None or best is None or best.comparable_us is None:
            return False
        if self._needed_us is not None:
            return best.comparable_us <= self._needed_us
        return baseline_us is not None and baseline_us >= self._until_ratio * best.comparable_us
