"""Everything that a tuning run uses, opened together: families, database, target, compiler."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from autogemm.compile import Compiler
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Objective
from autogemm.space import Searched, parse_fix
from autogemm.store import Store, open_store
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import (
    AttachedGpu,
    Chosen,
    Target,
    choose_target,
    is_file,
    names_several,
    open_gpu,
    several_gpus,
)
from autogemm.tuning.task.options import TuneOptions, narrowed_families, request_for
from autogemm.tuning.task.request import TuneRequest
from autogemm.tuning.tuner import Prepared, prepare

UNLIKE = "GPU {} is left out: it is a {}, and GPU {} is a {}; times of one model compare"
ONE_FOR_ENERGY = (
    "energies of several GPUs do not compare: with --objective {} one problem is tuned by GPU {}"
)

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Opened:
    """A request, and what it runs on.

    ``more_targets`` are the other GPUs, where several were named; they have the target's model.
    """

    request: TuneRequest
    target: Target
    compiler: Compiler | None
    store: Store
    prepared: Prepared | None = None
    more_targets: tuple[Target, ...] = ()


def open_run(  # noqa: PLR0913  # keywords, but for the first three
    stack: ExitStack,
    problem: Problem,
    options: TuneOptions,
    db: str | None,
    *,
    command: str,
    notify: Notify,
    resized: Callable[[str], Problem] | None = None,
    prepares: bool = False,
) -> Opened:
    """Open everything that a search of the problem uses; closing ``stack`` closes it.

    Where ``gpu`` names several GPUs, those of the first one's model share the candidates.
    ``notify`` is given what a person must know about the GPU that was chosen. A file of recorded
    times may bring a family and a size of its own: ``resized`` makes the problem of that size, and
    is left out where a size was asked for. With ``prepares`` the target is made ready for the
    problem before the database is opened, and `tune` takes it from there. Raises UsageError for
    options that do not fit together, and what `choose_target` and `open_store` raise.
    """
    # The parameters of a file's family are not known yet, so --fix waits.
    texts = () if is_file(options.gpu) else options.fix
    request = request_for(problem, options, texts, command)
    names = [family.name for family in request.families]
    gpu, more = _first_and_more(options, notify)
    chosen, compiler = open_target(
        *(stack, gpu, names, options.require_gpu, request.problem), notify=notify
    )
    if is_file(gpu):
        request = _as_recorded(request, chosen.target, options, resized)
    held = [one for one in request.families if one.name == chosen.target.only_family]
    if options.allow_emulation and any(one.searched is Searched.ALWAYS for one in held):
        notify(
            f"--allow-emulation changes nothing here: the recording holds configs of "
            f"{chosen.target.only_family} only, see autogemm gpus"
        )
    more_targets = tuple(stack.enter_context(closing(one)) for one in _opened(more, notify))
    # A problem that cannot be tuned is refused before a database is created, which would stay
    # empty.
    prepared = prepare(request, chosen.target, more_targets, compiler) if prepares else None
    store = stack.enter_context(open_store(db))
    return Opened(request, chosen.target, compiler, store, prepared, more_targets)


def _first_and_more(options: TuneOptions, notify: Notify) -> tuple[str, Sequence[AttachedGpu]]:
    """The GPU to open first, and the others of its model that share its candidates."""
    if not names_several(options.gpu):
        return options.gpu, ()
    first, *others = several_gpus(options.gpu)
    alike = [gpu for gpu in others if _model(gpu.device) == _model(first.device)]
    for gpu in others:
        if gpu not in alike:
            notify(UNLIKE.format(gpu.number, gpu.device.name, first.number, first.device.name))
    if alike and options.objective is not Objective.TIME:
        notify(ONE_FOR_ENERGY.format(options.objective, first.number))
        return str(first.number), ()
    return str(first.number), alike


def _model(device: Device) -> tuple[str, int, int]:
    return (device.name, device.arch, device.num_sms)


def _opened(gpus: Sequence[AttachedGpu], notify: Notify) -> Iterator[Target]:
    """The targets of those that answer, all started at the same time."""
    if not gpus:
        return
    with ThreadPoolExecutor(len(gpus)) as threads:
        begun = [(gpu, threads.submit(open_gpu, gpu)) for gpu in gpus]
    for gpu, opening in begun:
        try:
            yield opening.result()
        except DeviceError as error:
            notify(f"GPU {gpu.number} is left out: {error}")


def open_target(  # noqa: PLR0913  # what chooses it, and who is told
    stack: ExitStack,
    gpu: str,
    families: Collection[str],
    require_gpu: bool = False,
    problem: Problem | None = None,
    *,
    notify: Notify,
) -> tuple[Chosen, Compiler | None]:
    """Open the target that ``gpu`` names, for that problem where it is known, and a compiler if the
    target runs kernels.

    Raises what `choose_target` raises.
    """
    chosen = choose_target(gpu, families, require_gpu, problem)
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
