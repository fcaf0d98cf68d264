"""db sql: reads whatever is asked, changes nothing, ends in time; in both databases."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from postgres_server import PostgresServer
from store_samples import fill, new_store

from autogemm.cli import main
from autogemm.store import open_store


def sql(db: str, query: str, *options: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["db", "sql", query, "--db", db, *options], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database of three runs, of either kind. Nothing here changes it."""
    if request.param == "sqlite":
        with new_store(tmp_path_factory.mktemp("filled")) as store:
            fill(store)
            return store.url
    server: PostgresServer = request.getfixturevalue("postgres")
    with open_store(server.new_database()) as store:
        fill(store)
        return store.url


def test_rows_as_json_csv_and_table(filled: str) -> None:
    query = "SELECT id, status AS s, status AS s FROM run_trials WHERE reason LIKE '%address' "
    (row,) = json.loads(sql(filled, query, "--json").stdout)
    assert row == {"id": 3, "s": "crashed", "s_2": "crashed"}
    assert sql(filled, query, "--csv").stdout.splitlines() == ["id,s,s_2", "3,crashed,crashed"]
    assert sql(filled, query).stdout.split() == ["id", "s", "s_2", "3", "crashed", "crashed"]
    averages = sql(filled, "SELECT avg(id) AS a, max(started_at) AS b FROM runs", "--json").stdout
    assert json.loads(averages)[0]["a"] == 2.0


def test_a_query_from_standard_input(filled: str) -> None:
    assert json.loads(sql(filled, "-", "--json", stdin="SELECT 1 AS a").stdout) == [{"a": 1}]


def test_only_so_many_rows(filled: str) -> None:
    cut = sql(filled, "SELECT id FROM run_trials ORDER BY id", "--limit", "2", "--csv")
    assert cut.stdout.split() == ["id", "1", "2"]
    assert "only the first 2 rows" in cut.stderr
    assert "only" not in sql(filled, "SELECT id FROM runs", "--limit", "3").stderr
    assert "no rows" in sql(filled, "SELECT id FROM runs WHERE id > 9").stderr


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM finals_entries",
        "UPDATE runs SET seed = 1",
        "INSERT INTO environments SELECT * FROM environments",
        "WITH gone AS (SELECT 1) DELETE FROM finals_entries",
        "WITH gone AS (DELETE FROM finals_entries RETURNING *) SELECT * FROM gone",
        "DROP TABLE finals_entries",
        "CREATE TABLE mine (id INTEGER)",
        "SELECT 1; DELETE FROM finals_entries",
        "SELECT 1; COMMIT; DELETE FROM finals_entries",
        "COMMIT",
        "VACUUM",
        "SET TRANSACTION READ WRITE",
        "ATTACH DATABASE 'other.db' AS other",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA query_only = OFF",
        "SELECT load_extension('mine')",
        "SELECT nextval('runs_id_seq')",
        "SELEC 1",
        " ",
        "",
        "/* nothing */",
    ],
)
def test_everything_else_is_refused_in_one_line(
    filled: str, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = sql(filled, statement)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.splitlines()) == 1
    assert not Path("other.db").exists()
    with open_store(filled, create=False) as store:
        assert (store.run(1).finals is not None, store.run(1).spec.seed) == (True, 2**40)
        assert len(store.runs()) == 3


def test_a_query_that_does_not_end_is_ended(filled: str) -> None:
    endless = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    )
    result = sql(filled, endless, "--timeout", "0.2s")
    assert result.exit_code == 1
    assert "took longer than 0.2 s" in result.stderr


def test_one_value_cannot_take_all_memory(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        result = sql(store.url, "SELECT zeroblob(1000000000)")
    assert (result.exit_code, "too big" in result.stderr) == (2, True)


def test_another_process_may_write_meanwhile(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        with closing(sqlite3.connect(tmp_path / "a.db")) as other:
            other.execute("BEGIN IMMEDIATE")
            assert sql(store.url, "SELECT count(*) AS n FROM runs", "--csv").stdout == "n\n3\n"
