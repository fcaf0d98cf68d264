"""The rules that end a search before its trials, its time or its space are used up."""

from autogemm.outcome import Finals, Outcome, StopRule

# A model that expects little once may have learnt better by the next trial.
PATIENCE = 5


class StopRules:
    """Reach a ratio to the baseline, or expect too little gain.

    While searching a ratio is provisional: baseline and candidate were timed at different moments.
    The finals decide; by how much they fall short is asked for on top from then on.
    """

    def __init__(self, until_ratio: float | None, until_gain: float | None) -> None:
        self._until_ratio = until_ratio
        self._until_gain = until_gain
        self._needed_ratio = until_ratio
        self._num_poor = 0

    def reached(
        self, best: Outcome | None, baseline_us: float | None, expected_gain: float | None
    ) -> StopRule | None:
        """The rule that holds now, after one more trial; None to go on.

        ``expected_gain`` is what the next candidate is expected to save, as a share of the best;
        None if nothing is known of it.
        """
        ratio = provisional_ratio(best, baseline_us)
        if ratio is not None and self._needed_ratio is not None and ratio >= self._needed_ratio:
            return StopRule.RATIO
        if self._until_gain is None or expected_gain is None or expected_gain >= self._until_gain:
            self._num_poor = 0
            return None
        self._num_poor += 1
        return StopRule.GAIN if self._num_poor >= PATIENCE else None

    def confirm(
        self, finals: Finals | None, best: Outcome | None, baseline_us: float | None
    ) -> bool:
        """Whether finals reach the ratio; if not, the search must show as much more as they lack.

        Call it when RATIO ended the search.
        """
        if finals is None or self._until_ratio is None or self._needed_ratio is None:
            return False
        confirmed = finals.winner.ratio
        if confirmed >= self._until_ratio:
            return True
        shown = max(provisional_ratio(best, baseline_us) or 0.0, self._needed_ratio)
        self._needed_ratio = self._until_ratio * shown / confirmed
        return False


def provisional_ratio(best: Outcome | None, baseline_us: float | None) -> float | None:
    """Baseline time / best time, None if one is not known."""
    if best is None or best.time_us is None or baseline_us is None:
        return None
    return baseline_us / best.time_us
