"""Runs as studies of Optuna, one for each family, for optuna-dashboard."""

from collections.abc import Iterable, Iterator

from autogemm.model.outcome import Status
from autogemm.search import FinishedStudy, FinishedTrial
from autogemm.store import Copy, RunCopy, TrialCopy


def finished_studies(copies: Iterable[Copy]) -> Iterator[FinishedStudy]:
    """The trials among the copies by run and family; one run at a time is held in memory."""
    run: RunCopy | None = None
    by_family: dict[str, list[FinishedTrial]] = {}
    for copy in copies:
        if isinstance(copy, RunCopy):
            yield from _studies(run, by_family)
            run, by_family = copy, {}
        elif isinstance(copy, TrialCopy) and run is not None:
            is_ok = copy.outcome.status is Status.OK
            value = copy.outcome.cost(run.spec.objective) if is_ok else None
            trial = FinishedTrial(copy.outcome, value, copy.finished_at)
            by_family.setdefault(copy.outcome.config.family, []).append(trial)
    yield from _studies(run, by_family)


def _studies(
    run: RunCopy | None, by_family: dict[str, list[FinishedTrial]]
) -> Iterator[FinishedStudy]:
    for family, trials in by_family.items():
        assert run is not None, "a trial comes behind its run"
        yield FinishedStudy(f"run {run.run_id}: {family} {run.spec.problem.label}", trials)
