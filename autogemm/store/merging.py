"""The rows of one database into another: what both have stays once, and merging again adds nothing.

Every table is copied by what the models say of it. A row with a key of its own (``id``) is the same
as one that is there if the columns of its `identity` agree; rows that belong to another one (times
to a trial, contestants to finals) come with it.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Table, select, update

from autogemm.outcome import CacheState, Fill, Objective, Provenance, Status
from autogemm.problem import Layout
from autogemm.store.bench_models import BenchRecord
from autogemm.store.identity import identity
from autogemm.store.records import RunState

Row = dict[str, Any]

# Rows that are read, compared and written at a time.
_CHUNK = 500

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
    """How many rows of each table were added and how many were there already."""

    added: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)


def merge_tables(source: Connection, target: Connection) -> Merged:
    """Copy every row that ``target`` lacks. The caller's transaction makes it all or nothing.

    Raises ValueError, TypeError or KeyError for a row that no version of autogemm wrote.
    """
    merging = _Merging(source, target)
    for table in BenchRecord.metadata.sorted_tables:
        merging.copy(table)
    return merging.merged


@dataclass(slots=True)
class _Merging:
    """``ids[table]`` are the ids that rows of the source have in the target."""

    source: Connection
    target: Connection
    merged: Merged = field(default_factory=Merged)
    ids: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    new: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def copy(self, table: Table) -> None:
        self.merged.added[table.name] = self.merged.known[table.name] = 0
        copy = self._copy_rows if "id" in table.columns else self._copy_parts
        for rows in _chunks(self.source, table):
            for row in rows:
                _check(table, row)
            copy(table, rows)

    def _copy_rows(self, table: Table, rows: list[Row]) -> None:
        """Rows with an id of their own."""
        old_ids = [row.pop("id") for row in rows]
        moved = [self._moved(table, row) for row in rows]
        columns = identity(table)
        there = self._there(table, columns[0], moved)
        known = {_key(row, columns): row for row in there}
        added: list[tuple[int, Row]] = []
        for old_id, row in zip(old_ids, moved, strict=True):
            found = known.get(_key(row, columns))
            if found is None:
                added.append((old_id, row))
                continue
            self.ids[table.name][old_id] = found["id"]
            self._bring_up_to_date(table, found, row)
        self.merged.known[table.name] += len(rows) - len(added)
        if table.name == "run_trials":
            _renumber([row for _, row in added], there)
        self._insert(table, added)

    def _copy_parts(self, table: Table, rows: list[Row]) -> None:
        """Rows that belong to another one: with it or not at all."""
        (owner,) = [
            (key.column.table.name, key.parent.name)
            for key in table.foreign_keys
            if key.parent.primary_key
        ]
        owners, column = owner
        added = [self._moved(table, row) for row in rows if row[column] in self.new[owners]]
        self.merged.known[table.name] += len(rows) - len(added)
        self.merged.added[table.name] += len(added)
        if added:
            self.target.execute(table.insert(), added)

    def _moved(self, table: Table, row: Row) -> Row:
        """With the target's ids for those of the source. KeyError for a row that is not there."""
        moved = dict(row)
        for key in table.foreign_keys:
            name = key.parent.name
            if row[name] is not None:
                moved[name] = self.ids[key.column.table.name][row[name]]
        return moved

    def _there(self, table: Table, first: str, rows: list[Row]) -> list[Row]:
        values = {row[first] for row in rows}
        found = self.target.execute(select(table).where(table.c[first].in_(values)))
        return [dict(row) for row in found.mappings()]

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
        """A run that went on over there, and a trial that was found wrong there."""
        changed: tuple[str, ...] = ()
        if table.name == "runs" and _later(row["finished_at"], found["finished_at"]):
            changed = ("state", "stopped_by", "finished_at", "owner")
        if table.name == "run_trials" and found["status"] == Status.OK != row["status"]:
            changed = ("status", "reason", "time_us")
        if changed:
            values = {name: row[name] for name in changed}
            self.target.execute(update(table).where(table.c.id == found["id"]).values(values))


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
        if sha256 != row["source_sha256"]:
            raise ValueError(f"the source of kernel {row['id']} is not the one that was stored")


def _key(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(
        json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
        for value in (row[name] for name in columns)
    )


def _renumber(added: list[Row], there: list[Row]) -> None:
    """Numbers that the run has already given to other trials go on after its largest."""
    taken: dict[int, set[int]] = defaultdict(set)
    for row in there:
        taken[row["run_id"]].add(row["number"])
    for row in added:
        numbers = taken[row["run_id"]]
        if row["number"] in numbers:
            row["number"] = max(numbers) + 1
        numbers.add(row["number"])


def _later(one: Any, other: Any) -> bool:
    return one is not None and (other is None or one > other)
