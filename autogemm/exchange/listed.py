"""Between a database and the formats that list the configs of one kernel with their times.

Kernel Tuner's caches and T4 files hold one kernel on one GPU for one problem; neither sources nor
finals.
"""

from datetime import datetime
from pathlib import Path

from autogemm.formats import Entry, ListedRecording, ranked
from autogemm.model.config import Value
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Environment, Outcome, Provenance, Status
from autogemm.store import BestQuery, Copy, RunCopy, RunSpec, RunState, Store, TrialCopy
from autogemm.support.errors import NotFoundError, UsageError
from autogemm.targets import MeasureOptions
from autogemm.targets.recorded import ListedTarget

# GPU, problem, family, and its parameters: a family may get one more in a later version.
_Kind = tuple[str, Problem, str, tuple[str, ...]]

# Stands for the sampler of a run that was read from such a file.
IMPORTED = "imported"
_MAX_NAMED = 3


def listed_selection(store: Store, query: BestQuery, status: Status | None) -> ListedRecording:
    """The trials that match as a list: of each config the newest.

    Raises NotFoundError when there are none, UsageError when they are of several kernels, GPUs or
    problems.
    """
    spaces: dict[_Kind, dict[tuple[tuple[str, Value], ...], Outcome]] = {}
    spec: RunSpec | None = None
    for copy in store.copies(query, status):
        if isinstance(copy, RunCopy):
            spec = copy.spec
        elif isinstance(copy, TrialCopy) and spec is not None:
            config = copy.outcome.config
            names = tuple(name for name, _ in config)
            found = spaces.setdefault((spec.device.name, spec.problem, config.family, names), {})
            found.pop(config.values, None)
            found[config.values] = copy.outcome
    if not spaces:
        raise NotFoundError("no trials match: autogemm db list shows the runs")
    if len(spaces) > 1:
        named = [
            f"{family} for {problem.label} on {gpu}, {len(names)} parameters"
            for gpu, problem, family, names in spaces
        ]
        more = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
        raise UsageError(
            f"this format holds one kernel on one GPU for one problem, {len(named)} match "
            f"({'; '.join(named[:_MAX_NAMED])}{more}): narrow with --gpu --size --layout --family "
            "or --run"
        )
    (((gpu, problem, family, names), outcomes),) = spaces.items()
    entries = tuple(_entry(outcome) for outcome in outcomes.values())
    columns = dict(zip(names, zip(*(entry.values for entry in entries), strict=True), strict=True))
    return ListedRecording(
        device_name=gpu,
        kernel_name=family,
        problem_size=(problem.m, problem.n, problem.k),
        parameters={name: ranked(name, found) for name, found in columns.items()},
        entries=entries,
        is_closed=True,
        sha256="",
        problem=problem,
        written_by="autogemm",
    )


def _entry(outcome: Outcome) -> Entry:
    measured = outcome.measurement
    return Entry(
        values=tuple(value for _, value in outcome.config),
        status=outcome.status,
        reason="" if outcome.status is Status.OK else f"{outcome.status}: {outcome.reason}",
        time_us=outcome.time_us,
        spent_s=outcome.compile_seconds + outcome.measure_seconds,
        compile_s=outcome.compile_seconds,
        samples_us=measured.samples_us if measured is not None else (),
    )


def listed_copies(
    path: Path, listed: ListedRecording, size: str | None, now: datetime
) -> tuple[tuple[str, ...], tuple[Copy, ...]]:
    """Notes on a Kernel Tuner cache or T4 file, and its list as one finished run of recorded times.

    ``size`` is ``4096`` or ``MxNxK`` and may be None where the file says it. The same content is
    the same run. Raises UsageError for a size that is missing or another than the file's.
    """
    target = ListedTarget(path, listed)
    problem = _problem(target, size)
    target.prepare(problem, MeasureOptions())
    spec = RunSpec(
        problem=problem,
        device=target.device,
        environment=Environment(),
        families=(target.family.name,),
        family_sha256=target.listed.sha256,
        fix=(),
        sampler=IMPORTED,
        seed=0,
        provenance=Provenance.RECORDED,
        command=f"autogemm db import {path.name}",
    )
    run = RunCopy(0, spec, RunState.FINISHED, finished_at=now)
    trials = (
        TrialCopy(0, number, target.outcome_of(entry), now)
        for number, entry in enumerate(target.listed.entries)
    )
    return target.caveats(target.family), (run, *trials)


def _problem(target: ListedTarget, size: str | None) -> Problem:
    """The problem that the file says; a size of the user's for what it does not say."""
    said = target.listed.problem
    if said is not None and (size is None or Problem.parse_size(size) == (said.m, said.n, said.k)):
        return said
    if not (size or target.own_size):
        raise UsageError(f"{target.path.name} does not state M, N and K: give --size")
    return Problem.of_size(size or target.own_size)
