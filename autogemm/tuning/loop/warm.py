"""Warm start: the winners of the most similar stored results are tried before anything else."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from autogemm.model.config import Config
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment
from autogemm.model.similarity import distance
from autogemm.space import Family
from autogemm.store import DecidedRow, RunSpec
from autogemm.support.errors import UsageError
from autogemm.tuning.task.spaces import Spaces

# Results that are looked at, and of the nearest of them so many finalists; of the others one.
NUM_RESULTS = 3
NUM_OF_NEAREST = 3
# Doublings. Beyond it what was good there says nothing here.
TOO_FAR = 8.0


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
    by_distance = [
        (distance(spec.problem, spec.device, row.spec.problem, row.spec.device), row)
        for row in newest.values()
    ]
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
