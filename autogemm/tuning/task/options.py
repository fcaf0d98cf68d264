"""Options of a tuning run as a person gives them, and the request that they make."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Problem
from autogemm.model.results.columns import names_of
from autogemm.model.results.outcome import CacheState, Fill, Objective
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
    parameters: ``BM=128,256``. Without ``seeds`` no config is tried first because it ships as one
    that was good somewhere. The other options are those of
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
    sustained_s: float | None = None
    l2: CacheState = CacheState.WARM
    fill: Fill = Fill.UNIFORM
    prune: bool = True
    warm_start: bool = True
    seeds: bool = True
    certify: bool = True
    fresh: bool = False


# Options that the request has under the same name.
_SAME = ({*names_of(TuneOptions)} & {*names_of(TuneRequest)}) - {"fix"}


def narrowed_families(
    options: TuneOptions, dtype: DType, texts: Sequence[str]
) -> tuple[tuple[Family, ...], dict[str, tuple[Value, ...]]]:
    """Return the families to search for ``dtype``, and the values of their parameters that
    ``texts`` (``BM=128,256``) leave.

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
    kept = tuple(family for family, _ in fixed)
    if not options.seeds:
        kept = tuple(replace(family, seeds=(), seed_origins=(), seed_sizes=()) for family in kept)
    return kept, fixed[0][1]


def request_for(
    problem: Problem, options: TuneOptions, texts: Sequence[str], command: str
) -> TuneRequest:
    """Return the request that the options make, narrowed by ``texts``.

    Raises UsageError for values out of range, and what `narrowed_families` raises.
    """
    families, fix = narrowed_families(options, problem.dtype, texts)
    check_sampler(options.sampler)
    own: dict[str, Any] = {name: getattr(options, name) for name in _SAME}
    measure = MeasureOptions(
        l2=options.l2, fill=options.fill, seed=options.seed, objective=options.objective
    )
    return TuneRequest(problem, families, fix, measure=measure, command=command, **own)
