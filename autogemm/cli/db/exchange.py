"""``autogemm db export`` and ``import``: results in files, ours and those of others."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autogemm.cli.files import write_output_pieces
from autogemm.cli.filters import filter_options, open_database
from autogemm.cli.options import db_option
from autogemm.cli.output import listing_options, print_rows
from autogemm.model.outcome import Status
from autogemm.support.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from autogemm.store import BestQuery, Store

# Those of autogemm.exchange.Format, which help must not import.
FORMATS = ("jsonl", "csv", "json", "t4", "kernel-tuner", "wisdom", "optuna")
IMPORTED = ("jsonl", "csv", "t4", "kernel-tuner")
DEFAULT_FORMAT = "json"
ENDINGS = (".csv", ".jsonl")


@click.command()
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    default="-",
    help="Write to this file, gzip'd if its name ends in .gz; - is standard output.",
)
@click.option(
    *("-f", "--format", "format_"),
    type=click.Choice(FORMATS),
    help=f"What to write. Default: what the name ends in, .csv or .jsonl, else {DEFAULT_FORMAT}.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--csv", "as_csv", is_flag=True, help="The same as --format csv.")
@click.option("--force", is_flag=True, help="Replace a file that is no earlier export.")
@click.option(
    "--status",
    metavar="STATUS",
    type=click.Choice([status.value for status in Status]),
    help="Trials that ended so: " + ", ".join(Status) + ".",
)
@filter_options
@db_option
def export(  # noqa: PLR0913, PLR0917  # one parameter for each option
    query: BestQuery,
    db: str | None,
    output: str,
    format_: str | None,
    as_json: bool,
    as_csv: bool,
    force: bool,
    status: str | None,
) -> None:
    """Write results to a file, oldest first.

    \b
    jsonl         all that is known: runs with sources, finals and certificates, benchmarks,
                  profiles; db import takes it back
    csv, json     one row a trial, without sources and finals; db import takes CSV back
    t4            the results format of the auto-tuning community, version 1.0.0
    kernel-tuner  a cache file, for Kernel Tuner's simulation mode
    wisdom        the best configs, for Kernel Launcher
    optuna        a study for each run and family, for optuna-dashboard

    t4 and kernel-tuner hold one kernel on one GPU for one problem, wisdom one kernel: narrow with
    the filters. docs/exchange.md says what each can hold. In JSON an infinite error is null.

    \b
    Examples:
      autogemm db export > trials.json
      autogemm db export --format jsonl -o results.jsonl.gz
      autogemm db export --csv --gpu h100 -o trials.csv
      autogemm db export --format t4 --run 3 -o run3.t4.json
      autogemm db export --format wisdom --family sgemm_simt --layout nn -o sgemm_simt_nn_f32.wisdom
      autogemm db export --format optuna -o studies.log
    """
    from autogemm.exchange import Format, write_results

    wanted = Format(_format(format_, output, as_json=as_json, as_csv=as_csv))
    with open_database(db) as store:
        only = Status(status) if status else None
        written = write_results(store, query, only, wanted)
        pieces = (piece.encode() for piece in written.pieces)
        write_output_pieces(output, pieces, force=force, ours=written.mark)
        if wanted is Format.JSONL and next(store.copies(query, only), None) is None:
            click.echo("nothing matches", err=True)
        elif wanted is not Format.JSONL and not store.trial_rows(query, only, limit=1):
            click.echo("no trials match", err=True)
    for note in written.notes:
        click.echo(note, err=True)
    if output != "-":
        click.echo(f"{output}: {wanted.value}, {Path(output).stat().st_size:,} bytes")


def _format(format_: str | None, output: str, *, as_json: bool, as_csv: bool) -> str:
    asked = [format_] if format_ else []
    asked += ["json"] * as_json + ["csv"] * as_csv
    if len(set(asked)) > 1:
        raise UsageError(f"one file is of one format, not {' and '.join(asked)}: choose one")
    if asked:
        return asked[0]
    ending = Path(output.removesuffix(".gz")).suffix
    return ending[1:] if ending in ENDINGS else DEFAULT_FORMAT


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    *("-f", "--format", "format_"),
    type=click.Choice(IMPORTED),
    help="What the file is. Default: recognised from its content.",
)
@click.option("--size", metavar="SIZE", help="4096 or MxNxK, for a file that does not say it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken.")
@db_option
@listing_options
def import_(  # noqa: PLR0913, PLR0917  # one parameter for each option
    db: str | None,
    file: Path,
    format_: str | None,
    size: str | None,
    dry_run: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Take what a file holds and the database does not.

    All of it is taken or, on any fault, nothing. What is there already is left as it is: the same
    file again adds nothing. Of other programs' files (t4, kernel-tuner) the times are recorded, not
    measured, and what such a file does not say is printed. Nothing in a file is ever run.

    \b
    Examples:
      autogemm db import results.jsonl.gz --dry-run
      autogemm db import trials.csv --db shared.db
      autogemm db import RTX_3090.json.gz --size 4096
    """
    from autogemm.exchange import Format, import_results

    wanted = Format(format_) if format_ else None
    with _opened(db, dry_run) as store:
        done = import_results(store, file, wanted, size=size, dry_run=dry_run)
    for note in done.notes:
        click.echo(note, err=True)
    new, known = done.taken.new, done.taken.known
    rows = [
        {"what": kind, "new": new.get(kind, 0), "known": known.get(kind, 0)}
        for kind in dict.fromkeys((*new, *known))
    ]
    if not (as_json or as_csv):
        verb = "would add" if dry_run else "added"
        num_all = done.taken.num_new + sum(known.values())
        click.echo(f"{file} ({done.format}): {verb} {done.taken.num_new} of {num_all} records")
    if rows or as_json or as_csv:
        print_rows(rows, ("what", "new", "known"), as_json=as_json, as_csv=as_csv)


@contextmanager
def _opened(db: str | None, dry_run: bool) -> Iterator[Store]:
    """The database, made if need be; for a dry run an empty one in place of none."""
    from autogemm.store import open_store

    if not dry_run:
        with open_store(db) as store:
            yield store
        return
    with tempfile.TemporaryDirectory(prefix="autogemm-") as folder:
        try:
            store = open_store(db, create=False)
        except NotFoundError:
            store = open_store(str(Path(folder) / "empty.db"))
        with store:
            yield store
