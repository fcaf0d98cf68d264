"""Times that the database has of a config and its neighbours."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from autogemm.config import Config
from autogemm.device import Device
from autogemm.outcome import Provenance, Status
from autogemm.problem import Problem
from autogemm.store import BestQuery, Store, TrialRow


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
    query = BestQuery(
        gpu=device.name,
        size=f"{problem.m}x{problem.n}x{problem.k}",
        layout=problem.layout.value,
        family=config.family,
    )
    by_run: dict[int, list[TrialRow]] = defaultdict(list)
    for row in store.trial_rows(query, Status.OK):
        if row.problem == problem and row.device.name == device.name:
            by_run[row.run_id].append(row)
    candidates = [
        times for run_id, rows in by_run.items() if (times := _of_run(run_id, rows, config))
    ]
    return max(candidates, key=lambda times: (len(times.time_us), times.run_id), default=None)


def _of_run(run_id: int, rows: list[TrialRow], config: Config) -> Times | None:
    time_us = {
        row.outcome.config.sha256: row.outcome.time_us
        for row in rows
        if row.outcome.time_us is not None
    }
    own_us = time_us.get(config.sha256)
    if own_us is None:
        return None
    return Times(run_id, rows[0].provenance, own_us, time_us)
