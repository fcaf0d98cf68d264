"""``autogemm db merge``, ``prune`` and ``vacuum``: what changes the database as a whole."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click

from autogemm.cli.output import Form
from autogemm.cli.prose import say
from autogemm.cli.rows import Columns, open_database, print_rows_as
from autogemm.store import BestQuery, open_store, opened_copy
from autogemm.support.errors import UsageError

MERGED: Columns = ("table", "added", "known")
PRUNED: Columns = ("run_id", "state", "reason")
# How many rows a table shows.
TABLE_ROWS = 20


def run_merge(other: str, db: str | None, form: Form) -> None:
    """Merge another database into this one, and print what was added."""
    with opened_copy(other) as source, open_store(db) as store:
        merged = store.merge(source)
    rows = [
        {"table": table, "added": merged.added[table], "known": merged.known[table]}
        for table in merged.added
        if merged.added[table] or merged.known[table]
    ]
    if not rows:
        say(f"{other} holds nothing", err=True)
    print_rows_as(rows, MERGED, MERGED, form)


@dataclass(frozen=True, slots=True)
class PruneCommand:
    """One call of ``db prune``. Raises UsageError where no runs are named."""

    query: BestQuery
    older_than: timedelta | None
    with_best: bool
    dry_run: bool
    yes: bool
    db: str | None
    form: Form

    def __post_init__(self) -> None:
        if self.query == BestQuery() and self.older_than is None:
            raise UsageError("say which runs: --older-than, --run or another filter")


def run_prune(command: PruneCommand) -> None:
    """Delete runs, after asking unless ``yes``, and print which."""
    older_than = command.older_than
    before = datetime.now(UTC) - older_than if older_than is not None else None
    with open_database(command.db) as store:
        found = store.prunable(command.query, before, with_best=command.with_best)
        num_runs = len(found.run_ids)
        what = f"{num_runs} run{'s' * (num_runs != 1)} with {found.num_trials} trials"
        if not command.dry_run and num_runs:
            if not command.yes:
                click.confirm(f"delete {what}?", abort=True, err=True)
            store.prune(found.run_ids)
    done = "would delete" if command.dry_run else "deleted"
    rows = [{"run_id": run_id, "state": done, "reason": ""} for run_id in found.run_ids]
    rows += [{"run_id": run_id, "state": "kept", "reason": why} for run_id, why in found.kept]
    if command.form is not Form.TABLE:
        print_rows_as(rows, PRUNED, PRUNED, command.form)
        return
    say(f"{done} {what}; {len(found.kept)} matching runs are kept")
    shown = rows if command.dry_run else [row for row in rows if row["state"] == "kept"]
    print_rows_as(shown[:TABLE_ROWS], PRUNED, PRUNED, Form.TABLE)
    if len(shown) > TABLE_ROWS:
        say(f"and {len(shown) - TABLE_ROWS} more: --json names all", err=True)


def run_vacuum(db: str | None, form: Form) -> None:
    """Vacuum the database, and print what was freed."""
    with open_database(db) as store:
        before, after = store.vacuum()
    row = {"bytes_before": before, "bytes_after": after, "freed": before - after}
    print_rows_as([row], tuple(row), tuple(row), form)
