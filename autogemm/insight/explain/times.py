"""Times that the database has of a config and its neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Provenance
from autogemm.store import Store


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one run, by the config's sha256. Clocks drift: those of two runs do not compare."""

    run_id: int
    provenance: Provenance
    own_us: float
    time_us: Mapping[str, float]


def times_of(store: Store, config: Config, problem: Problem, device: Device) -> Times | None:
    """Of the runs on this GPU and problem that timed the config, the one with the most trials.

    The newest if several have as many; None if there is none. Times are medians while searching.
    """
    candidates = [
        Times(run.run_id, run.provenance, run.time_us[config.sha256], run.time_us)
        for run in store.run_times(problem, device, config.family)
        if config.sha256 in run.time_us
    ]
    return max(candidates, key=lambda times: (len(times.time_us), times.run_id), default=None)
