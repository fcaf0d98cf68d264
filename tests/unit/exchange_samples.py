"""Databases to write out and take back, and what can be seen of them."""

import hashlib
import json
import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from bench_samples import fill_bench
from store_samples import fill, new_store

from autogemm.exchange import Format, write_results
from autogemm.store import BestQuery, Store, open_store

# Numbers that a database gives itself, and who wrote a run there.
OWN = ("id", "owner")
TABLES = ("runs", "run_trials", "measurements", "resources", "kernels", "finals")
TABLES += ("finals_entries", "certificates", "devices", "environments", "problems")
TABLES += ("benches", "bench_entries", "profiles", "ceilings")


@cache
def _filled_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with new_store(Path(folder)) as store:
            fill(store)
            fill_bench(store)
        return (Path(folder) / "a.db").read_bytes()


def filled_store(folder: Path) -> Store:
    """A database in the folder with what `fill` and `fill_bench` put into it, always the same."""
    path = folder / "a.db"
    path.write_bytes(_filled_database())
    return open_store(str(path))


def rows_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All tables, with ids as they are."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]
            for table in TABLES
        }


def content_of(path: Path) -> dict[str, list[str]]:
    """The content of the tables, whatever numbers the rows have: references are replaced by the
    rows that they refer to.
    """
    tables = rows_of(path)
    texts: dict[tuple[str, Any], str] = {}

    def text_of(table: str, row: dict[str, Any]) -> str:
        said = {}
        for name, value in row.items():
            if name in OWN:
                continue
            target = REFERENCES.get(name)
            said[name] = texts[target, value] if target and value is not None else value
        return json.dumps(said, sort_keys=True, default=str)

    content = {}
    for table in ORDER:
        said = [text_of(table, row) for row in tables[table]]
        for row, text in zip(tables[table], said, strict=True):
            texts[table, row.get("id")] = hashlib.sha256(text.encode()).hexdigest()
        content[table] = sorted(said)
    return content


REFERENCES = {
    "problem_id": "problems",
    "device_id": "devices",
    "environment_id": "environments",
    "kernel_id": "kernels",
    "run_id": "runs",
    "trial_id": "run_trials",
    "finals_id": "finals",
    "bench_id": "benches",
}
ORDER = ("problems", "devices", "environments", "kernels", "runs", "run_trials", "measurements")
ORDER += ("resources", "finals", "finals_entries", "certificates")
ORDER += ("benches", "bench_entries", "profiles", "ceilings")


def written(store: Store, wanted: Format, path: Path, **query: Any) -> Path:
    """The store in a file of that format."""
    pieces = write_results(store, BestQuery(**query), None, wanted).pieces
    path.write_text("".join(pieces))
    return path
