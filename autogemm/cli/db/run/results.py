"""``autogemm db best``, ``list``, ``show``, ``stats`` and ``sql``: stored results as rows."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from autogemm.cli import rows as db_rows
from autogemm.cli.options import MAX_NUMBER
from autogemm.cli.output import Form, print_each
from autogemm.cli.prose import say
from autogemm.cli.rows import Columns, FlatRow, open_database, print_readable, print_rows_as
from autogemm.cli.table import print_table
from autogemm.model.results.outcome import Status
from autogemm.store import BestQuery, Store, shipped_winners
from autogemm.support.cells import shown
from autogemm.support.errors import UsageError


def run_best(query: BestQuery, db: str | None, form: Form) -> None:
    """Print the best results."""
    with open_database(db) as store:
        rows = [db_rows.best_row(row) for row in store.best(query)]
    if not rows:
        say("no results match", err=True)
    print_rows_as(rows, db_rows.BEST, db_rows.BEST_TABLE, form, short=db_rows.BEST_SHORT)


def run_catalogue(query: BestQuery, form: Form) -> None:
    """Print the winners that ship. Raises UsageError for a query of one run."""
    if query.run_id is not None:
        raise UsageError(
            "--run selects a run of the database, but winners that ship have no run: leave it out"
        )
    rows = [db_rows.winner_row(one) for one in shipped_winners(query)]
    if not rows:
        say("no winners match", err=True)
    elif form is Form.TABLE:
        say("RECORDED: not measured on this machine", err=True)
    columns, table = db_rows.WINNER, db_rows.WINNER_TABLE
    print_rows_as(rows, columns, table, form, short=db_rows.WINNER_SHORT)


@dataclass(frozen=True, slots=True)
class ListCommand:
    """One call of ``db list``. Raises UsageError for a status of runs."""

    query: BestQuery
    db: str | None
    of_trials: bool
    status: Status | None
    limit: int | None
    form: Form

    def __post_init__(self) -> None:
        if self.status and not self.of_trials:
            raise UsageError("--status is for trials: add --trials")


def run_list(command: ListCommand) -> None:
    """Print runs or trials, the newest first."""
    limit = command.limit
    # One more than is shown tells whether there is more.
    fetched = None if limit is None else limit + 1
    if command.of_trials and command.form is not Form.TABLE:
        _print_each_trial(command, fetched)
        return
    with open_database(command.db) as store:
        if command.of_trials:
            trials = store.trial_rows(command.query, command.status, fetched)
            rows = [db_rows.trial_row(trial) for trial in trials]
            columns, table, short = db_rows.TRIAL, db_rows.TRIAL_TABLE, db_rows.TRIAL_SHORT
        else:
            rows = [db_rows.run_row(run) for run in store.runs(command.query, fetched)]
            columns, table, short = db_rows.RUN, db_rows.RUN_TABLE, db_rows.RUN_SHORT
    kind = "trials" if command.of_trials else "runs"
    print_rows_as(rows[:limit], columns, table, command.form, short=short)
    _say_how_many(kind, len(rows), limit)


def _print_each_trial(command: ListCommand, fetched: int | None) -> None:
    """Print trials as JSON or CSV as they are read: there may be a million."""
    shape = db_rows.for_csv if command.form is Form.CSV else db_rows.for_json
    with open_database(command.db) as store:
        found = store.each_trial_row(command.query, command.status, fetched)
        rows = (shape(db_rows.trial_row(trial)) for trial in islice(found, command.limit))
        count = print_each(rows, db_rows.TRIAL, command.form)
        count += next(found, None) is not None
    _say_how_many("trials", count, command.limit)


def _say_how_many(kind: str, found: int, limit: int | None) -> None:
    """Say on standard error that nothing matches, or more than is shown."""
    if not found:
        say(f"no {kind} match", err=True)
    if limit is not None and found > limit:
        say(f"only the newest {limit} {kind}: --limit shows more", err=True)


def run_show(identifier: str, db: str | None, form: Form) -> None:
    """Print a kernel, run or trial. Raises UsageError for an identifier of another form."""
    kind, _, key = identifier.rpartition(":")
    if kind not in _FINDERS:
        raise UsageError(f"an ID is a kernel's number, run:N or trial:N, got {identifier!r}")
    with open_database(db) as store:
        found = _FINDERS[kind](store, key)
    if form is Form.TABLE:
        _print_found(found)
        return
    facts, columns = found.facts, found.columns
    if form is Form.JSON and found.part_name:
        part = [db_rows.for_json(row) for row in found.part]
        nested = [{name: row.get(name) for name in found.part_columns} for row in part]
        facts, columns = {**facts, found.part_name: nested}, (*columns, found.part_name)
    print_rows_as([facts], columns, columns, form)


@dataclass(frozen=True, slots=True)
class Found:
    """Facts of a kernel, run or trial, and the rows that belong to it."""

    facts: FlatRow
    columns: Columns
    part_name: str = ""
    part: Sequence[FlatRow] = ()
    part_columns: Columns = ()
    part_table: Columns = ()
    """The columns for people, if they are others."""
    part_short: Columns = ()


def _find_kernel(store: Store, key: str) -> Found:
    kernel = store.stored_kernel(key)
    trials = [db_rows.trial_row(trial) for trial in store.kernel_trials(kernel.kernel_id)]
    facts = {**db_rows.latest_resources(trials), **db_rows.kernel_row(kernel)}
    parts = ("trials", trials, db_rows.KERNEL_TRIAL_TABLE)
    return Found(facts, db_rows.KERNEL, *parts, part_short=db_rows.KERNEL_TRIAL_SHORT)


def _find_run(store: Store, key: str) -> Found:
    run = store.run(_number(key, "run"))
    finals = db_rows.finals_rows(run.finals, run.spec.problem) if run.finals else []
    parts = ("finals", finals, db_rows.ENTRY, db_rows.ENTRY_TABLE, db_rows.ENTRY_SHORT)
    return Found(db_rows.run_row(run), db_rows.RUN, *parts)


def _find_trial(store: Store, key: str) -> Found:
    return Found(db_rows.trial_row(store.trial(_number(key, "trial"))), db_rows.TRIAL)


_FINDERS = {"": _find_kernel, "kernel": _find_kernel, "run": _find_run, "trial": _find_trial}


def _print_found(found: Found) -> None:
    readable = db_rows.for_people(found.facts)
    fields = [{"field": name, "value": shown(readable.get(name))} for name in found.columns]
    print_table(fields, ("field", "value"))
    if found.part:
        say()
        table = found.part_table or found.part_columns
        print_readable(found.part, table, found.part_name, short=found.part_short)


def _number(key: str, kind: str) -> int:
    if not (key.isascii() and key.isdigit()) or int(key[:11]) > MAX_NUMBER:
        raise UsageError(f"a {kind} has a number, as in {kind}:1; got {key!r}")
    return int(key)


# --timeout none becomes this: no database takes infinity.
MAX_TIMEOUT_S = 86_400.0

STATS: Columns = (
    *("gpu", "provenance", "num_runs", "num_problems", "num_environments", "num_trials"),
    *("num_ok", "hours", "first_at", "last_at"),
)
STATS_SHORT: Columns = ("gpu", "provenance", "num_runs", "num_problems", "num_trials", "hours")


def run_stats(query: BestQuery, db: str | None, form: Form) -> None:
    """Print how much the database holds."""
    with open_database(db) as store:
        rows = [asdict(row) for row in store.stats(query)]
    if not rows:
        say("no runs match", err=True)
    print_rows_as(rows, STATS, STATS, form, short=STATS_SHORT)


def run_sql(
    query: str, limit: int | None, timeout_s: float | None, db: str | None, form: Form
) -> None:
    """Print the rows of the SELECT ``query``; ``-`` is standard input."""
    select = sys.stdin.read() if query == "-" else query
    with open_database(db) as store:
        found = store.sql(
            select, timeout_s=min(timeout_s or MAX_TIMEOUT_S, MAX_TIMEOUT_S), limit=limit
        )
    rows: list[FlatRow] = [
        dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows
    ]
    if form is Form.TABLE and rows:
        # The user names the columns, so nothing is known of their contents.
        print_table(rows, found.columns, keep_empty=True)
    elif form is not Form.TABLE:
        print_rows_as(rows, found.columns, found.columns, form)
    if not rows:
        say("no rows", err=True)
    if found.is_cut:
        say(f"only the first {limit} rows: --limit shows more", err=True)


def _plain(value: Any) -> Any:
    """Return a value that JSON has: decimal numbers as floats, bytes in hexadecimal."""
    if isinstance(value, Decimal):
        return float(value)
    return value.hex() if isinstance(value, bytes | memoryview) else value
