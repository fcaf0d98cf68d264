"""``autogemm.tune`` and ``autogemm.best``: the command line's work, with values for results."""

import warnings
from contextlib import ExitStack, closing

from autogemm.model.problem import Layout, Problem
from autogemm.space import default_families
from autogemm.store import BestQuery, ResultRow, open_store
from autogemm.support.errors import NotFoundError
from autogemm.targets import choose_target
from autogemm.tuning import TuneRequest, TuneResult
from autogemm.tuning import tune as run_tuner

DEFAULT_BUDGET_S = 10.0

Size = Problem | str | int | tuple[int, int, int]


def tune(  # noqa: PLR0913  # as the command's options
    size: Size,
    *,
    layout: str | Layout = Layout.NN,
    gpu: str = "auto",
    budget_s: float | None = 120.0,
    trials: int | None = 300,
    seed: int = 0,
    certify: bool = True,
    db: str | None = None,
) -> TuneResult:
    """Search for the fastest kernel, store what was found, and return it.

    ``size`` is ``4096``, ``"4096x256x1024"``, ``(4096, 256, 1024)`` or a `Problem`, which says
    everything. ``gpu`` is an attached GPU by number or name, ``auto``, or ``recorded``; ``db`` a
    path or URL, by default the database of the command line. The same call resumes a search that
    was interrupted. Where ``auto`` finds no GPU the times are recorded, and a warning says so.
    Errors as of `autogemm.tuning.tune` and `autogemm.targets.choose_target`.
    """
    families = tuple(default_families())
    request = TuneRequest(
        problem=problem_of(size, layout),
        families=families,
        seed=seed,
        trials=trials,
        budget_s=budget_s,
        certify=certify,
        command="autogemm.tune",
    )
    with ExitStack() as stack:
        store = stack.enter_context(open_store(db))
        chosen = choose_target(gpu, [family.name for family in families])
        target = stack.enter_context(closing(chosen.target))
        if gpu == "auto" and chosen.notice:
            warnings.warn(chosen.notice, stacklevel=2)
        compiler = target.compiler()
        if compiler is not None:
            stack.enter_context(closing(compiler))
        return run_tuner(request, target, compiler, store)


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
    query = BestQuery(gpu=gpu, size=label, layout=None if layout is None else str(Layout(layout)))
    with open_store(db, create=False) as store:
        rows = store.best(query)
    if not rows:
        raise NotFoundError("no result matches: autogemm.tune makes one")
    return max(rows, key=lambda row: (row.provenance.value == "measured", row.measured_at))


def tune_on(index: int, problem: Problem, budget_s: float) -> TuneResult:
    """Tune a problem on a card of this process, which goes on using it meanwhile."""
    return tune(problem, gpu=str(index), budget_s=budget_s, trials=None, certify=False)


def problem_of(size: Size, layout: str | Layout) -> Problem:
    """The problem that a size of any of its forms means. Raises UsageError."""
    if isinstance(size, Problem):
        return size
    m, n, k = size if isinstance(size, tuple) else Problem.parse_size(str(size))
    return Problem(m, n, k, Layout(layout))
