"""Warm start: the winners of the most similar stored results are tried before anything else."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment
from autogemm.model.similarity import distance
from autogemm.space import Family
from autogemm.store import DecidedRow, DecidedRun, RunSpec, Store
from autogemm.support.errors import UsageError
from autogemm.tuning.task.spaces import Spaces

# Results that are looked at, and of the nearest of them so many finalists; of the others one.
NUM_RESULTS = 3
NUM_OF_NEAREST = 3
# Doublings. Beyond it what was good there says nothing here.
TOO_FAR = 8.0
# How far a database is looked through for them, and of how many problems results are read there;
# each is tried where those before it gave too few that are of use.
_FEW = 2 * NUM_RESULTS
_PARTS = ((1 / 64, _FEW), (1.0, _FEW), (TOO_FAR, _FEW), (TOO_FAR, sys.maxsize))


@dataclass(frozen=True, slots=True)
class WarmStart:
    """One result of the database or the catalogue, and its configs, best first."""

    problem: Problem
    device_name: str
    run_id: int
    configs: tuple[Config, ...]
    origin: str = ""

    def __str__(self) -> str:
        where = self.origin or f"run {self.run_id}"
        return f"{self.problem.label} on {self.device_name} ({where})"


def warm_starts(
    rows: Sequence[DecidedRow], spec: RunSpec, families: Sequence[Family], run_id: int
) -> tuple[WarmStart, ...]:
    """The results most similar to the run's problem and GPU, nearest first.

    Runs that began before run ``run_id`` count, so that a run that is resumed starts as it did, but
    those of the same problem in the same place, so that a run that is repeated starts as the first
    did. If there are several for one problem and GPU, the newest counts; rows of the catalogue are
    older than any run. Configs that these families cannot express are left out.
    """
    newest: dict[tuple[Problem, str], DecidedRow] = {}
    for row in sorted(rows, key=lambda row: row.run_id):
        is_repeat = _place(row.spec) == _place(spec)
        if row.run_id < run_id and row.spec.objective is spec.objective and not is_repeat:
            newest[row.spec.problem, row.spec.device.name] = row
    by_distance = [(_distance(row, spec), row) for row in newest.values()]
    by_distance.sort(key=lambda pair: (pair[0], -pair[1].run_id))
    starts: list[WarmStart] = []
    for steps, row in by_distance:
        if steps > TOO_FAR or len(starts) == NUM_RESULTS:
            break
        most = 1 if starts else NUM_OF_NEAREST
        configs = [entry.config for entry in row.finals.entries if entry.config is not None]
        known = tuple(filter(None, (_known(config, families) for config in configs)))[:most]
        if known:
            device_name = row.spec.device.name
            starts.append(WarmStart(row.spec.problem, device_name, row.run_id, known, row.origin))
    return tuple(starts)


def nearest_starts(
    store: Store,
    shipped: Sequence[DecidedRow],
    spec: RunSpec,
    families: Sequence[Family],
    run_id: int,
) -> tuple[WarmStart, ...]:
    """`warm_starts` of the catalogue's rows and all that a database holds.

    Only the nearest part of the database is read; it grows until there are enough, so that a large
    database costs no more than a small one.
    """
    starts: tuple[WarmStart, ...] = ()
    for steps, most in _PARTS:
        runs = [run for run in store.decided_runs(spec.problem, steps) if run.run_id < run_id]
        near = _nearest(runs, spec, steps)
        run_ids = list(chain.from_iterable(near[:most]))
        known = [row for row in shipped if _distance(row, spec) <= steps]
        known += store.decided(run_ids=run_ids)
        starts = warm_starts(known, spec, families, run_id)
        is_all = steps == TOO_FAR and len(near) <= most
        if is_all or len(starts) == NUM_RESULTS:
            break
    return starts


def _distance(row: DecidedRow, spec: RunSpec) -> float:
    return distance(spec.problem, spec.device, row.spec.problem, row.spec.device)


def _nearest(runs: Sequence[DecidedRun], spec: RunSpec, steps: float) -> list[list[int]]:
    """The runs of each problem and GPU within that distance, the nearest first."""
    alike: dict[tuple[Problem, Device], list[int]] = {}
    for run in runs:
        if run.objective is spec.objective:
            alike.setdefault((run.problem, run.device), []).append(run.run_id)
    by_distance = sorted(
        (distance(spec.problem, spec.device, *task), -max(run_ids), run_ids)
        for task, run_ids in alike.items()
    )
    return [run_ids for away, _, run_ids in by_distance if away <= steps]


def warmed(spaces: Spaces, starts: Sequence[WarmStart]) -> Spaces:
    """The spaces with these configs, moved to the nearest legal ones, in front of their seeds."""
    configs = [config for start in starts for config in start.configs]
    return replace(
        spaces,
        spaces=tuple(
            replace(space, warm=tuple(one for one in configs if one.family == space.family.name))
            for space in spaces.spaces
        ),
    )


def _place(spec: RunSpec) -> tuple[Problem, str, Environment]:
    return (spec.problem, spec.device.name, spec.environment)


def _known(config: Config, families: Sequence[Family]) -> Config | None:
    """The config as its family has it today; None where none of them does."""
    for family in families:
        with suppress(UsageError):
            found = family.completed(config)
            if all(parameter.allows(found[parameter.name]) for parameter in family.parameters):
                return found
    return None
