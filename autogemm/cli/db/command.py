"""``autogemm db``: ask the tuning database."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from autogemm.cli import rows as db_rows
from autogemm.cli.db.changes import compare, history
from autogemm.cli.db.check import check
from autogemm.cli.db.exchange import export, import_
from autogemm.cli.db.pareto import pareto
from autogemm.cli.db.sql import sql, stats
from autogemm.cli.db.upkeep import merge, prune, vacuum
from autogemm.cli.db.why import why
from autogemm.cli.filters import (
    MAX_NUMBER,
    filter_options,
    open_database,
    print_readable,
    print_rows_as,
)
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options, print_table
from autogemm.cli.rows import Columns, FlatRow
from autogemm.model.outcome import Status
from autogemm.support.cells import shown
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.store import BestQuery, Store

# How many rows a table shows unless told otherwise.
TABLE_ROWS = 20


class InOrderOfUse(click.Group):
    """Lists its commands as they were added, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Those asked most first."""
        return list(self.commands)


@click.group(cls=InOrderOfUse)
def db() -> None:
    """Ask the tuning database: the best kernels, runs, trials.

    A time whose provenance is `recorded` was not measured by this run, but read from a recording.
    db/README.md has the tables and SQL for everything else.

    \b
    Examples:
      autogemm db best --gpu h100
      autogemm db show run:1
      autogemm db compare gpu:a100 gpu:h100
      autogemm db check --retune
      autogemm db export --format jsonl -o results.jsonl.gz
      autogemm db import results.jsonl.gz --db shared.db
    """
    # While SQLAlchemy is imported Python looks hundreds of times for garbage in cycles and finds
    # none: a seventh of a short command.
    gc.set_threshold(100_000)


@click.command()
@filter_options
@db_option
@listing_options
def best(query: BestQuery, db: str | None, as_json: bool, as_csv: bool) -> None:
    """The best kernel for each GPU and problem.

    It is the winner with the highest ratio to cuBLAS among the finals in the newest environment
    (driver, compiler, versions), or the fastest trial where there were no finals.
    ratio is cuBLAS time / own time: above 1 is faster than cuBLAS.

    \b
    Examples:
      autogemm db best
      autogemm db best --gpu h100 --size 4096 --json
    """
    with open_database(db) as store:
        rows = [db_rows.best_row(row) for row in store.best(query)]
    if not rows:
        click.echo("no results match", err=True)
    print_rows_as(rows, db_rows.BEST, db_rows.BEST_TABLE, as_json=as_json, as_csv=as_csv)


@click.command("list")
@click.option("--trials", "of_trials", is_flag=True, help="List trials instead of runs.")
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so: " + ", ".join(Status) + ".",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_NUMBER),
    help=f"At most so many, the newest. Default: {TABLE_ROWS} in a table, all in JSON and CSV.",
)
@filter_options
@db_option
@listing_options
def list_(  # noqa: PLR0913, PLR0917  # one parameter for each option
    query: BestQuery,
    db: str | None,
    of_trials: bool,
    status: str | None,
    limit: int | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Runs, or with --trials their trials, newest first.

    \b
    Examples:
      autogemm db list
      autogemm db list --trials --status wrong_result
      autogemm db list --trials --run 1 --limit 100
    """
    if status and not of_trials:
        raise UsageError("--status is a trial's: add --trials")
    if limit is None and not (as_json or as_csv):
        limit = TABLE_ROWS
    # One more than is shown tells whether there is more.
    fetched = None if limit is None else limit + 1
    with open_database(db) as store:
        if of_trials:
            wanted = Status(status) if status else None
            trials = store.trial_rows(query, wanted, fetched)
            rows = [db_rows.trial_row(trial) for trial in trials]
            columns, table = db_rows.TRIAL, db_rows.TRIAL_TABLE
        else:
            rows = [db_rows.run_row(run) for run in store.runs(query, fetched)]
            columns, table = db_rows.RUN, db_rows.RUN_TABLE
    kind = "trials" if of_trials else "runs"
    if not rows:
        click.echo(f"no {kind} match", err=True)
    print_rows_as(rows[:limit], columns, table, as_json=as_json, as_csv=as_csv)
    if limit is not None and len(rows) > limit:
        click.echo(f"only the newest {limit} {kind}: --limit shows more", err=True)


@click.command()
@click.argument("identifier", metavar="ID")
@db_option
@listing_options
def show(db: str | None, identifier: str, as_json: bool, as_csv: bool) -> None:
    """A kernel by number or sha256, run:N or trial:N.

    For a kernel, ID is its number or the beginning of its sha256. JSON holds a run's finals and a
    kernel's trials too.

    \b
    Examples:
      autogemm db show 12
      autogemm db show run:1
      autogemm db show trial:345 --json
    """
    kind, _, key = identifier.rpartition(":")
    if kind not in _FINDERS:
        raise UsageError(f"an ID is a kernel's number, run:N or trial:N, got {identifier!r}")
    with open_database(db) as store:
        found = _FINDERS[kind](store, key)
    if as_json or as_csv:
        facts, columns = found.facts, found.columns
        if as_json and found.part_name:
            part = [db_rows.for_json(row) for row in found.part]
            nested = [{name: row.get(name) for name in found.part_columns} for row in part]
            facts, columns = {**facts, found.part_name: nested}, (*columns, found.part_name)
        print_rows_as([facts], columns, columns, as_json=as_json, as_csv=as_csv)
    else:
        _print_found(found)


@click.command()
@db_option
def path(db: str | None) -> None:
    """Where the database is, or would be.

    \b
    Examples:
      sqlite3 "$(autogemm db path)" "SELECT count(*) FROM run_trials"
    """
    from autogemm.store import database_place

    click.echo(database_place(db))


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that was asked for: its facts, and the rows that belong to it."""

    facts: FlatRow
    columns: Columns
    part_name: str = ""
    part: Sequence[FlatRow] = ()
    part_columns: Columns = ()
    part_table: Columns = ()
    """Those for people, if they are not the same."""


def _find_kernel(store: Store, key: str) -> Found:
    kernel = store.stored_kernel(key)
    trials = [db_rows.trial_row(trial) for trial in store.kernel_trials(kernel.kernel_id)]
    facts = {**db_rows.latest_resources(trials), **db_rows.kernel_row(kernel)}
    return Found(facts, db_rows.KERNEL, "trials", trials, db_rows.KERNEL_TRIAL_TABLE)


def _find_run(store: Store, key: str) -> Found:
    run = store.run(_number(key, "run"))
    finals = db_rows.finals_rows(run.finals, run.spec.problem) if run.finals else []
    parts = ("finals", finals, db_rows.ENTRY, db_rows.ENTRY_TABLE)
    return Found(db_rows.run_row(run), db_rows.RUN, *parts)


def _find_trial(store: Store, key: str) -> Found:
    return Found(db_rows.trial_row(store.trial(_number(key, "trial"))), db_rows.TRIAL)


_FINDERS = {"": _find_kernel, "kernel": _find_kernel, "run": _find_run, "trial": _find_trial}


def _print_found(found: Found) -> None:
    readable = db_rows.for_people(found.facts)
    fields = [{"field": name, "value": shown(readable.get(name))} for name in found.columns]
    print_table(fields, ("field", "value"))
    if found.part:
        click.echo()
        print_readable(found.part, found.part_table or found.part_columns, found.part_name)


def _number(key: str, kind: str) -> int:
    if not (key.isascii() and key.isdigit()) or int(key[:11]) > MAX_NUMBER:
        raise UsageError(f"a {kind} has a number, as in {kind}:1; got {key!r}")
    return int(key)


for _command in (
    *(best, list_, show, why, history, compare, check, stats, sql, pareto),
    *(export, import_, merge, prune, vacuum, path),
):
    db.add_command(_command)
