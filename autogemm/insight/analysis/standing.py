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
    own = next((row for row in store.kernel_trials(kernel_id) if _time_us(row) is not None), None)
    if own is None:
        raise NotFoundError(
            f"no trial of kernel {kernel_id} ran well: autogemm db show {kernel_id} has the rest"
        )
    trials = store.trial_rows(BestQuery(run_id=own.run_id))
    times = sorted(time_us for row in trials if (time_us := _time_us(row)) is not None)
    own_us = _time_us(own)
    assert own_us is not None, "chosen so"
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
    is_timed = _time_us(own) is not None and _time_us(other) is not None
    if is_timed and own.outcome.measurement is not None and other.outcome.measurement is not None:
        compared = compare_samples(
            own.outcome.measurement.samples_us, other.outcome.measurement.samples_us
        )
    return Tried(name, mine[name], theirs[name], other, compared)


def _time_us(row: TrialRow) -> float | None:
    return row.outcome.time_us


def _fastest_first(tried: Tried) -> tuple[bool, float]:
    time_us = _time_us(tried.trial)
    return (time_us is None, time_us or 0.0)
