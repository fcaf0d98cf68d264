"""``autogemm explain``: why a config is as fast or slow as it is."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from autogemm.cli.configs import config_from, config_options
from autogemm.cli.options import (
    db_option,
    device_facts,
    gpu_option,
    problem_from,
    problem_options,
)
from autogemm.cli.output import print_table
from autogemm.support.errors import AutogemmError, UsageError

if TYPE_CHECKING:
    from autogemm.insight.explain import Explanation, Missing, Request, Times
    from autogemm.model.config import Config
    from autogemm.model.hardware.device import Device
    from autogemm.model.problem import Problem
    from autogemm.store import BestQuery, Store


@click.command()
@click.argument("kernel", required=False, metavar="[ID]")
@config_options
@problem_options
@gpu_option
@click.option("--compile-neighbours", is_flag=True, help="Registers of neighbours, not estimates.")
@db_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(
    kernel: str | None,
    gpu: str,
    compile_neighbours: bool,
    db: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say why a config is as fast or slow as it is, from static facts; nothing runs on a card.

    The config is a stored kernel (its ID or the beginning of its sha256), or a seed of the family
    or a rung of the ladder changed by --fix, or --config; with none of these the best kernel in the
    database. Registers and spills come from the compiler, the main loop from nvdisasm, memory
    accesses from one block run on the CPU (g++); a part whose tool is missing says so.

    \b
    Examples:
      autogemm explain
      autogemm explain 17 --compile-neighbours
      autogemm explain --rung naive_uncoalesced
      autogemm explain --fix STAGES=2 --fix BM=64 --size 1024 --gpu a100 --json
    """
    from autogemm.insight.explain import Tools
    from autogemm.insight.explain import explain as explained

    chosen = options["fix"] or any(
        options[name] is not None for name in ("rung", "config_json", "seed_index")
    )
    if kernel and chosen:
        raise UsageError(f"kernel {kernel} is one config already: leave out --fix and the like")
    request = (
        _named(options, gpu, db, compile_neighbours)
        if chosen
        else _stored(kernel, options, gpu, db, compile_neighbours)
    )
    with closing(Tools.open()) as tools:
        explanation = explained(request, tools)
    if as_json:
        click.echo(json.dumps(explanation.as_dict(), indent=2, default=str))
    else:
        print_explanation(explanation)


def _stored(
    kernel: str | None, options: dict[str, Any], gpu: str, db: str | None, compile_neighbours: bool
) -> Request:
    """The request for a kernel of the database, or the best of those that the options name."""
    from autogemm.store import BestQuery

    context = click.get_current_context()
    typed = {
        name: options[name]
        for name in ("family", "size", "layout")
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    }
    family_name = typed.pop("family", None)
    asked = stored_request(kernel or BestQuery(**typed), db, family_name, gpu)
    return replace(asked, compile_neighbours=compile_neighbours)


def stored_request(
    kernel: str | BestQuery, db: str | None, family_name: str | None = None, gpu: str = "auto"
) -> Request:
    """The request for a kernel of the database, on the GPU and problem that it was timed for."""
    from autogemm.insight.explain import Request
    from autogemm.space import load_family
    from autogemm.store import open_store

    with open_store(db, create=False) as store:
        found = store.stored_kernel(kernel)
        family = load_family(family_name or found.source.family)
        device = found.device if gpu == "auto" else device_facts(gpu)
        problem = found.problem
        return Request(
            family=family,
            config=found.source.config,
            problem=problem,
            device=device,
            times=_times(store, found.source.config, problem, device),
            stored=found.source,
        )


def _named(options: dict[str, Any], gpu: str, db: str | None, compile_neighbours: bool) -> Request:
    """The request for a config that the options name."""
    from autogemm.insight.explain import Missing, Request
    from autogemm.store import open_store

    names = ("size", "layout", "dtype", "lda", "ldb", "ldc", "alpha", "beta")
    problem = problem_from(**{name: options[name] for name in names})
    which = ("family", "rung", "fix", "seed_index", "config_json")
    family, config = config_from(**{name: options[name] for name in which})
    device = device_facts(gpu)
    times: Times | Missing
    try:
        with open_store(db, create=False) as store:
            times = _times(store, config, problem, device)
    except AutogemmError as error:
        times = Missing(str(error))
    return Request(family, config, problem, device, times, compile_neighbours=compile_neighbours)


def _times(store: Store, config: Config, problem: Problem, device: Device) -> Times | Missing:
    from autogemm.insight.explain import Missing, times_of

    found = times_of(store, config, problem, device)
    return found or Missing("the database has no time of this config on this GPU and problem")


def print_explanation(explanation: Explanation) -> None:
    """All sections as tables, each with a word where it is missing."""
    from autogemm.insight.explain import headline, tables

    for line in headline(explanation):
        click.echo(line)
    for table in tables(explanation):
        click.echo()
        if table.missing:
            click.echo(f"{table.title}: not here: {table.missing}")
        else:
            print_table(table.rows, table.columns, title=table.title)
        for note in table.notes:
            click.echo(note)
