"""Medians of replays: over seeds, then over spaces."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autogemm.bench.strategies.plan import Job, Plan
from autogemm.bench.strategies.replaying import Replay

Floats = npt.NDArray[np.float64]

MARKS = (25, 50, 100, 200, 400, 800)
# Points of the curves over seconds.
NUM_SECONDS = 200


@dataclass(frozen=True, eq=False)
class Curve:
    """One strategy. ``space`` is the recording, or None for the median over all of them.

    ``median``, ``low`` and ``high`` are the median and the quartiles over the seeds of the fraction
    of the optimum after 1, 2, ... evaluations; over spaces the medians of these. ``by_seconds`` has
    the median at `Summary.seconds`; None where the recordings do not contain them.
    """

    strategy: str
    batch: int
    space: str | None
    median: Floats
    low: Floats
    high: Floats
    by_seconds: Floats | None
    ms_per_proposal: float

    @property
    def label(self) -> str:
        """The strategy, and the batch unless it is 1."""
        return self.strategy if self.batch == 1 else f"{self.strategy}, batches of {self.batch}"

    def after(self, evaluations: int) -> float:
        """The median fraction of the optimum after so many evaluations."""
        return float(self.median[min(evaluations, len(self.median)) - 1])


@dataclass(frozen=True, eq=False)
class Summary:
    """``curves`` over all spaces, in the order of the plan, and ``by_space`` for each.

    ``seconds`` are recorded ones. If ``includes_compiling``, they cover compiling, verifying and
    timing, and only recordings that contain all three count; otherwise they cover the timed
    launches alone.
    """

    curves: tuple[Curve, ...]
    by_space: tuple[Curve, ...]
    marks: tuple[int, ...]
    seconds: Floats | None
    includes_compiling: bool


def summarise(plan: Plan, replays: Iterable[Replay]) -> Summary:
    """The medians of the plan's replays, whatever the order in which they came."""
    groups: dict[Key, list[Replay]] = {_key(job): [] for job in plan.jobs()}
    every = list(replays)
    for one in every:
        groups[_key(one.job)].append(one)
    known = [one for one in every if one.spent_s is not None]
    whole = [one for one in known if one.includes_compiling]
    seconds = _seconds(whole or known)
    by_space = tuple(
        _over_seeds(group, seconds, includes_compiling=bool(whole)) for group in groups.values()
    )
    kinds = dict.fromkeys((curve.strategy, curve.batch) for curve in by_space)
    curves = tuple(
        _over_spaces([c for c in by_space if (c.strategy, c.batch) == kind]) for kind in kinds
    )
    marks = (*(mark for mark in MARKS if mark < plan.evaluations), plan.evaluations)
    return Summary(curves, by_space, marks, seconds, bool(whole))


Key = tuple[Path, str, int]


def _key(job: Job) -> Key:
    return (job.path, job.strategy, job.batch)


def _over_seeds(group: list[Replay], seconds: Floats | None, *, includes_compiling: bool) -> Curve:
    job = group[0].job
    fractions = np.stack([one.fractions for one in group])
    low, median, high = np.quantile(fractions, (0.25, 0.5, 0.75), axis=0)
    by_seconds = None
    if seconds is not None and group[0].includes_compiling >= includes_compiling:
        reached = [_at(seconds, one) for one in group if one.spent_s is not None]
        by_seconds = np.median(reached, axis=0) if reached else None
    ms = float(np.median([one.ms_per_proposal for one in group]))
    name = job.path.name.partition(".")[0]
    return Curve(job.strategy, job.batch, name, median, low, high, by_seconds, ms)


def _over_spaces(curves: Sequence[Curve]) -> Curve:
    seconds = [c.by_seconds for c in curves if c.by_seconds is not None]
    return Curve(
        strategy=curves[0].strategy,
        batch=curves[0].batch,
        space=None,
        median=np.median([c.median for c in curves], axis=0),
        low=np.median([c.low for c in curves], axis=0),
        high=np.median([c.high for c in curves], axis=0),
        by_seconds=np.median(seconds, axis=0) if seconds else None,
        ms_per_proposal=float(np.median([c.ms_per_proposal for c in curves])),
    )


def _seconds(replays: Sequence[Replay]) -> Floats | None:
    """Points in time, evenly spread on a logarithmic axis over what the replays cover."""
    spent = [one.spent_s[one.spent_s > 0] for one in replays if one.spent_s is not None]
    spent = [s for s in spent if len(s)]
    if not spent:
        return None
    return np.geomspace(min(s[0] for s in spent), max(s[-1] for s in spent), NUM_SECONDS)


def _at(seconds: Floats, one: Replay) -> Floats:
    """The fraction reached after so many recorded seconds; 0 before the first evaluation ended."""
    assert one.spent_s is not None, "asked for only where they are known"
    done = np.searchsorted(one.spent_s, seconds, side="right")
    reached: Floats = np.concatenate([[0.0], one.fractions])[done]
    return reached
