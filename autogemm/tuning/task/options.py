"""Options of a tuning run as a person gives them, and the request that they make."""

from collections.abc import Sequence
from dataclasses import dataclass

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.outcome import CacheState, Fill, Objective
from autogemm.model.problem import Problem
from autogemm.search import DEFAULT_SAMPLER, check_sampler
from autogemm.space import Family, default_families, load_family, parse_fix
from autogemm.support.errors import UsageError
from autogemm.targets import MeasureOptions
from autogemm.tuning.task.request import DEFAULT_FINALISTS, DEFAULT_ROUNDS, TuneRequest

DEFAULT_TRIALS = 300
DEFAULT_BUDGET_S = 120.0


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Options of ``autogemm tune`` and `autogemm.tune`, all but the problem and the database.

    ``gpu`` is ``auto``, the number or a part of the name of an attached GPU, ``recorded`` or
    ``recorded:FILE``; ``require_gpu`` makes it an error if ``auto`` finds no GPU. ``family`` names
    families that ship, or folders of others; without any, every family that fits is searched, and
    with ``allow_emulation`` also those that compute FP32 by tensor-core products. ``fix`` narrows
    parameters: ``BM=128,256``. The other options are those of
    :class:`~autogemm.tuning.task.request.TuneRequest` and
    :class:`~autogemm.targets.MeasureOptions`.
    """

    gpu: str = "auto"
    require_gpu: bool = False
    family: tuple[str, ...] = ()
    allow_emulation: bool = False
    fix: tuple[str, ...] = ()
    trials: int | None = DEFAULT_TRIALS
    budget_s: float | None = DEFAULT_BUDGET_S
    until_ratio: float | None = None
    until_gain: float | None = None
    objective: Objective = Objective.TIME
    max_error: str = ""
    sampler: str = DEFAULT_SAMPLER
    seed: int = 0
    finalists: int = DEFAULT_FINALISTS
    rounds: int = DEFAULT_ROUNDS
    l2: CacheState = CacheState.WARM
    fill: Fill = Fill.UNIFORM
    prune: bool = True
    warm_start: bool = True
    certify: bool = True
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Families to search, and the values that ``fix`` leaves of their parameters."""

    families: tuple[Family, ...]
    fix: dict[str, tuple[Value, ...]]


def narrowed_families(options: TuneOptions, dtype: DType, texts: Sequence[str]) -> Narrowed:
    """Return the families to search for ``dtype``, narrowed by ``texts`` (``BM=128,256``).

    A family that lacks a fixed parameter is left out. Raises UsageError if it was named, or if no
    family is left.
    """
    families = [load_family(name) for name in options.family]
    families = families or default_families(emulation=options.allow_emulation)
    fixed, misfits = [], []
    # The error that is shown is one of a family that would have been searched.
    for family in sorted(families, key=lambda family: not family.fits(dtype)):
        try:
            fixed.append((family, parse_fix(family, texts)))
        except UsageError as error:
            if options.family:
                raise
            misfits.append(error)
    if not fixed:
        raise misfits[0]
    return Narrowed(tuple(family for family, _ in fixed), fixed[0][1])


def request_for(
    problem: Problem, options: TuneOptions, narrowed: Narrowed, command: str
) -> TuneRequest:
    """Return the request that the options make. Raises UsageError for values out of range."""
    check_sampler(options.sampler)
    return TuneRequest(
        problem=problem,
        families=narrowed.families,
        fix=narrowed.fix,
        sampler=options.sampler,
        seed=options.seed,
        trials=options.trials,
        budget_s=options.budget_s,
        until_ratio=options.until_ratio,
        until_gain=options.until_gain,
        finalists=options.finalists,
        rounds=options.rounds,
        measure=MeasureOptions(
            l2=options.l2, fill=options.fill, seed=options.seed, objective=options.objective
        ),
        max_error=options.max_error,
        prune=options.prune,
        warm_start=options.warm_start,
        fresh=options.fresh,
        certify=options.certify,
        command=command,
    )
