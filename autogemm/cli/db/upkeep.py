"""``autogemm db merge``, ``prune`` and ``vacuum``: what changes the database as a whole."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from autogemm.cli.filters import filter_options, open_database, print_rows_as
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options
from autogemm.cli.rows import Columns
from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from autogemm.store import BestQuery

MERGED: Columns = ("table", "added", "known")
PRUNED: Columns = ("run_id", "state", "reason")
# How many rows a table shows.
TABLE_ROWS = 20
DAYS = {"d": 1, "w": 7, "y": 365}


@click.command()
@click.argument("other", metavar="OTHER.db")
@db_option
@listing_options
def merge(other: str, db: str | None, as_json: bool, as_csv: bool) -> None:
    """Add what another database has and this one lacks.

    Its runs, trials, finals, kernels, certificates, benchmarks, profiles. OTHER is a SQLite
    file, which is not touched, or a URL. What both have stays once, and merging again adds nothing.
    All of it is added or, after an error, nothing. Optuna's studies stay where they are.

    \b
    Examples:
      autogemm db merge results-of-the-other-machine.db
      autogemm db merge ~/old.db --db postgresql://me@server/autogemm
    """
    from autogemm.store import open_store, opened_copy

    with opened_copy(other) as source, open_store(db) as store:
        merged = store.merge(source)
    rows = [
        {"table": table, "added": merged.added[table], "known": merged.known[table]}
        for table in merged.added
        if merged.added[table] or merged.known[table]
    ]
    if not rows:
        click.echo(f"{other} holds nothing", err=True)
    print_rows_as(rows, MERGED, MERGED, as_json=as_json, as_csv=as_csv)


def age(context: click.Context, parameter: click.Parameter, text: str | None) -> timedelta | None:
    """``90d``, ``12w``, ``1y`` as a time. Raises click.BadParameter for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,4})([dwy])", text.strip().lower())
    if match is None:
        raise click.BadParameter(f"{text!r} is not an age: write 90d, 12w or 1y")
    return timedelta(days=int(match[1]) * DAYS[match[2]])


@click.command()
@click.option(
    "--older-than",
    metavar="AGE",
    callback=age,
    help="Runs that began longer ago than that: 90d, 12w, 1y.",
)
@click.option("--with-best", is_flag=True, help="Also runs that hold a best kernel.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@filter_options
@db_option
@listing_options
def prune(  # noqa: PLR0913, PLR0917  # one parameter for each option
    query: BestQuery,
    older_than: timedelta | None,
    with_best: bool,
    dry_run: bool,
    yes: bool,
    db: str | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Delete runs that are not needed any more.

    With them go their trials, finals, studies, and kernels that nobody else has. Runs that hold the
    best kernel of a GPU and problem stay, and so do those that are being written and those with a
    failed certificate. Asks before it deletes. `autogemm db vacuum` then gives the space back.

    \b
    Examples:
      autogemm db prune --older-than 90d --dry-run
      autogemm db prune --gpu t4 --provenance recorded --yes
      autogemm db prune --run 3 --with-best
    """
    from autogemm.store import BestQuery

    if query == BestQuery() and older_than is None:
        raise UsageError("say which runs: --older-than, --run or another filter")
    before = datetime.now(UTC) - older_than if older_than is not None else None
    with open_database(db) as store:
        found = store.prunable(query, before, with_best=with_best)
        num_runs = len(found.run_ids)
        what = f"{num_runs} run{'s' * (num_runs != 1)} with {found.num_trials} trials"
        if not dry_run and num_runs:
            if not yes:
                click.confirm(f"delete {what}?", abort=True, err=True)
            store.prune(found.run_ids)
    done = "would delete" if dry_run else "deleted"
    rows = [{"run_id": run_id, "state": done, "reason": ""} for run_id in found.run_ids]
    rows += [{"run_id": run_id, "state": "kept", "reason": why} for run_id, why in found.kept]
    if as_json or as_csv:
        print_rows_as(rows, PRUNED, PRUNED, as_json=as_json, as_csv=as_csv)
        return
    click.echo(f"{done} {what}; {len(found.kept)} that match are kept")
    shown = rows if dry_run else [row for row in rows if row["state"] == "kept"]
    print_rows_as(shown[:TABLE_ROWS], PRUNED, PRUNED, as_json=False, as_csv=False)
    if len(shown) > TABLE_ROWS:
        click.echo(f"and {len(shown) - TABLE_ROWS} more: --json names all", err=True)


@click.command()
@db_option
@listing_options
def vacuum(db: str | None, as_json: bool, as_csv: bool) -> None:
    """Give back the space of what was deleted.

    And count anew what is in the tables, so that queries find their way.

    \b
    Examples:
      autogemm db vacuum
    """
    with open_database(db) as store:
        before, after = store.vacuum()
    row = {"bytes_before": before, "bytes_after": after, "freed": before - after}
    print_rows_as([row], tuple(row), tuple(row), as_json=as_json, as_csv=as_csv)
