"""The formats of results files: recognising them, and writing and reading a database in each."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from autogemm.exchange import table
from autogemm.exchange.jsonl import jsonl
from autogemm.exchange.jsonl.lines import FORMAT
from autogemm.exchange.listed import listed_copies, listed_selection
from autogemm.exchange.wisdom import wisdom_pieces
from autogemm.formats import LISTED_FORMATS, MAX_UNPACKED_BYTES, listed_format
from autogemm.model.results.outcome import Status
from autogemm.search import FinishedStudy, FinishedTrial
from autogemm.store import BestQuery, Copy, RunCopy, Store, Taken, TrialCopy
from autogemm.support.errors import ExchangeError, NotFoundError, UsageError
from autogemm.support.files import unpacked


class Format(StrEnum):
    """The formats that results can be written in; `IMPORTED` can be read, too."""

    JSONL = "jsonl"
    CSV = "csv"
    JSON = "json"
    T4 = "t4"
    KERNEL_TUNER = "kernel-tuner"
    WISDOM = "wisdom"
    OPTUNA = "optuna"


_LINES: dict[Format, Callable[[Path], Iterable[Copy]]] = {
    Format.JSONL: jsonl.read_jsonl,
    Format.CSV: table.read_csv,
}

IMPORTED = (*_LINES, *map(Format, LISTED_FORMATS))

# Beginnings of files of other kinds, and the advice for each.
_OTHERS = {
    b'"ConfigurationSpace"': "a search space (T1): autogemm space shows it",
    b'"autogemm-recording"': "a recording: tune on it with --gpu recorded:FILE",
    b'"tunable_parameters"': "a wisdom file, which holds too little to be read back",
    b'"op_code"': "a journal of Optuna, which holds too little to be read back",
}


@dataclass(frozen=True, slots=True)
class Written:
    """A file in pieces; ``notes`` say what it leaves out, ``mark`` how such a file begins."""

    pieces: Iterator[str]
    mark: bytes
    notes: tuple[str, ...] = ()


def write_results(store: Store, query: BestQuery, status: Status | None, wanted: Format) -> Written:
    """The trials that match in one of the formats, piece by piece.

    Raises UsageError when the selection is more than the format holds, NotFoundError when there is
    nothing of which such a file could be; while the pieces are made, ExchangeError and StoreError.
    """
    match wanted:
        case Format.JSONL:
            return Written(jsonl.jsonl_pieces(store.leaving(query, status)), jsonl.MARK)
        case Format.CSV:
            return Written(table.csv_pieces(store.runs_and_trials(query, status)), table.MARK)
        case Format.JSON:
            pieces = table.json_pieces(store.runs_and_trials(query, status))
            return Written(pieces, f'[\n  {{"{table.COLUMNS[0]}"'.encode())
        case Format.WISDOM:
            if status is not None:
                raise UsageError("a wisdom file contains only the best configs: leave out --status")
            notes, pieces = wisdom_pieces(store, query)
            return Written(pieces, b'{"version"', notes)
        case Format.OPTUNA:
            # Optuna takes a second to import.
            from autogemm.search import MARK, journal_pieces

            return Written(journal_pieces(_finished_studies(store.copies(query, status))), MARK)
        case _:
            listed = LISTED_FORMATS[wanted]
            return Written(listed.pieces(listed_selection(store, query, status)), listed.mark)


def _finished_studies(copies: Iterable[Copy]) -> Iterator[FinishedStudy]:
    """Trials by run and family, for optuna-dashboard; one run at a time is held in memory."""
    run: RunCopy | None = None
    by_family: dict[str, list[FinishedTrial]] = {}
    for copy in copies:
        if isinstance(copy, RunCopy):
            yield from _studies(run, by_family)
            run, by_family = copy, {}
        elif isinstance(copy, TrialCopy) and run is not None:
            is_ok = copy.outcome.status is Status.OK
            value = copy.outcome.cost(run.spec.objective) if is_ok else None
            trial = FinishedTrial(copy.outcome, value, copy.finished_at)
            by_family.setdefault(copy.outcome.config.family, []).append(trial)
    yield from _studies(run, by_family)


def _studies(
    run: RunCopy | None, by_family: dict[str, list[FinishedTrial]]
) -> Iterator[FinishedStudy]:
    for family, trials in by_family.items():
        assert run is not None, "a trial comes behind its run"
        yield FinishedStudy(f"run {run.run_id}: {family} {run.spec.problem.label}", trials)


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import: the format, the numbers of imported records, and notes."""

    format: Format
    taken: Taken
    notes: tuple[str, ...] = ()


Watch = Callable[[Iterable[Copy], int], Iterable[Copy]]


def import_results(  # noqa: PLR0913  # a file, and what is wanted of it
    store: Store,
    path: Path,
    wanted: Format | None = None,
    *,
    size: str | None = None,
    dry_run: bool = False,
    watch: Watch = lambda copies, total: copies,
) -> Imported:
    """Import the records of a file that the database lacks: all of them, or none if there is an
    error.

    ``watch`` is given the records and about how many there are, and passes them on.

    The format is recognised from the content. ``size`` is for a file that does not say its problem.
    Raises NotFoundError for a file that is not there, UsageError for one of another kind and for a
    size that is missing, ExchangeError and RecordingError for a broken one, StoreError.
    """
    if not path.exists():
        raise NotFoundError(f"no such file: {path}")
    found = wanted or recognised(path)
    if found in _LINES:
        if size is not None:
            raise UsageError(f"a file of the format {found} says its problems: leave --size out")
        total = _num_lines(path)
        # Opened anew each time that it is asked.
        taken = store.import_copies(lambda: watch(_LINES[found](path), total), dry_run=dry_run)
        return Imported(found, taken)
    if found not in LISTED_FORMATS:
        raise UsageError(f"the format {found} cannot be imported: {', '.join(IMPORTED)} can")
    notes, copies = listed_copies(path, LISTED_FORMATS[found].read(path), size, datetime.now(UTC))
    taken = store.import_copies(lambda: watch(copies, len(copies)), dry_run=dry_run)
    return Imported(found, taken, notes)


def _num_lines(path: Path) -> int:
    """Return how many lines follow the first; 0 for a file that cannot be read."""
    try:
        return sum(piece.count(b"\n") for piece in unpacked(path, MAX_UNPACKED_BYTES)) - 1
    except (OSError, ValueError):
        return 0


def recognised(path: Path) -> Format:
    """The format of a file, from its beginning.

    Raises UsageError for one that is none of them, ExchangeError for one that cannot be read.
    """
    try:
        head = next(unpacked(path, MAX_UNPACKED_BYTES), b"")
    except OSError as error:
        raise ExchangeError(f"cannot read {path}: {error}") from error
    first_line = head.partition(b"\n")[0]
    if FORMAT.encode() in first_line:
        return Format.JSONL
    if all(name.encode() in first_line for name in table.COLUMNS[:6]):
        return Format.CSV
    if listed := listed_format(path):
        return Format(listed)
    for mark, what in _OTHERS.items():
        if mark in head:
            raise UsageError(f"{path} is {what}")
    raise UsageError(
        f"{path} has none of the known formats: {', '.join(IMPORTED)}; see docs/exchange.md"
    )
