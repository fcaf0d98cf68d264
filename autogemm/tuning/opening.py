"""Everything that a tuning run uses, opened together: families, database, target, compiler."""

from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from autogemm.compile import Compiler
from autogemm.model.problem import Problem
from autogemm.space import parse_fix
from autogemm.store import Store, open_store
from autogemm.support.errors import UsageError
from autogemm.targets import Chosen, Target, choose_target, is_file
from autogemm.tuning.task.options import TuneOptions, narrowed_families, request_for
from autogemm.tuning.task.request import TuneRequest

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """A request, and what it runs on."""

    request: TuneRequest
    target: Target
    compiler: Compiler | None
    store: Store


def open_run(  # noqa: PLR0913  # keywords, but for the first three
    stack: ExitStack,
    problem: Problem,
    options: TuneOptions,
    db: str | None,
    *,
    command: str,
    notify: Notify,
    resized: Callable[[str], Problem] | None = None,
) -> Opened:
    """Open everything that a search of the problem uses; closing ``stack`` closes it.

    ``notify`` is given what a person must know about the GPU that was chosen. A file of recorded
    times may bring a family and a size of its own: ``resized`` makes the problem of that size, and
    is left out where a size was asked for. Raises UsageError for options that do not fit together,
    and what `choose_target` and `open_store` raise.
    """
    # The parameters of a file's family are not known yet, so --fix waits.
    texts = () if is_file(options.gpu) else options.fix
    request = request_for(problem, options, texts, command)
    store = stack.enter_context(open_store(db))
    names = [family.name for family in request.families]
    chosen, compiler = open_target(stack, options.gpu, names, options.require_gpu, notify=notify)
    if is_file(options.gpu):
        request = _as_recorded(request, chosen.target, options, resized)
    return Opened(request, chosen.target, compiler, store)


def open_target(
    stack: ExitStack,
    gpu: str,
    families: Collection[str],
    require_gpu: bool = False,
    *,
    notify: Notify,
) -> tuple[Chosen, Compiler | None]:
    """Open the target that ``gpu`` names, and a compiler if the target runs kernels.

    Raises what `choose_target` raises.
    """
    chosen = choose_target(gpu, families, require_gpu)
    target = stack.enter_context(closing(chosen.target))
    if chosen.notice:
        notify(chosen.notice)
    compiler = target.compiler()
    if compiler is not None:
        stack.enter_context(closing(compiler))
    return chosen, compiler


def _as_recorded(
    request: TuneRequest,
    target: Target,
    options: TuneOptions,
    resized: Callable[[str], Problem] | None,
) -> TuneRequest:
    """Return the request for what a file of recorded times holds.

    Raises UsageError if another family was named.
    """
    family, size = target.own_family, target.own_size
    if family is None:
        families, fixed = narrowed_families(options, request.problem.dtype, options.fix)
        return replace(request, families=families, fix=fixed)
    names = [family.name for family in request.families]
    if options.family and family.name not in names:
        raise UsageError(
            f"that recording lists configs of {family.name}, not of {', '.join(names)}: "
            "leave --family out"
        )
    problem = resized(size) if size and resized is not None else request.problem
    fix = parse_fix(family, options.fix)
    return replace(request, families=(family,), problem=problem, fix=fix)
