"""Trials on their way out, some hundred at a time, as columns of plain cells.

Making an object for each row and each of its parts takes ten times as long as reading the row.
Values (`TrialCopy`) are made from the columns on demand.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, groupby
from types import NoneType
from typing import Any

from pydantic_core import from_json
from sqlalchemy import ColumnElement, Text, cast, select, type_coerce
from sqlalchemy.engine.processors import to_float
from sqlalchemy.orm import Session
from sqlalchemy.types import NullType

from autogemm.model.config import Config
from autogemm.model.kernel import Resources
from autogemm.model.results.columns import ERRORS, TELEMETRY, names_of
from autogemm.model.results.outcome import (
    CacheState,
    Measurement,
    Outcome,
    Provenance,
    Status,
    Telemetry,
    Verification,
)
from autogemm.store.tables.cells import CellError, Facts, Number, Numbers
from autogemm.store.tables.models import (
    KernelRecord,
    MeasurementRecord,
    ResourcesRecord,
    TrialRecord,
)
from autogemm.store.tables.records import BestQuery, KernelCopy, TrialCopy
from autogemm.support.limits import MAX_SAMPLES

# Rows that are read, and turned into text, together: few enough for the processor's cache.
BATCH = 400

_OWN = ("run_id", "number", "status", "reason", "kernel_id", "family", "time_us", *ERRORS)
_OWN += ("compile_seconds", "measure_seconds", "gpu_number", "pace", "finished_at")
_TIMED = ("method", "launches_per_sample", "energy_mj", "throttled_samples", *TELEMETRY)
# The facts of one kernel of a source, in the order of `Resources`.
Used = tuple[Any, ...]
_USED = names_of(Resources)
_FACTS, _NUMBERS = Facts(), Numbers()
# Lists of samples as they are stored, each number at least 1 and below 1e9, so that nothing need be
# decoded to be sure of them. Possessive: a text that does not match is given up at once.
_SAMPLE = r"[1-9][0-9]{0,8}+\.[0-9]{1,17}+"
_LISTS = re.compile(rf"(?:\[{_SAMPLE}(?:, {_SAMPLE})*+\]\n)*+")
# Kernels whose sha256 are kept, of 150 bytes each.
_MOST_KERNELS = 100_000
# Longer texts could hold more samples than a file may.
_MAX_LIST_CHARS = 4 * MAX_SAMPLES


# Tables, not the classes of their rows: Python's share of reading a row halves.
_TRIALS, _TIMES, _KERNELS, _PARTS = (
    one.__table__.c for one in (TrialRecord, MeasurementRecord, KernelRecord, ResourcesRecord)
)
_SELECTED: dict[str, ColumnElement[Any]] = {
    "trial_id": _TRIALS.id,
    **{name: _TRIALS[name] for name in _OWN},
    **{name: _TIMES[name] for name in _TIMED},
    "measured_l2": _TIMES.l2,
    "measured_provenance": _TIMES.provenance,
    # As they stand in the database: decoded one by one they take longer than all the rest.
    "config": cast(_TRIALS.config, Text),
    "samples_us": cast(_TIMES.samples_us, Text),
}
_JOINED = TrialRecord.__table__.outerjoin(
    MeasurementRecord.__table__, _TIMES.trial_id == _TRIALS.id
)
_REAL = tuple(name for name, column in _SELECTED.items() if isinstance(column.type, Number))


@dataclass(frozen=True, slots=True)
class TrialColumns:
    """Some trials by run and number: a list of cells for each name.

    ``config`` and ``samples_us`` are JSON as it is stored, of which ``configs`` and ``samples`` are
    the values. Without a measurement its cells are None.
    """

    cells: Mapping[str, Sequence[Any]]
    constant: frozenset[str]
    """The columns whose cells are all the same, which need be looked at once."""
    configs: Sequence[Config]
    decoded: Sequence[list[float] | None] | None
    """The samples; None where `_LISTS` says that all are sound, and nothing was decoded."""
    resources: Sequence[tuple[Used, ...]]
    kernels: Mapping[int, KernelCopy] = field(default_factory=dict)
    """Sources that come before the trial at that position."""

    def __len__(self) -> int:
        return len(self.configs)

    @property
    def samples(self) -> Sequence[list[float] | None]:
        """The samples of each measurement in microseconds."""
        return _samples(self.cells["samples_us"]) if self.decoded is None else self.decoded

    def copies(self) -> Iterator[TrialCopy]:
        """The trials as values. Raises ValueError for an unknown word."""
        names = list(self.cells)
        for cells, config, samples, used in zip(
            zip(*self.cells.values(), strict=True),
            *(self.configs, self.samples, self.resources),
            strict=True,
        ):
            row = dict(zip(names, cells, strict=True))
            outcome = Outcome(
                config,
                Status(row["status"]),
                row["reason"],
                row["kernel_sha256"],
                tuple(Resources(*one) for one in used),
                _verification(row),
                None if samples is None else _measurement(row, samples),
                row["compile_seconds"],
                row["measure_seconds"],
                row["gpu_number"],
                row["pace"],
            )
            yield TrialCopy(row["run_id"], row["number"], outcome, row["finished_at"])

    def part(self, begin: int, end: int) -> "TrialColumns":
        """Some of the trials."""
        cells = {name: column[begin:end] for name, column in self.cells.items()}
        return TrialColumns(
            cells,
            self.constant,
            self.configs[begin:end],
            None if self.decoded is None else self.decoded[begin:end],
            self.resources[begin:end],
        )


def _verification(row: Mapping[str, Any]) -> Verification | None:
    if row["max_error_ratio"] is None or row["error"] is None:
        return None
    return Verification(*(row[name] for name in ERRORS))


def _measurement(row: Mapping[str, Any], samples: list[float]) -> Measurement:
    return Measurement(
        samples_us=tuple(samples),
        provenance=Provenance(row["measured_provenance"]),
        method=row["method"],
        launches_per_sample=row["launches_per_sample"],
        l2=CacheState(row["measured_l2"]),
        telemetry=Telemetry(*(row[name] for name in TELEMETRY)),
        energy_mj=row["energy_mj"],
        throttled_samples=row["throttled_samples"],
    )


@dataclass(frozen=True, slots=True)
class TrialReader:
    """Reads the trials that match from a database."""

    session: Session
    query: BestQuery
    status: Status | None
    _sha256: dict[int | None, str] = field(default_factory=dict)
    """Hashes of kernels by number: joining their table takes a quarter longer than all the rest."""

    def batches(self, run_ids: Sequence[int]) -> Iterator[TrialColumns]:
        """Yield the trials of these runs, by run and number.

        Raises ValueError for a cell of another kind.
        """
        statement = (
            # Without a type nothing is converted cell by cell: `_columns` does it by column.
            select(*(type_coerce(column, NullType()).label(n) for n, column in _SELECTED.items()))
            .select_from(_JOINED)
            .where(_TRIALS.run_id.in_(run_ids))
            .order_by(_TRIALS.run_id, _TRIALS.number)
            .execution_options(yield_per=BATCH)
        )
        if self.query.family is not None:
            statement = statement.where(_TRIALS.family == self.query.family)
        if self.status is not None:
            statement = statement.where(_TRIALS.status == self.status.value)
        found = self.session.connection().execute(statement)
        return map(self._columns, found.partitions())

    def _columns(self, rows: Sequence[Any]) -> TrialColumns:
        cells: dict[str, Any] = dict(zip(_SELECTED, zip(*rows, strict=True), strict=True))
        constant = frozenset(name for name, column in cells.items() if is_constant(column))
        _require_sound(cells)
        for name in _REAL:
            some = cells[name][:1] if name in constant else cells[name]
            if not set(map(type, some)) <= {float, NoneType}:
                cells[name] = tuple(map(to_float, cells[name]))
        cells["finished_at"] = _moments(cells["finished_at"])
        cells["kernel_sha256"] = self._hashes(cells["kernel_id"])
        return TrialColumns(
            cells,
            constant,
            list(map(_config, cells["family"], cells["config"])),
            None if _are_sound(cells["samples_us"]) else _samples(cells["samples_us"]),
            _resources(self.session, cells.pop("trial_id")),
        )

    def _hashes(self, kernel_ids: Sequence[int | None]) -> list[str]:
        """The sha256 of each kernel, empty without one."""
        known = self._sha256
        if len(known) > _MOST_KERNELS:
            known.clear()
        named = filter(None, set(kernel_ids))
        if missing := [one for one in named if one not in known]:
            statement = select(_KERNELS.id, _KERNELS.kernel_sha256)
            found = self.session.connection().execute(statement.where(_among(_KERNELS.id, missing)))
            known.update(map(tuple, found))
        return [known.get(kernel_id, "") for kernel_id in kernel_ids]


def by_run(batches: Iterator[TrialColumns]) -> Iterator[tuple[int, Iterator[TrialColumns]]]:
    """Yield the number of each run and its trials."""
    parts = chain.from_iterable(map(_parts, batches))
    yield from groupby(parts, lambda part: part.cells["run_id"][0])


def _parts(batch: TrialColumns) -> Iterator[TrialColumns]:
    """Yield the trials of each run in a batch."""
    begin = 0
    for _, same in groupby(batch.cells["run_id"]):
        end = begin + sum(1 for _ in same)
        yield batch.part(begin, end)
        begin = end


def is_constant(column: Sequence[Any]) -> bool:
    """Whether all cells are the same, which most columns of one run are. NaN is never the same."""
    first = column[0]
    is_same = column[-1] == first and column.count(first) == len(column)
    return is_same and set(map(type, column)) == {type(first)}


# Cells that every trial has, and those of each measurement, with the words that they may hold.
_ALWAYS = (
    *("number", "reason", "family", "config", "compile_seconds", "measure_seconds"),
    *("pace", "finished_at"),
)
_MEASURED = {"measured_l2": CacheState, "measured_provenance": Provenance}


def _require_sound(cells: Mapping[str, Sequence[Any]]) -> None:
    """Raise ValueError for a cell that is missing, or a word that is none."""
    missing = [name for name in _ALWAYS if None in cells[name]]
    if missing:
        raise ValueError(f"a trial has no {missing[0]}")
    for status in set(cells["status"]):
        Status(status)
    has_none = [samples is None for samples in cells["samples_us"]]
    for name, kind in _MEASURED.items():
        for word in set(cells[name]) - {None}:
            kind(word)
        if [word is None for word in cells[name]] != has_none:
            raise ValueError(f"a measurement has no {name.removeprefix('measured_')} or samples")


@lru_cache(maxsize=4096)
def _config(family: str, text: str) -> Config:
    return Config.of(family, _decoded(text, _FACTS))


def _decoded(text: str, kind: Facts | Numbers) -> Any:
    """The value of a cell. Raises CellError as a column of that kind."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CellError(f"no JSON: {error}") from error
    except RecursionError:
        raise CellError("JSON that is nested too deep") from None
    if not kind.holds(value):
        raise CellError(f"{str(value)[:60]!r} is not {kind.kind}")
    return value


def _moments(cells: Sequence[Any]) -> list[datetime]:
    """UTC without a zone, as SQLite's texts or PostgreSQL's values, to aware."""
    if set(map(type, cells)) == {str}:
        return [datetime.fromisoformat(f"{one}+00:00") for one in cells]
    return [one.replace(tzinfo=UTC) for one in cells]


def _are_sound(texts: Sequence[str | None]) -> bool:
    """Whether each is a list of samples for certain; False is no verdict."""
    known = [text for text in texts if text is not None]
    if not set(map(type, known)) <= {str} or max(map(len, known), default=0) >= _MAX_LIST_CHARS:
        return False
    lines = "".join(f"{text}\n" for text in known)
    return lines.count("\n") == len(known) and _LISTS.fullmatch(lines) is not None


def _samples(texts: Sequence[str | None]) -> list[list[float] | None]:
    """Decode all at once, which takes a fifth of the time, or where that fails one by one."""
    known = [text for text in texts if text is not None]
    try:
        lists: list[Any] = from_json(f"[{','.join(known)}]")
        kinds = set(map(type, chain.from_iterable(lists)))
        is_sound = len(lists) == len(known) and set(map(type, lists)) <= {list}
        is_sound = is_sound and kinds <= {float, int}
    except (ValueError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        lists = [_decoded(text, _NUMBERS) for text in known]
    rest = iter(lists)
    return [None if text is None else next(rest) for text in texts]


def _among(column: ColumnElement[int], ids: Collection[int]) -> ColumnElement[bool]:
    """The condition that a number is one of these, or lies between them if they lie close."""
    least, most = min(ids), max(ids)
    # A list of a thousand numbers takes longer to say than the rows to read.
    is_dense = most - least < 2 * len(ids)
    return column.between(least, most) if is_dense else column.in_(ids)


def _resources(session: Session, trial_ids: Sequence[int]) -> list[tuple[Used, ...]]:
    statement = (
        select(_PARTS.trial_id, *(_PARTS[name] for name in _USED))
        .where(_among(_PARTS.trial_id, trial_ids))
        .order_by(_PARTS.trial_id, _PARTS.position)
    )
    rows = session.connection().execute(statement).all()
    if not rows:
        return [()] * len(trial_ids)
    ids, *columns = zip(*rows, strict=True)
    found: dict[int, tuple[Used, ...]]
    if all(map(is_constant, columns)):
        # One object for all: what follows sees at once that they are the same.
        found = dict.fromkeys(ids, (tuple(column[0] for column in columns),))
    else:
        found = dict(zip(ids, zip(zip(*columns, strict=True), strict=True), strict=True))
    if len(found) < len(ids):
        # Several kernels of one source.
        found = {}
        for trial_id, used in zip(ids, zip(*columns, strict=True), strict=True):
            found[trial_id] = (*found.get(trial_id, ()), used)
    return [found.get(trial_id, ()) for trial_id in trial_ids]
