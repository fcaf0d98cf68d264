"""``autogemm db export`` and ``import``: results in files, the project's own and others."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autogemm.cli.files import write_output_pieces
from autogemm.cli.output import Form, print_rows
from autogemm.cli.progress import watched
from autogemm.cli.prose import say
from autogemm.cli.rows import open_database
from autogemm.exchange import Format, import_results, write_results
from autogemm.model.results.outcome import Status
from autogemm.store import BestQuery, Store, open_store
from autogemm.support.errors import NotFoundError, UsageError

# Endings of names that say the format; any other is JSON.
ENDINGS = {".csv": Format.CSV, ".jsonl": Format.JSONL}


@dataclass(frozen=True, slots=True)
class ExportCommand:
    """One call of ``db export``. ``as_json`` and ``as_csv`` are formats too."""

    output: str
    file_format: str | None
    as_json: bool
    as_csv: bool
    force: bool
    status: Status | None
    query: BestQuery
    db: str | None

    @property
    def wanted(self) -> Format:
        """The format to write. Raises UsageError for several."""
        asked = [self.file_format] if self.file_format else []
        asked += ["json"] * self.as_json + ["csv"] * self.as_csv
        if len(set(asked)) > 1:
            raise UsageError(f"a file has one format, not {' and '.join(asked)}: choose one")
        if asked:
            return Format(asked[0])
        return ENDINGS.get(Path(self.output.removesuffix(".gz")).suffix, Format.JSON)


def run_export(command: ExportCommand) -> None:
    """Write the results."""
    wanted, output = command.wanted, command.output
    query, only = command.query, command.status
    with open_database(command.db) as store:
        written = write_results(store, query, only, wanted)
        pieces = (piece.encode() for piece in written.pieces)
        write_output_pieces(output, pieces, force=command.force, ours=written.mark)
        if wanted is Format.JSONL and next(store.copies(query, only), None) is None:
            say("nothing matches", err=True)
        elif wanted is not Format.JSONL and not store.trial_rows(query, only, limit=1):
            say("no trials match", err=True)
    for note in written.notes:
        say(note, err=True)
    if output != "-":
        say(f"{output}: {wanted.value}, {Path(output).stat().st_size:,} bytes")


@dataclass(frozen=True, slots=True)
class ImportCommand:
    """One call of ``db import``."""

    file: Path
    file_format: str | None
    size: str | None
    dry_run: bool
    db: str | None
    form: Form


def run_import(command: ImportCommand) -> None:
    """Import the records that the database does not have, and print how many there are."""
    file, dry_run = command.file, command.dry_run
    wanted = Format(command.file_format) if command.file_format else None
    with _opened(command.db, dry_run) as store:
        done = import_results(
            *(store, file, wanted),
            size=command.size,
            dry_run=dry_run,
            watch=lambda copies, total: watched(copies, total, "records"),
        )
    for note in done.notes:
        say(note, err=True)
    new, known = done.taken.new, done.taken.known
    rows = [
        {"what": kind, "new": new.get(kind, 0), "known": known.get(kind, 0)}
        for kind in dict.fromkeys((*new, *known))
    ]
    if command.form is Form.TABLE:
        verb = "would add" if dry_run else "added"
        num_all = done.taken.num_new + sum(known.values())
        say(f"{file} ({done.format}): {verb} {done.taken.num_new} of {num_all} records")
    if rows or command.form is not Form.TABLE:
        print_rows(rows, ("what", "new", "known"), command.form)


@contextmanager
def _opened(db: str | None, dry_run: bool) -> Iterator[Store]:
    """Open the database, created if need be; a dry run without a database gets an empty one."""
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
