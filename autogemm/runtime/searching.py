"""``autogemm.tune`` and ``autogemm.best``: the command line's work, with values for results."""

import threading
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Fill, Objective
from autogemm.runtime.keywords import (
    Fix,
    Place,
    Size,
    choice,
    options_of,
    parsed_dtype,
    place,
    problem_of,
    text,
)
from autogemm.runtime.progress import Progress, check_progress, listener_of
from autogemm.store import BestQuery, ResultRow, open_store
from autogemm.support.errors import NotFoundError
from autogemm.tuning import TuneOptions, TuneResult, open_run
from autogemm.tuning import tune as run_tuner

# The defaults of the command line.
_DEFAULT = TuneOptions()


def tune(  # noqa: PLR0913  # as the command's options
    size: Size,
    *,
    layout: str | Layout = Layout.NN,
    dtype: str | DType = DType.F32,
    lda: int = 0,
    ldb: int = 0,
    ldc: int = 0,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | Epilogue = "",
    batch: str | int | Batch = "",
    groups: str | Groups = "",
    gpu: str | int = _DEFAULT.gpu,
    require_gpu: bool = _DEFAULT.require_gpu,
    family: Place | Sequence[Place] = _DEFAULT.family,
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
    db: Place | None = None,
    progress: Progress = None,
) -> TuneResult:
    """Search for the fastest kernel of a problem, store all trials, and return the result.

    ``size`` is ``4096``, ``"4096x256x1024"``, ``(4096, 256, 1024)`` or a `Problem`, which has
    its own layout, dtype, leading dimensions, factors, epilogue, batch and groups. ``db`` is a path
    or URL, by default the database of the command line. ``progress`` is True for a bar, False for
    none, or a function that is called with each event (`autogemm.tuning.Event`); the default is a
    bar in notebooks and on terminals. The other arguments are the options of ``autogemm tune``,
    under the same names and with the same defaults:

    - ``lda``, ``ldb``, ``ldc``: leading dimensions in elements, 0 is packed. ``epilogue``: an
      expression of ``acc`` instead of ``alpha`` and ``beta`` (docs/epilogues.md). ``batch``: the
      number of products of this size in one launch (docs/batched.md). ``groups``: the distribution
      of rows over groups, each with its own B (docs/grouped.md).
    - ``gpu``: an attached GPU by number or name, ``auto``, ``recorded`` or ``recorded:FILE``. If
      ``auto`` finds no GPU, recorded times are used and a warning says so once; with
      ``require_gpu`` this is a DeviceError.
    - ``family``: one or several families, by name or folder. ``fix`` restricts parameters:
      ``{"BM": (64, 128), "STAGES": 3}``, or strings as on the command line (``["BM=64,128"]``).
      ``allow_emulation`` adds families that compute FP32 from tensor-core products.
    - ``trials``, ``budget_s``, ``until_ratio``, ``until_gain``: limits of the search, which ends at
      the first one reached; None disables a limit.
    - ``objective``: ``time``, ``energy`` or ``edp``. ``max_error``: the largest relative error of
      the winner, a number or ``cublas``.
    - ``l2``: ``warm``, ``cold`` or ``rotate``. ``fill``: ``uniform``, ``normal``, ``integers`` or
      ``zeros``.
    - ``sampler``, ``seed``, ``finalists``, ``rounds``: options of the search and its finals;
      ``sustained_s``: seconds for which winner and baseline each run alone afterwards. ``prune``,
      ``warm_start``, ``seeds`` and ``certify``: False skips the step, like ``--no-prune``,
      ``--no-warm-start``, ``--no-seeds`` and ``--no-certify``.

    The same call resumes an interrupted search, unless ``fresh`` is set. Raises UsageError for
    values that have a wrong type, are not allowed or do not fit together, and the errors of
    `autogemm.tuning.tune` and `autogemm.tuning.open_run`.
    """
    options = options_of(locals())
    check_progress(progress)
    ld = {"lda": lda, "ldb": ldb, "ldc": ldc}
    problem = problem_of(size, layout, dtype, epilogue, batch, groups, **ld, alpha=alpha, beta=beta)

    def notify(notice: str) -> None:
        if options.gpu == "auto":
            _warn_once(notice)

    where = place("db", db)
    with ExitStack() as stack:
        run = open_run(stack, problem, options, where, command="autogemm.tune", notify=notify)
        told = stack.enter_context(listener_of(progress, run.request))
        parts = (run.request, run.target, run.compiler, run.store)
        return run_tuner(*parts, told, more_targets=run.more_targets)


def best(  # noqa: PLR0913  # filters, all by name
    size: Size | None = None,
    *,
    layout: str | Layout | None = None,
    dtype: str | DType | None = None,
    family: str | None = None,
    gpu: str | None = None,
    db: Place | None = None,
) -> ResultRow:
    """Return the best stored result of a size, or the newest result of any size.

    ``size`` is as in `tune`; a `Problem` has its own layout, dtype, epilogue, batch and groups.
    Measured results take precedence over recorded ones. ``gpu`` is any part of a GPU's name.

    Raises NotFoundError if nothing matches, UsageError for values that are not allowed, and
    StoreError.
    """
    query = BestQuery(
        gpu=None if gpu is None else text("gpu", gpu),
        layout=None if layout is None else str(choice("layout", Layout, layout)),
        dtype=None if dtype is None else str(parsed_dtype(dtype)),
        family=None if family is None else text("family", family),
    )
    if size is not None:
        problem = problem_of(size)
        query = replace(query, size=problem.size_label)
        if problem is size:
            query = replace(query, layout=str(problem.layout), dtype=str(problem.dtype))
            query = replace(query, epilogue=problem.epilogue.text or "none")
            query = replace(query, batch=str(problem.batch) or "1")
            query = replace(query, groups=str(problem.groups) or "none")
    with open_store(place("db", db), create=False) as store:
        rows = store.best(query)
    if not rows:
        raise NotFoundError("no result matches: run autogemm.tune first")
    return max(rows, key=lambda row: (row.provenance.value == "measured", row.measured_at))


def tune_on(
    index: int, problem: Problem, budget_s: float, *, allow_emulation: bool = False
) -> TuneResult:
    """Tune a problem on a GPU of this process, which goes on using it meanwhile."""
    return tune(
        problem,
        gpu=index,
        allow_emulation=allow_emulation,
        budget_s=budget_s,
        trials=None,
        certify=False,
        progress=False,
    )


_warned = threading.Event()


def _warn_once(notice: str) -> None:
    """Once in a process, though each recording's notice has numbers of its own.

    Python itself would show it again for each line that calls.
    """
    if not _warned.is_set():
        warnings.warn(notice, stacklevel=6)
        _warned.set()
