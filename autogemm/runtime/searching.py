"""``autogemm.tune`` and ``autogemm.best``: the command line's work, with values for results."""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from typing import TypeVar

from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective
from autogemm.store import BestQuery, ResultRow, open_store
from autogemm.support.errors import NotFoundError, UsageError
from autogemm.tuning import TuneOptions, TuneResult, open_run
from autogemm.tuning import tune as run_tuner

DEFAULT_BUDGET_S = 10.0
# The defaults of the command line.
_DEFAULT = TuneOptions()

Size = Problem | str | int | tuple[int, int, int]
Fix = Mapping[str, Value | Sequence[Value]] | Sequence[str]
Choice = TypeVar("Choice", bound=StrEnum)


def tune(  # noqa: PLR0913  # as the command's options
    size: Size,
    *,
    layout: str | Layout = Layout.NN,
    dtype: str | DType = DType.F32,
    gpu: str = _DEFAULT.gpu,
    require_gpu: bool = _DEFAULT.require_gpu,
    family: str | Sequence[str] = _DEFAULT.family,
    allow_emulation: bool = _DEFAULT.allow_emulation,
    fix: Fix = _DEFAULT.fix,
    trials: int | None = _DEFAULT.trials,
    budget_s: float | None = _DEFAULT.budget_s,
    until_ratio: float | None = _DEFAULT.until_ratio,
    until_gain: float | None = _DEFAULT.until_gain,
    objective: str | Objective = _DEFAULT.objective,
    max_error: str | float = _DEFAULT.max_error,
    sampler: str = _DEFAULT.sampler,
    seed: int = _DEFAULT.seed,
    finalists: int = _DEFAULT.finalists,
    rounds: int = _DEFAULT.rounds,
    sustained_s: float | None = _DEFAULT.sustained_s,
    l2: str | CacheState = _DEFAULT.l2,
    fill: str | Fill = _DEFAULT.fill,
    prune: bool = _DEFAULT.prune,
    warm_start: bool = _DEFAULT.warm_start,
    seeds: bool = _DEFAULT.seeds,
    certify: bool = _DEFAULT.certify,
    fresh: bool = _DEFAULT.fresh,
    db: str | None = None,
) -> TuneResult:
    """Search for the fastest kernel, store what was found, and return it.

    ``size`` is ``4096``, ``"4096x256x1024"``, ``(4096, 256, 1024)`` or a `Problem`, which has its
    own layout and dtype. ``db`` is a path or URL, by default the database of the command line. The
    other arguments are the options of ``autogemm tune``, under the same names and with the same
    defaults:

    - ``gpu``: an attached GPU by number or name, ``auto``, ``recorded`` or ``recorded:FILE``. Where
      ``auto`` finds no GPU the times are recorded and a warning says so; with ``require_gpu`` that
      is a DeviceError.
    - ``family``: one or several families, by name or folder. ``fix`` narrows parameters:
      ``{"BM": (64, 128), "STAGES": 3}``, or texts as on the command line (``["BM=64,128"]``).
      ``allow_emulation`` adds families that compute FP32 by tensor-core products.
    - ``trials``, ``budget_s``, ``until_ratio``, ``until_gain``: limits of the search; it ends with
      the first of them, and None sets none.
    - ``objective``: ``time``, ``energy`` or ``edp``. ``max_error``: the largest relative error of
      the winner, a number or ``cublas``.
    - ``l2``: ``warm``, ``cold`` or ``rotate``. ``fill``: ``uniform``, ``normal``, ``integers`` or
      ``zeros``.
    - ``sampler``, ``seed``, ``finalists``, ``rounds``: the search and its finals;
      ``sustained_s``: winner and baseline then run each alone. ``prune``, ``warm_start``,
      ``seeds`` and ``certify`` are the steps that ``--no-prune``, ``--no-warm-start``,
      ``--no-seeds`` and ``--no-certify`` leave out.

    The same call resumes a search that was interrupted, unless it is ``fresh``. Raises UsageError
    for values that are not allowed or do not fit together, and the errors of
    `autogemm.tuning.tune` and `autogemm.tuning.open_run`.
    """
    options = TuneOptions(
        gpu=gpu,
        require_gpu=require_gpu,
        family=(family,) if isinstance(family, str) else tuple(family),
        allow_emulation=allow_emulation,
        fix=_fix_texts(fix),
        trials=trials,
        budget_s=budget_s,
        until_ratio=until_ratio,
        until_gain=until_gain,
        objective=_choice("objective", Objective, objective),
        max_error=str(max_error),
        sampler=sampler,
        seed=seed,
        finalists=finalists,
        rounds=rounds,
        sustained_s=sustained_s,
        l2=_choice("l2", CacheState, l2),
        fill=_choice("fill", Fill, fill),
        prune=prune,
        warm_start=warm_start,
        seeds=seeds,
        certify=certify,
        fresh=fresh,
    )

    def notify(notice: str) -> None:
        if gpu == "auto":
            warnings.warn(notice, stacklevel=5)

    problem = problem_of(size, layout, dtype)
    with ExitStack() as stack:
        run = open_run(stack, problem, options, db, command="autogemm.tune", notify=notify)
        return run_tuner(run.request, run.target, run.compiler, run.store)


def best(
    size: Size | None = None,
    *,
    layout: str | Layout | None = None,
    gpu: str | None = None,
    db: str | None = None,
) -> ResultRow:
    """The best stored result: of one size or the newest of any, measured before recorded.

    ``gpu`` is any part of a GPU's name. Raises NotFoundError where nothing matches.
    """
    label = None if size is None else problem_of(size, layout or Layout.NN).size_label
    if isinstance(size, Problem):
        layout = size.layout
    name = None if layout is None else str(_choice("layout", Layout, layout))
    query = BestQuery(gpu=gpu, size=label, layout=name)
    with open_store(db, create=False) as store:
        rows = store.best(query)
    if not rows:
        raise NotFoundError("no result matches: autogemm.tune makes one")
    return max(rows, key=lambda row: (row.provenance.value == "measured", row.measured_at))


def tune_on(index: int, problem: Problem, budget_s: float) -> TuneResult:
    """Tune a problem on a GPU of this process, which goes on using it meanwhile."""
    return tune(problem, gpu=str(index), budget_s=budget_s, trials=None, certify=False)


def problem_of(size: Size, layout: str | Layout, dtype: str | DType = DType.F32) -> Problem:
    """Return the problem that a size of any of its forms names. Raises UsageError."""
    if isinstance(size, Problem):
        return size
    m, n, k = size if isinstance(size, tuple) else Problem.parse_size(str(size))
    element = dtype if isinstance(dtype, DType) else DType.parse(dtype)
    return Problem(m, n, k, _choice("layout", Layout, layout), element)


def _choice(name: str, kind: type[Choice], value: str) -> Choice:
    """Return the value of an enum. Raises UsageError for one that it does not have."""
    try:
        return kind(value)
    except ValueError as error:
        raise UsageError(f"{name} is one of {', '.join(kind)}, got {value!r}") from error


def _fix_texts(fix: Fix) -> tuple[str, ...]:
    """Return the texts of ``--fix``. Raises UsageError for one text in place of a list."""
    if isinstance(fix, str):
        raise UsageError(f"fix takes a list of texts or a dict, got {fix!r}")
    if not isinstance(fix, Mapping):
        return tuple(fix)
    return tuple(f"{name}={_values_text(values)}" for name, values in fix.items())


def _values_text(values: Value | Sequence[Value]) -> str:
    return ",".join(map(str, (values,) if isinstance(values, str | int) else values))
