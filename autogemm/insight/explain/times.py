"""Times that the database has of a config, and what stands where a part cannot be given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.store import Store
from autogemm.support.errors import AutogemmError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one run, by the config's sha256. Clocks drift: those of two runs do not compare."""

    run_id: int
    provenance: Provenance
    own_us: float
    time_us: Mapping[str, float]


def times_of(store: Store, config: Config, problem: Problem, device: Device) -> Times | None:
    """Return the times of the run with the most trials that timed the config here, or None.

    The newest run if several have as many. Times are medians while searching.
    """
    candidates = [
        Times(run.run_id, run.provenance, run.time_us[config.sha256], run.time_us)
        for run in store.run_times(problem, device, config.family)
        if config.sha256 in run.time_us
    ]
    return max(candidates, key=lambda times: (len(times.time_us), times.run_id), default=None)


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands where a result would; ``missing`` says why, and what to install."""

    missing: str


def or_missing(make: Callable[[], T]) -> T | Missing:
    """Return what is made, or the error of our own for which it cannot be."""
    try:
        return make()
    except AutogemmError as error:
        return Missing(str(error))
