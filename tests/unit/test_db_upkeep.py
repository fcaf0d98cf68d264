"""db prune and vacuum: what may go goes with all that is its own, and nothing else."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import optuna
import pytest
from click.testing import CliRunner, Result
from postgres_server import PostgresServer
from store_samples import SPEC, T4, entry, fill, finals, new_store, ok, source

from autogemm.cli import main
from autogemm.model.certificate import Certificate, Check, Verdict
from autogemm.store import BestQuery, RunState, Store, open_store

STUDIES = "SELECT study_name FROM studies"
OF_RUNS = ("run_trials", "measurements", "resources", "finals", "finals_entries", "certificates")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """Filled; run 4 is on the T4 as run 3 is, and slower."""
    if request.param == "sqlite":
        opened = new_store(tmp_path)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        opened = open_store(server.new_database())
    monkeypatch.setenv("AUTOGEMM_DB", opened.url)
    with opened:
        fill(opened)
        spec = replace(opened.run(3).spec, seed=5)
        run = opened.begin_run(spec)
        opened.record_trial(run, 0, ok(16, 60.0), source(16))
        opened.record_trial(run, 1, ok(32, 61.0), source(32))
        opened.finish_run(run, RunState.FINISHED)
        yield opened


def db(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["db", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def states(*arguments: str) -> dict[int, str]:
    result = db("prune", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["run_id"]: row["state"] for row in json.loads(result.stdout)}


def count(store: Store, table: str) -> int:
    (row,) = store.sql(f"SELECT count(*) FROM {table}", timeout_s=10).rows
    return int(row[0])


def test_a_run_goes_with_what_only_it_has(store: Store) -> None:
    assert states("--gpu", "t4", "--dry-run") == {3: "kept", 4: "would delete"}
    assert len(store.runs()) == 4
    best = store.best()
    assert states("--gpu", "t4", "--yes") == {3: "kept", 4: "deleted"}
    assert [run.run_id for run in store.runs()] == [3, 2, 1]
    assert store.best() == best
    # Kernel 16 was tried there alone, kernel 32 in run 3 too.
    with pytest.raises(Exception, match="no kernel"):
        store.stored_kernel(source(16).sha256)
    assert store.stored_kernel(source(32).sha256).time_us == 55.0


def test_everything_may_go(store: Store) -> None:
    assert set(states("--older-than", "0d", "--with-best", "-y").values()) == {"deleted"}
    assert {table: count(store, table) for table in OF_RUNS} == dict.fromkeys(OF_RUNS, 0)
    for table in ("kernels", "problems", "devices", "environments"):
        assert count(store, table) == 0


def test_it_asks_first(store: Store) -> None:
    refused = db("prune", "--run", "4", stdin="n\n")
    assert refused.exit_code == 1
    assert "delete 1 run with 2 trials?" in refused.stderr
    assert len(store.runs()) == 4
    assert "deleted 1 run with 2 trials" in db("prune", "--run", "4", stdin="y\n").stdout
    assert len(store.runs()) == 3


def test_what_is_being_written_stays(store: Store) -> None:
    run = store.begin_run(replace(SPEC, device=T4, seed=6))
    with open_store(store.url) as other:
        kept = other.prunable(BestQuery(run_id=run), with_best=True).kept
    if store.url.startswith("postgresql"):
        assert kept == ((run, "is being written"),)
    # One that was killed is nobody's.
    store.close()
    with open_store(store.url) as other:
        assert other.prunable(BestQuery(run_id=run), with_best=True).run_ids == (run,)


def test_a_failed_certificate_stays(store: Store) -> None:
    run = store.begin_run(replace(SPEC, seed=8))
    store.record_finals(run, finals(entry(128, 2655.0, ratio=1.5)), {})
    failure = Certificate((Check("gpu", Verdict.FAILED, "1 of 41"),), datetime.now(UTC))
    store.record_certificate(run, source(128).sha256, failure)
    store.finish_run(run, RunState.FINISHED)
    assert states("--run", str(run), "--with-best", "-y") == {run: "kept"}


def test_studies_of_the_runs_go_too(store: Store) -> None:
    # Versions before 0.2 kept Optuna's tables in the same database.
    storage = optuna.storages.RDBStorage(store.url)
    for name in ("run 4: sgemm_simt 512", "run 40: sgemm_simt 512", "mine"):
        study = optuna.create_study(storage=storage, study_name=name)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert states("--run", "4", "-y") == {4: "deleted"}
    left = sorted(row[0] for row in store.sql(STUDIES, timeout_s=10).rows)
    assert left == ["mine", "run 40: sgemm_simt 512"]
    assert len(optuna.load_study(storage=storage, study_name="mine").trials) == 2
    storage.remove_session()
    storage.engine.dispose()
    assert count(store, "trial_params") == 4


def test_no_filter_is_no_request(store: Store) -> None:
    result = db("prune", "--yes")
    assert (result.exit_code, len(store.runs())) == (2, 4)
    assert "say which runs" in result.stderr
    assert db("prune", "--older-than", "soon").exit_code == 2
    assert states("--older-than", "1d", "--yes") == {}


def test_more_runs_than_one_statement_takes(store: Store) -> None:
    store.prune(range(4, 70_000))
    assert sorted(row.run_id for row in store.runs()) == [1, 2, 3]


def test_vacuum_gives_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    with new_store(tmp_path) as store:
        fill(store)
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("UPDATE kernels SET source = zeroblob(1000000)")
            connection.execute("UPDATE kernels SET source = ''")
            connection.commit()
        (row,) = json.loads(db("vacuum", "--json").stdout)
        assert row["bytes_before"] - row["bytes_after"] == row["freed"] > 3_000_000
        assert len(store.trials(1)) == 3


def test_vacuum_of_a_server(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", postgres_url)
    with open_store(postgres_url) as store:
        fill(store)
    assert json.loads(db("vacuum", "--json").stdout)[0]["bytes_after"] > 0
