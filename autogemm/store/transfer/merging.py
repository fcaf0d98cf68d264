"""Rows of another database, or of a file, into a database; merging them again adds nothing.

Every table is copied by what the models say of it. A row with a key of its own (``id``) is the same
as one that is there if the columns of its `identity` agree; rows that belong to another one (times
to a trial, contestants to finals) come with it.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Table, select, update

from autogemm.model.problem import Layout
from autogemm.model.results.outcome import CacheState, Fill, Objective, Provenance, Status
from autogemm.store.tables.bench_models import BenchRecord
from autogemm.store.tables.convert import SPEC_COLUMNS
from autogemm.store.tables.records import RunState
from autogemm.support.errors import StoreError, UsageError

Row = dict[str, Any]
Key = tuple[Any, ...]

# All of them, each behind those that it refers to.
TABLES = BenchRecord.metadata.sorted_tables

# Rows that are read, compared and written at a time.
_CHUNK = 500

# Beside the tables with a unique key, which is their identity. Dates have microseconds.
IDENTITY: Mapping[str, tuple[str, ...]] = {
    "runs": ("problem_id", "device_id", "environment_id", *SPEC_COLUMNS, "started_at"),
    # Without the number, see `identity`.
    "run_trials": ("run_id", "family", "config", "finished_at"),
    "finals": ("run_id", "measured_at"),
    "certificates": ("run_id", "kernel_id", "made_at"),
    "benches": ("device_id", "environment_id", "preset", "started_at"),
    "profiles": ("kernel_id", "device_id", "problem_id", "made_at"),
    "ceilings": ("device_id", "environment_id", "measured_at"),
}

# Columns that may have changed in the other database, for tables whose rows can end.
_GOING_ON: Mapping[str, tuple[str, ...]] = {
    "runs": ("state", "stopped_by", "finished_at", "owner"),
    "benches": ("finished_at",),
}
# Columns of an existing row that are read besides its identity, because they may have to be
# changed.
_LOOKED_AT = ("finished_at", "status", "kernel_id", "number")

# Columns whose text is one of a few words, in whatever table they are.
_WORDS: Mapping[str, type[StrEnum]] = {
    "status": Status,
    "provenance": Provenance,
    "l2": CacheState,
    "fill": Fill,
    "objective": Objective,
    "state": RunState,
    "layout": Layout,
}


@dataclass(slots=True)
class Merged:
    """The numbers of rows of each table that were added and that existed already."""

    added: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    grown: set[int] = field(default_factory=set)
    """Benchmarks that were there and got more entries."""


def merge_tables(
    source: Connection, target: Connection, is_written: Callable[[int], bool]
) -> Merged:
    """Copy every row that ``target`` lacks. The caller's transaction makes it all or nothing.

    Raises ValueError, TypeError or KeyError for a row that no version of autogemm wrote.
    """
    merging = Merging(target, is_written)
    for table in TABLES:
        for rows in _chunks(source, table):
            for row in rows:
                _check(table, row)
            merging.copy(table, rows)
    return merging.merged


@dataclass(slots=True)
class Merging:
    """Copies rows into ``target``, table after table, in pieces of any size.

    ``is_written`` says of the id of a run in the target whether a process is writing it: that run
    goes on undisturbed. With ``by_number`` a trial is known by its number, and another config under
    that number is an error; without, both are kept.

    ``ids[table]`` are the ids that rows of the source have in the target, ``new[table]`` those
    (of the source) that it lacked.

    ``there[table]`` are rows of the target, by the first column of their identity and then by all
    of it: those that the last rows asked for. A run's trials come one after the other, a million of
    them maybe, and are looked up once.
    """

    target: Connection
    is_written: Callable[[int], bool]
    by_number: bool = False
    merged: Merged = field(default_factory=Merged)
    ids: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    new: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    there: dict[str, dict[Any, dict[Key, Row]]] = field(default_factory=lambda: defaultdict(dict))
    numbers: dict[int, set[int]] = field(default_factory=dict)
    """The trials that runs of the target have, as far as they were looked up."""

    def copy(self, table: Table, rows: list[Row]) -> None:
        """Copy rows of a table. Tables that they refer to came before (`TABLES`).

        Raises StoreError for a trial whose number another config has, if trials go by number, and
        for a config with values that its family cannot have had.
        """
        if "config" in table.columns:
            _check_configs(rows)
        if "id" in table.columns:
            self._copy_rows(table, rows)
        else:
            self._copy_parts(table, rows)

    def _copy_rows(self, table: Table, rows: list[Row]) -> None:
        """Rows with an id of their own."""
        old_ids = [row.pop("id") for row in rows]
        moved = [self._moved(table, row) for row in rows]
        columns = identity(table, by_number=self.by_number)
        self._look_up(table, columns, rows, moved)
        added: list[tuple[int, Row]] = []
        for old_id, row in zip(old_ids, moved, strict=True):
            found = self.there[table.name].get(row[columns[0]], {}).get(key_of(row, columns))
            if found is None:
                added.append((old_id, row))
                continue
            self.ids[table.name][old_id] = found["id"]
            self._bring_up_to_date(table, found, row)
        self.merged.known[table.name] += len(rows) - len(added)
        if table.name == "run_trials":
            self._renumber([row for _, row in added])
        self._insert(table, added)

    def _copy_parts(self, table: Table, rows: list[Row]) -> None:
        """Rows that belong to another one: with it or not at all, but for a benchmark's, which may
        have gone on.
        """
        (owner,) = [
            (key.column.table.name, key.parent.name)
            for key in table.foreign_keys
            if key.parent.primary_key
        ]
        owners, column = owner
        added = [self._moved(table, row) for row in rows if row[column] in self.new[owners]]
        if table.name == "bench_entries":
            added += self._more_entries(
                table, [r for r in rows if r[column] not in self.new[owners]]
            )
        self.merged.known[table.name] += len(rows) - len(added)
        self.merged.added[table.name] += len(added)
        if added:
            self.target.execute(table.insert(), added)

    def _more_entries(self, table: Table, rows: list[Row]) -> list[Row]:
        """The entries at positions that the target's benchmarks do not have."""
        place = (table.c.bench_id, table.c.position)
        moved = [self._moved(table, row) for row in rows]
        asked = table.c.bench_id.in_({row["bench_id"] for row in moved})
        known = {tuple(found) for found in self.target.execute(select(*place).where(asked))}
        more = [row for row in moved if (row["bench_id"], row["position"]) not in known]
        self.merged.grown.update(row["bench_id"] for row in more)
        return more

    def _moved(self, table: Table, row: Row) -> Row:
        """With the target's ids for those of the source. KeyError for a row that is not there."""
        moved = dict(row)
        for key in table.foreign_keys:
            name = key.parent.name
            if row[name] is not None:
                moved[name] = self.ids[key.column.table.name][row[name]]
        return moved

    def _look_up(
        self, table: Table, columns: Sequence[str], rows: list[Row], moved: list[Row]
    ) -> None:
        """Puts into ``there`` what these rows may be, and drops what they are not."""
        first, there = columns[0], self.there[table.name]
        owners = [key.column.table.name for key in table.c[first].foreign_keys]
        # Rows that belong to a new row are new, too.
        is_new = self.new[owners[0]] if owners else set()
        wanted = {
            now[first] for row, now in zip(rows, moved, strict=True) if row[first] not in is_new
        }
        for value in there.keys() - wanted:
            del there[value]
        missing = wanted - there.keys()
        there.update({value: {} for value in missing})
        names = (*columns, *_LOOKED_AT, *identity(table))
        needed = [table.c[name] for name in names if name in table.c]
        statement = select(table.c.id, *dict.fromkeys(needed)).where(table.c[first].in_(missing))
        for found in self.target.execute(statement).mappings() if missing else ():
            row = dict(found)
            there[row[first]][key_of(row, columns)] = row
            if table.name == "run_trials":
                self.numbers.setdefault(row["run_id"], set()).add(row["number"])

    def _insert(self, table: Table, added: list[tuple[int, Row]]) -> None:
        self.merged.added[table.name] += len(added)
        if not added:
            return
        statement = table.insert().returning(table.c.id, sort_by_parameter_order=True)
        new_ids = self.target.scalars(statement, [row for _, row in added])
        for (old_id, _), new_id in zip(added, new_ids, strict=True):
            self.ids[table.name][old_id] = new_id
            self.new[table.name].add(old_id)

    def _bring_up_to_date(self, table: Table, found: Row, row: Row) -> None:
        """Take over what went on, or a trial that was found wrong there or has its kernel there."""
        changed: tuple[str, ...] = ()
        if table.name in _GOING_ON and _later(row["finished_at"], found["finished_at"]):
            is_ours = table.name == "runs" and self.is_written(found["id"])
            changed = () if is_ours else _GOING_ON[table.name]
        if table.name == "run_trials":
            if self.by_number and found["config"] != row["config"]:
                raise StoreError(
                    f"trial {row['number']} of run {found['run_id']} is in the database with "
                    "another config: the two are not the same run"
                )
            if found["status"] == Status.OK != row["status"]:
                changed = ("status", "reason", "time_us")
            if found["kernel_id"] is None is not row["kernel_id"]:
                changed += ("kernel_id",)
        if changed:
            values = {name: row[name] for name in changed}
            self.target.execute(update(table).where(table.c.id == found["id"]).values(values))

    def _renumber(self, added: list[Row]) -> None:
        """Numbers that the run has already given to other trials go on after its largest."""
        for row in added:
            numbers = self.numbers.get(row["run_id"])
            if numbers is None:
                continue  # the run is new here
            if row["number"] in numbers:
                row["number"] = max(numbers) + 1
            numbers.add(row["number"])


def _chunks(source: Connection, table: Table) -> Iterator[list[Row]]:
    """In the order of the primary key, a chunk at a time."""
    ordered = select(table).order_by(*table.primary_key.columns)
    found = source.execution_options(yield_per=_CHUNK).execute(ordered)
    for rows in found.mappings().partitions():
        yield [dict(row) for row in rows]


def _check(table: Table, row: Row) -> None:
    for name, words in _WORDS.items():
        if name in row:
            words(row[name])
    if table.name == "kernels":
        sha256 = hashlib.sha256(row["source"].encode()).hexdigest()
        if sha256 != row["kernel_sha256"]:
            raise ValueError(f"the source of kernel {row['id']} is not the one that was stored")


def _check_configs(rows: Sequence[Row]) -> None:
    """However they arrive, they may be rendered later."""
    # A space imports NumPy, which most questions to a database do without.
    from autogemm.space import check_outside

    for row in rows:
        if row["config"] is not None:
            try:
                check_outside(row["family"] or "", row["config"])
            except UsageError as error:
                raise StoreError(f"nothing was taken: {error}") from error


def identity(table: Table, *, by_number: bool = False) -> tuple[str, ...]:
    """The columns that make two rows of a table with an ``id`` the same row.

    Two copies of a database may both have gone on with a run, and merging keeps what either did.
    ``by_number`` is for a file, which is one run's record: its trials go by their number.
    """
    if by_number and table.name == "run_trials":
        return ("run_id", "number")
    if table.name in IDENTITY:
        return IDENTITY[table.name]
    unique = [index for index in table.constraints if hasattr(index, "columns")]
    named = [c for c in unique if str(c.name).startswith("uq_")]
    return tuple(column.name for column in named[0].columns)


def key_of(row: Row, columns: Sequence[str]) -> Key:
    """The cells of these columns, as something that can be looked up."""
    return tuple(
        json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
        for value in (row[name] for name in columns)
    )


def _later(one: Any, other: Any) -> bool:
    return one is not None and (other is None or one > other)
