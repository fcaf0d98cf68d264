"""``autogemm explain``: why a config is as fast or slow as it is."""

import json
from contextlib import closing
from dataclasses import dataclass, replace

import click

from autogemm.cli.lookup import config_from, device_facts
from autogemm.cli.options import ConfigOptions, ProblemOptions, is_typed
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.cli.table import print_table
from autogemm.insight.explain import (
    Explanation,
    Missing,
    Request,
    Times,
    Tools,
    conclusion,
    explain,
    headline,
    tables,
    times_of,
)
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import load_family
from autogemm.store import BestQuery, Store
from autogemm.support.errors import AutogemmError, UsageError


@dataclass(frozen=True, slots=True)
class ExplainCommand:
    """One call of the command. ``kernel`` is that of the database, by number or sha256."""

    kernel: str | None
    config: ConfigOptions
    problem: ProblemOptions
    gpu: str
    compile_neighbours: bool
    db: str | None
    as_json: bool


def run(command: ExplainCommand) -> None:
    """Explain a config or a stored kernel, and print it."""
    is_named = command.config.is_given
    if command.kernel and is_named:
        raise UsageError(
            f"kernel {command.kernel} is already one config: leave out --fix and similar options"
        )
    request = _named(command) if is_named else _stored(command)
    with closing(Tools.open()) as tools:
        explanation = explain(request, tools)
    if command.as_json:
        click.echo(
            json.dumps(
                {"conclusion": conclusion(explanation), **explanation.as_dict()},
                indent=2,
                default=str,
            )
        )
    else:
        print_explanation(explanation)


def _stored(command: ExplainCommand) -> Request:
    """Return the request for a kernel of the database, or the best of those that options name."""
    family = command.config.family if is_typed("family") else None
    query = BestQuery(
        size=command.problem.size if is_typed("size") else None,
        layout=command.problem.layout if is_typed("layout") else None,
    )
    asked = stored_request(command.kernel or query, command.db, family, command.gpu)
    return replace(asked, compile_neighbours=command.compile_neighbours)


def stored_request(
    kernel: str | BestQuery, db: str | None, family_name: str | None = None, gpu: str = "auto"
) -> Request:
    """Return the request for a kernel of the database, on the GPU and problem of its time."""
    with open_database(db) as store:
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


def _named(command: ExplainCommand) -> Request:
    """Return the request for a config that the options name."""
    problem = command.problem.value
    family, config = config_from(command.config)
    device = device_facts(command.gpu)
    times: Times | Missing
    try:
        with open_database(command.db) as store:
            times = _times(store, config, problem, device)
    except AutogemmError as error:
        times = Missing(str(error))
    neighbours = command.compile_neighbours
    return Request(family, config, problem, device, times, compile_neighbours=neighbours)


def _times(store: Store, config: Config, problem: Problem, device: Device) -> Times | Missing:
    found = times_of(store, config, problem, device)
    return found or Missing("the database has no time of this config on this GPU and problem")


def print_explanation(explanation: Explanation) -> None:
    """Print the conclusion, then all sections as tables or the reason why there is none."""
    for line in conclusion(explanation):
        say(line)
    say()
    for line in headline(explanation):
        say(line)
    for table in tables(explanation):
        say()
        if table.missing:
            say(f"{table.title}: not available: {table.missing}")
        else:
            print_table(table.rows, table.columns, title=table.title)
        for note in table.notes:
            say(note)
