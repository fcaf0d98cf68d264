"""db/README.md is true: its queries run and return rows, its tables and columns are all."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from bench_samples import fill_bench
from store_samples import fill, new_store

from autogemm.cli import rows as cli_rows
from autogemm.cli.bench import run as bench_run
from autogemm.cli.db.run import pareto
from autogemm.cli.tune import facts, many
from autogemm.exchange import table
from autogemm.model.results.columns import FORMER, NUMBERS
from autogemm.store.tables.models import Base

README = Path(__file__).parents[2] / "db" / "README.md"
QUERIES = re.findall(r"^```sql\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with new_store(tmp_path) as store:
        fill(store)
        fill_bench(store)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        yield connection


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_every_query_finds_something(database: sqlite3.Connection, query: str) -> None:
    assert database.execute(query).fetchall()


def test_there_are_queries() -> None:
    assert len(QUERIES) >= 5


def test_queries_tell_the_truth(database: sqlite3.Connection) -> None:
    fastest = database.execute(QUERIES[0]).fetchall()
    assert [(row[0], row[5], row[6]) for row in fastest] == [
        ("NVIDIA H100 80GB HBM3", 1, 2700.0),
        ("NVIDIA H100 80GB HBM3", 2, 2800.0),
        ("Tesla T4", 1, 50.0),
        ("Tesla T4", 2, 55.0),
    ]
    newest_finals = database.execute(QUERIES[1]).fetchall()
    assert [row[6] for row in newest_finals] == ["cuBLAS", "BM=128", "BM=64"]


def test_every_table_and_column_is_documented() -> None:
    sections = re.split(r"^### ", README.read_text().split("\n## Names")[0], flags=re.M)[1:]
    documented = {section.split()[0]: set(re.findall(r"`(\w+)`", section)) for section in sections}
    tables = {name: set(table.columns.keys()) for name, table in Base.metadata.tables.items()}
    assert set(documented) == set(tables)
    for name, columns in tables.items():
        assert columns <= documented[name], f"db/README.md does not explain a column of {name}"


def test_every_number_is_explained_once() -> None:
    section = README.read_text().split("\n## Names")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*?) \|$", section, flags=re.MULTILINE)
    said = [(name, unit, meaning.replace("&#124;", "|")) for name, unit, meaning in rows]
    assert said == [(one.name, one.unit, one.meaning) for one in NUMBERS]


def test_a_number_has_no_other_name() -> None:
    """No table, row of the command line or file has a former name."""
    shown = {*cli_rows.BEST, *cli_rows.RUN, *cli_rows.TRIAL, *cli_rows.ENTRY, *cli_rows.KERNEL}
    shown |= {*facts.COLUMNS, *many.CSV_COLUMNS, *bench_run.COLUMNS, *pareto.COLUMNS}
    shown |= {*table.COLUMNS}
    shown |= {c.name for one in Base.metadata.tables.values() for c in one.columns}
    assert not shown & {*FORMER, "ratio_to_cublas", "percent_of_cublas", "gflops"}
    assert {one.name for one in NUMBERS} <= shown
