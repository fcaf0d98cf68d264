"""db merge: everything arrives, nothing twice; a bad file does no harm, nor does repetition."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from click.testing import CliRunner, Result
from postgres_server import PostgresServer
from sqlalchemy import create_engine
from store_samples import SPEC, config, entry, fill, finals, new_store, ok, source

from autogemm.cli import main
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.outcome import Disqualified, Status
from autogemm.store import RunState, Store, open_store
from autogemm.store.tables.bench_models import BenchRecord
from autogemm.store.tables.convert import spec_columns
from autogemm.store.transfer.merging import IDENTITY, identity
from autogemm.support.resources import data_folder


def merge(other: str, db: str) -> Result:
    result = CliRunner().invoke(main, ["db", "merge", other, "--db", db, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def added(other: str, db: str) -> dict[str, int]:
    result = merge(other, db)
    assert result.exit_code == 0, result.output
    return {row["table"]: row["added"] for row in json.loads(result.stdout)}


def filled(folder: Path) -> str:
    folder.mkdir()
    with new_store(folder) as store:
        fill(store)
    return str(folder / "a.db")


def everything(store: Store) -> object:
    """The values that a person can see, without the numbers of rows and the times of storing."""
    return (
        sorted((row.problem.label, row.provenance, row.time_us) for row in store.best()),
        sorted(
            (run.spec.seed, run.started_at, run.num_trials, str(store.run(run.run_id).finals))
            for run in store.runs()
        ),
        sorted((row.number, row.finished_at, str(row.outcome)) for row in store.trial_rows()),
    )


def test_into_an_empty_database_and_again(tmp_path: Path) -> None:
    other, mine = filled(tmp_path / "other"), str(tmp_path / "mine.db")
    before = Path(other).read_bytes()
    first = added(other, mine)
    assert (first["runs"], first["run_trials"], first["kernels"]) == (3, 6, 4)
    with open_store(other) as there, open_store(mine) as here:
        assert everything(here) == everything(there)
        assert here.stored_kernel(source(128).sha256).certificate is not None
    assert sum(added(other, mine).values()) == 0
    assert Path(other).read_bytes() == before


def test_from_and_to_a_server(tmp_path: Path, postgres: PostgresServer) -> None:
    other, server, back = filled(tmp_path / "other"), postgres.new_database(), tmp_path / "back.db"
    assert added(other, server)["run_trials"] == 6
    assert sum(added(other, server).values()) == 0
    # The server gives out its own numbers afterwards.
    with open_store(server) as store:
        assert store.begin_run(replace(SPEC, seed=9)) == 4
    assert added(server, str(back))["runs"] == 4
    with open_store(server) as there, open_store(str(back)) as here:
        assert everything(here) == everything(there)


def test_beside_other_runs_numbers_of_rows_change(tmp_path: Path) -> None:
    other, mine = filled(tmp_path / "other"), str(tmp_path / "mine.db")
    with open_store(mine) as store:
        run = store.begin_run(replace(SPEC, problem=Problem(64, 64, 64), seed=7))
        store.record_trial(run, 0, ok(256, 1.0), source(256))
    added(other, mine)
    with open_store(mine) as store:
        assert len(store.runs()) == 4
        kernel = store.stored_kernel(source(128).sha256)
        assert (kernel.time_us, kernel.ratio) == (2655.0, 1.01)
        failed = [row for row in store.trial_rows() if row.outcome.status is Status.CRASHED]
        assert [row.outcome.kernel_sha256 for row in failed] == [source(256).sha256]


def test_a_run_that_went_on_in_both_copies_keeps_all_trials(tmp_path: Path) -> None:
    mine = tmp_path / "a.db"
    with new_store(tmp_path) as store:
        run = store.begin_run(SPEC)
        store.record_trial(run, 0, ok(64, 2800.0), source(64))
        store.finish_run(run, RunState.INTERRUPTED)
    (tmp_path / "copy").mkdir()
    other = tmp_path / "copy" / "a.db"
    with closing(sqlite3.connect(mine)) as source_db, closing(sqlite3.connect(other)) as copy:
        source_db.backup(copy)
    with open_store(str(mine)) as store:
        store.record_trial(run, 1, ok(128, 2700.0), source(128))
    with open_store(str(other)) as store:
        store.resume_run(run)
        store.record_trial(run, 1, ok(256, 2600.0), source(256))
        store.record_trial(run, 2, ok(32, 2500.0), source(32))
        wrong = Disqualified(config(64), source(64).sha256, "wrong in the finals")
        decided = finals(entry(32, 2500.0, ratio=1.1))
        store.record_finals(run, replace(decided, disqualified=(wrong,)), {})
        store.finish_run(run, RunState.FINISHED)
    assert added(str(other), str(mine))["run_trials"] == 2
    assert sum(added(str(other), str(mine)).values()) == 0
    with open_store(str(mine)) as store:
        (row,) = store.runs()
        assert (row.state, row.num_trials, row.num_ok) == (RunState.FINISHED, 4, 3)
        outcomes = {one.config["BM"]: one.status for one in store.trials(run)}
        # Found wrong over there: no time here either.
        assert outcomes == {64: "wrong_result", 128: "ok", 256: "ok", 32: "ok"}
        assert sorted(t.number for t in store.trial_rows()) == [0, 1, 2, 3]


def test_a_certificate_that_failed_there_counts_here(tmp_path: Path) -> None:
    other, mine = filled(tmp_path / "other"), filled(tmp_path / "mine")
    with open_store(other) as store:
        check = Check("gpu", Verdict.FAILED, "1 of 41 edge cases")
        failure = Certificate((check,), datetime(2026, 11, 21, 9, tzinfo=UTC))
        store.record_certificate(1, source(128).sha256, failure)
    assert added(other, mine)["certificates"] >= 1
    with open_store(mine) as store:
        assert source(128).sha256 not in {
            store.stored_kernel(row.kernel_id).source.sha256
            for row in store.best()
            if row.kernel_id is not None
        }


def test_an_older_database_is_read_and_not_changed(tmp_path: Path) -> None:
    other = filled(tmp_path / "other")
    scripts = Config()
    scripts.set_main_option("script_location", str(data_folder("db/migrations")))
    engine = create_engine(f"sqlite:///{other}")
    with engine.begin() as connection:
        scripts.attributes["connection"] = connection
        command.downgrade(scripts, "0001")
    engine.dispose()
    before = Path(other).read_bytes()
    assert added(other, str(tmp_path / "mine.db"))["run_trials"] == 6
    assert Path(other).read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run_trials SET status = 'splendid' WHERE id = 6",
        "UPDATE runs SET provenance = 'dreamt' WHERE id = 3",
        "UPDATE kernels SET source = 'int x;' WHERE id = 4",
        "UPDATE run_trials SET run_id = 99 WHERE id = 6",
        "UPDATE devices SET facts = '[1' WHERE id = 2",
        "UPDATE measurements SET samples_us = 'x'",
        "UPDATE runs SET started_at = 'yesterday' WHERE id = 3",
    ],
)
def test_of_a_damaged_database_nothing_is_taken(tmp_path: Path, damage: str) -> None:
    other, mine = filled(tmp_path / "other"), str(tmp_path / "mine.db")
    open_store(mine).close()
    with closing(sqlite3.connect(other)) as connection:
        connection.execute(damage)
        connection.commit()
    result = merge(other, mine)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    with open_store(mine) as store:
        assert store.runs() == []
        assert store.stats() == []


def test_what_is_not_there_or_no_database(tmp_path: Path) -> None:
    mine = str(tmp_path / "mine.db")
    (tmp_path / "notes.txt").write_text("dear diary " * 100)
    for other, code in ((tmp_path / "nothing.db", 2), (tmp_path / "notes.txt", 1)):
        result = merge(str(other), mine)
        assert result.exit_code == code
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "mine.db").exists()


def test_every_table_with_numbered_rows_has_an_identity() -> None:
    for table in BenchRecord.metadata.sorted_tables:
        if "id" in table.columns:
            assert set(identity(table)) <= set(table.columns.keys())
            assert identity(table) != ("id",)
    # The run that the same command resumes, and when it began.
    assert set(IDENTITY["runs"]) == {
        *("problem_id", "device_id", "environment_id", "started_at"),
        *spec_columns(SPEC),
    }
    assert set(IDENTITY) <= {table.name for table in BenchRecord.metadata.sorted_tables}
