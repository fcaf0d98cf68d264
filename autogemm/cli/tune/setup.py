"""What ``autogemm tune`` opens before it begins: families, request, database, target, compiler."""

import math
import shlex
import sys
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from autogemm.model.outcome import Objective
from autogemm.search import check_sampler
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.compile import Compiler
    from autogemm.model.config import Value
    from autogemm.model.problem import Problem
    from autogemm.space import Family
    from autogemm.store import Store
    from autogemm.targets import Target
    from autogemm.tuning import Chosen, TuneRequest


@dataclass(frozen=True, slots=True)
class Opened:
    """A request with all that it runs on; closed with the stack that it was opened on."""

    request: "TuneRequest"
    target: "Target"
    compiler: "Compiler | None"
    store: "Store"


def opened(stack: ExitStack, problem: "Problem", options: dict[str, Any], db: str | None) -> Opened:
    """All that a search of that problem takes; ``options`` are the command's."""
    from autogemm.store import open_store
    from autogemm.tuning import choose_target, is_file

    gpu = options["gpu"]
    # Of a file it is not known yet of which family's parameters --fix speaks.
    families, fix = _families(options, () if is_file(gpu) else options["fix"])
    request = _request(problem, options, families, fix)
    store = stack.enter_context(open_store(db))
    names = [family.name for family in families]
    chosen = choose_target(gpu, names, options["require_gpu"])
    target = stack.enter_context(closing(chosen.target))
    if is_file(gpu):
        request = _as_recorded(request, chosen, options)
    if chosen.notice:
        click.secho(chosen.notice, err=True, bold=True)
    compiler = compiler_for(target)
    if compiler is not None:
        stack.enter_context(closing(compiler))
    return Opened(request, target, compiler, store)


def _as_recorded(
    request: "TuneRequest", chosen: "Chosen", options: dict[str, Any]
) -> "TuneRequest":
    """The request for what a file holds: it may bring a family, and the size, of its own.

    Raises UsageError where something else was asked for by name.
    """
    from autogemm.cli.tune.problems import problems_from
    from autogemm.space import parse_fix

    if chosen.family is None:
        families, fix = _families(options, options["fix"])
        return replace(request, families=families, fix=fix)
    names = [family.name for family in request.families]
    if is_typed("family") and chosen.family.name not in names:
        raise UsageError(
            f"that recording lists configs of {chosen.family.name}, not of {', '.join(names)}: "
            "leave --family out"
        )
    problem = request.problem
    if chosen.size and not is_typed("sizes"):
        problem = problems_from({**options, "sizes": (chosen.size,)})[0]
    fix = parse_fix(chosen.family, options["fix"])
    return replace(request, families=(chosen.family,), problem=problem, fix=fix)


def is_typed(option: str) -> bool:
    """Whether it was given, and not from the environment or by default."""
    given = click.get_current_context().get_parameter_source(option)
    return given is click.core.ParameterSource.COMMANDLINE


def _request(
    problem: "Problem",
    options: dict[str, Any],
    families: "tuple[Family, ...]",
    fix: "dict[str, tuple[Value, ...]]",
) -> "TuneRequest":
    from autogemm.model.outcome import CacheState, Fill
    from autogemm.targets import MeasureOptions
    from autogemm.tuning import TuneRequest

    sampler = options["sampler"]
    check_sampler(sampler)
    budget_s = options["budget_s"]
    return TuneRequest(
        problem=problem,
        families=families,
        fix=fix,
        sampler=sampler,
        seed=options["seed"],
        trials=options["trials"],
        budget_s=None if math.isinf(budget_s) else budget_s,
        until_ratio=options["until_ratio"],
        until_gain=options["until_gain"],
        finalists=options["finalists"],
        rounds=options["rounds"],
        measure=MeasureOptions(
            l2=CacheState(options["l2"]),
            fill=Fill(options["fill"]),
            seed=options["seed"],
            objective=Objective(options["objective"]),
        ),
        max_error=options["max_error"],
        prune=not options["no_prune"],
        warm_start=not options["no_warm_start"],
        fresh=options["fresh"],
        certify=not options["no_certify"],
        command=command_line(),
    )


def _families(
    options: dict[str, Any], texts: tuple[str, ...]
) -> "tuple[tuple[Family, ...], dict[str, tuple[Value, ...]]]":
    """The families to search, and what ``--fix`` leaves of their parameters.

    A family that lacks what is fixed is left out. Raises UsageError if it was named, or if none is
    left.
    """
    from autogemm.model.dtypes import DType
    from autogemm.space import default_families, load_family, parse_fix

    named = options["family"]
    families = [load_family(name) for name in named]
    fixed, misfits = [], []
    dtype = DType.parse(options["dtype"])
    every = families or default_families(emulation=options["allow_emulation"])
    # An error is one of a family that would have been searched.
    for family in sorted(every, key=lambda family: not family.fits(dtype)):
        try:
            fixed.append((family, parse_fix(family, texts)))
        except UsageError as error:
            if named:
                raise
            misfits.append(error)
    if not fixed:
        raise misfits[0]
    return tuple(family for family, _ in fixed), fixed[0][1]


def command_line() -> str:
    """As typed, for the database: what is no UTF-8, in a file's name, is escaped."""
    typed = shlex.join(["autogemm", *sys.argv[1:]])
    return typed.encode(errors="backslashreplace").decode()


def compiler_for(target: "Target") -> "Compiler | None":
    """A compiler; None for recorded times, which no kernel of this machine is run for."""
    from autogemm.compile import Compiler

    return Compiler() if target.needs_cubin else None
