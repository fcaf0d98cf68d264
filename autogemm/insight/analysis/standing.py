"""The place of a kernel in its run, and the results of configs next to it."""

from dataclasses import dataclass

from autogemm.model.config import Value
from autogemm.model.results.change import Compared, compare_samples
from autogemm.model.results.outcome import Provenance
from autogemm.store import BestQuery, Store, TrialRow
from autogemm.support.errors import NotFoundError


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial of the same run whose config differs in one parameter.

    ``compared`` says how it is beside the kernel; None for one without a time.
    """

    parameter: str
    before: Value
    after: Value
    trial: TrialRow
    compared: Compared | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Place 1 is the fastest of the ``num_ok`` trials of the run that ran well."""

    trial: TrialRow
    place: int
    num_ok: int
    fastest_us: float
    neighbours: tuple[Tried, ...]

    @property
    def provenance(self) -> Provenance:
        """The source of the times."""
        return self.trial.provenance


def standing(store: Store, kernel_id: int) -> Standing:
    """Return the place in the newest run that the kernel ran well in; fastest neighbours first.

    Times while searching, one after the other. Raises NotFoundError if none of its trials ran well.
    """
    trials = store.kernel_trials(kernel_id)
    own = next((row for row in trials if row.outcome.time_us is not None), None)
    if own is None or own.outcome.time_us is None:
        raise NotFoundError(
            f"no trial of kernel {kernel_id} ran well: autogemm db show {kernel_id} has the rest"
        )
    trials = store.trial_rows(BestQuery(run_id=own.run_id))
    times = sorted(us for row in trials if (us := row.outcome.time_us) is not None)
    own_us = own.outcome.time_us
    tried = [one for row in trials if (one := _tried(own, row)) is not None]
    return Standing(
        trial=own,
        place=1 + sum(time_us < own_us for time_us in times),
        num_ok=len(times),
        fastest_us=times[0],
        neighbours=tuple(sorted(tried, key=_fastest_first)),
    )


def _tried(own: TrialRow, other: TrialRow) -> Tried | None:
    mine, theirs = own.outcome.config, other.outcome.config
    if theirs.family != mine.family:
        return None
    values = theirs.as_dict()
    changed = [name for name, value in mine.values if values.get(name) != value]
    if len(changed) != 1:
        return None
    (name,) = changed
    compared = None
    # A kernel with a wrong result may have been timed too.
    is_timed = own.outcome.time_us is not None and other.outcome.time_us is not None
    before, after = own.outcome.measurement, other.outcome.measurement
    if is_timed and before is not None and after is not None:
        compared = compare_samples(before.samples_us, after.samples_us)
    return Tried(name, mine[name], theirs[name], other, compared)


def _fastest_first(tried: Tried) -> tuple[bool, float]:
    time_us = tried.trial.outcome.time_us
    return (time_us is None, time_us or 0.0)
