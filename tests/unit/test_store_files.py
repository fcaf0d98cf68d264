"""The database as a file: made, migrated, shared, killed, and what is not a database."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, MetaData, String, Table, create_engine
from store_samples import SPEC, fill, new_store, ok, source

import autogemm.store.connection.schema
from autogemm.model.results.outcome import Fill
from autogemm.store import BestQuery, Store, database_place, open_store
from autogemm.store.connection.schema import SCHEMA_REVISION, VERSION_TABLE
from autogemm.store.tables.models import Base
from autogemm.support.errors import NotFoundError, StoreError
from autogemm.support.resources import data_folder

# How long to wait for another process's lock.
IMPATIENT_S = 0.1


def error_of(url: str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(url, create=create, timeout_s=IMPATIENT_S)
    message = str(caught.value)
    assert "\n" not in message
    return message


def subprocess_running(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def older(path: Path, revision: str) -> None:
    """Make a database, or take one, and bring it back to an earlier schema."""
    open_store(str(path)).close()
    config = Config()
    config.set_main_option("script_location", str(data_folder("db/migrations")))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()


def is_whole(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


def test_default_place_is_made_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "folder" / "a.db"
    for url in (str(path), f"sqlite:///{path}"):
        monkeypatch.setenv("AUTOGEMM_DB", url)
        with open_store() as store:
            assert store.url == f"sqlite:///{path}"
        assert path.is_file()
        assert database_place() == str(path)


def test_a_bare_path_may_be_relative_and_hold_odd_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b.db", "100%.db", "what?x=1#y.db", "ü[red].db"):
        open_store(name).close()
        assert (tmp_path / name).is_file()
        # The URL is what other programs are given.
        open_store(name, create=False).close()
        with open_store(open_store(name).url, create=False) as store:
            assert store.runs() == []


def test_a_query_makes_no_database(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.db"
    with pytest.raises(NotFoundError, match=r"no database at .*a\.db: run autogemm tune or"):
        open_store(str(path), create=False)
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    with pytest.raises(NotFoundError, match="no database at"):
        open_store(str(path), create=False)
    assert path.stat().st_size == 0


def test_models_and_migrations_agree(tmp_path: Path) -> None:
    """A new database is made from the models: one that was migrated from nothing is the same."""
    config = Config()
    config.set_main_option("script_location", str(data_folder("db/migrations")))
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == SCHEMA_REVISION
    engine.dispose()
    open_store(str(tmp_path / "a.db"), create=False).close()


def test_the_revision_in_the_code_is_the_newest_migration() -> None:
    scripts = ScriptDirectory(str(data_folder("db/migrations")))
    assert scripts.get_heads() == [SCHEMA_REVISION]


def test_rows_of_the_first_schema_get_what_was_meant(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        expected = store.trials(1)
        best = store.best()
        finals = store.run(1).finals
    older(tmp_path / "a.db", "0001")
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(runs)")}
    assert "objective" not in columns and "fill" not in columns
    with open_store(str(tmp_path / "a.db")) as store:
        again = store.trials(1)
        assert {run.spec.fill for run in store.runs()} == {Fill.UNIFORM}
        assert [row.config for row in store.best()] == [row.config for row in best]
        assert finals is not None
        assert store.run(1).finals == replace(finals, throttled_rounds=0, calls=(), sustained=None)
    assert [outcome.time_us for outcome in again] == [outcome.time_us for outcome in expected]
    assert {one.measurement.throttled_samples for one in again if one.measurement} == {0}


def test_migrations_are_found_wherever_the_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "100% site-packages" / "migrations"
    shutil.copytree(data_folder("db/migrations"), installed)
    older(tmp_path / "a.db", "0013")
    monkeypatch.setattr(autogemm.store.connection.schema, "data_folder", lambda name: installed)
    with open_store(str(tmp_path / "a.db")) as store:
        assert store.runs() == []


def test_a_failed_beginning_leaves_an_empty_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        # SQLite keeps such names for itself, so the last table cannot be made.
        version = Table("sqlite_mine", MetaData(), Column("version_num", String))
        patched.setattr(autogemm.store.connection.schema, "_VERSION", version)
        with pytest.raises(StoreError):
            open_store(str(tmp_path / "a.db"))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    with open_store(str(tmp_path / "a.db")) as store:
        assert store.runs() == []


def test_a_failed_migration_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older(tmp_path / "a.db", "0012")
    broken = tmp_path / "migrations"
    shutil.copytree(data_folder("db/migrations"), broken)
    (last,) = (broken / "versions").glob(f"{SCHEMA_REVISION}*.py")
    last.write_text(last.read_text().replace("def downgrade", "    raise OSError\n\n\ndef x"))
    with monkeypatch.context() as patched:
        patched.setattr(autogemm.store.connection.schema, "data_folder", lambda name: broken)
        with pytest.raises(OSError):
            open_store(str(tmp_path / "a.db"))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute(f"SELECT * FROM {VERSION_TABLE}").fetchall() == [("0012",)]
    with open_store(str(tmp_path / "a.db")) as store:
        assert store.runs() == []


def test_tables_of_optuna_do_not_get_in_the_way(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    with new_store(tmp_path) as store:
        study = optuna.create_study(storage=store.url, study_name="s")
        study.tell(study.ask(), 1.0)
        fill(store)
        again = optuna.load_study(storage=store.url, study_name="s")
        assert len(again.trials) == 1
    with open_store(store.url, create=False) as store:
        assert len(store.runs()) == 3


def test_not_a_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 100)
    for create in (True, False):
        assert "notes.txt is not a database" in error_of(str(path), create)
    assert path.read_text() == "dear diary " * 100


def test_the_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE recipes (id)")
    before = path.read_bytes()
    for create in (True, False):
        assert "belongs to another program (its tables: recipes" in error_of(str(path), create)
    assert path.read_bytes() == before


def test_a_newer_version(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        fill(store)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        connection.commit()
    for create in (True, False):
        message = error_of(str(tmp_path / "a.db"), create)
        assert "newer version of autogemm (schema 9999" in message
        assert "update autogemm" in message


def test_a_damaged_row(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("UPDATE run_trials SET status = 'splendid' WHERE id = 1")
            connection.execute("UPDATE kernels SET source = 'int x;'")
            connection.execute("UPDATE devices SET facts = '[1' WHERE name = 'Tesla T4'")
            connection.commit()
        for ask in (
            lambda: store.trials(1),
            lambda: store.stored_kernel(1),
            lambda: store.best(BestQuery(gpu="t4")),
        ):
            with pytest.raises(StoreError, match="damaged or was edited by hand"):
                ask()


def test_a_missing_table(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("DROP TABLE finals_entries")
        with pytest.raises(StoreError, match="no such table: finals_entries"):
            store.best()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mongodb://me:secret@host/name", "no database of the kind 'mongodb'"),
        ("http://example.org/a.db", "no database of the kind 'http'"),
        ("://", "no database of the kind ''"),
        ("postgresql://me:secret@host:port/name", "no database of the kind 'postgresql'"),
        ("postgresql+nodriver://me:secret@host/name", "no database of the kind"),
        ("sqlite://", "not the path of a file"),
        ("sqlite:///:memory:", "not the path of a file"),
        (":memory:", "not the path of a file"),
        ("", "not the path of a file"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, said: str) -> None:
    message = error_of(url)
    assert said in message
    assert "secret" not in message


def test_a_server_without_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    message = error_of("postgresql+psycopg2://me:secret@host/name")
    assert "pip install psycopg2" in message
    assert "secret" not in message


def test_a_folder(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder" in error_of(str(tmp_path))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be made" in error_of(str(tmp_path / "file" / "a.db"))


def test_locked_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    new_store(tmp_path).close()
    with open_store(str(path), timeout_s=IMPATIENT_S) as store:
        run = store.begin_run(SPEC)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert "is locked by another process" in error_of(str(path))
            with pytest.raises(StoreError, match="is locked by another process"):
                store.record_trial(run, 0, ok(64, 1.0), source(64))
            # Readers are not held up.
            assert store.trials(run) == []
        store.record_trial(run, 0, ok(64, 1.0), source(64))
        assert len(store.trials(run)) == 1


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A folder with a filled database; root, who may write anything, becomes someone else."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with new_store(folder) as store:
            fill(store)
        is_root = os.geteuid() == 0
        if is_root:
            for path in (folder, folder / "a.db"):
                os.chown(path, 65534, 65534)
            os.seteuid(65534)
        try:
            yield folder
        finally:
            folder.chmod(0o755)
            if is_root:
                os.seteuid(0)


def test_a_read_only_file_and_folder(plain_user: Path) -> None:
    path = plain_user / "a.db"
    path.chmod(0o444)
    assert "is read-only" in error_of(str(path))
    plain_user.chmod(0o555)
    assert "is read-only" in error_of(str(path))
    path.chmod(0o644)
    assert "is read-only" in error_of(str(path))
    assert "cannot be opened" in error_of(str(plain_user / "new.db"))
    assert "cannot be made" in error_of(str(plain_user / "folder" / "new.db"))


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o555), (0o444, 0o755)])
def test_queries_of_a_read_only_database(
    plain_user: Path, file_mode: int, folder_mode: int
) -> None:
    (plain_user / "a.db").chmod(file_mode)
    plain_user.chmod(folder_mode)
    with open_store(str(plain_user / "a.db"), create=False) as store:
        assert len(store.runs()) == 3


def test_a_path_that_is_no_utf8(tmp_path: Path) -> None:
    assert r"caf\udce9.db" in error_of(str(tmp_path / "caf\udce9.db"))
    assert list(tmp_path.iterdir()) == []


def test_queries_where_no_lock_file_can_be(tmp_path: Path) -> None:
    """As on a file system mounted for reading only: SQLite cannot open its shared memory."""
    with new_store(tmp_path) as store:
        fill(store)
    (tmp_path / "a.db-shm").mkdir()
    with open_store(str(tmp_path / "a.db"), create=False) as store:
        assert len(store.runs()) == 3
    # The log that others wrote beside the file must not be left out.
    (tmp_path / "a.db-wal").write_bytes(b"x" * 100)
    assert "a.db: " in error_of(str(tmp_path / "a.db"), create=False)


def test_an_unreadable_file(plain_user: Path) -> None:
    (plain_user / "a.db").chmod(0)
    assert "cannot be opened" in error_of(str(plain_user / "a.db"), create=False)


WRITE = """
import sys
from itertools import count
from store_samples import SPEC, ok, source
from dataclasses import replace
from autogemm.store import open_store
store = open_store(sys.argv[1])
run = store.begin_run(replace(SPEC, seed=int(sys.argv[2])))
for number in range(int(sys.argv[3])) if len(sys.argv) > 3 else count():
    bm = 16 * number + int(sys.argv[2]) * (number % 2)
    store.record_trial(run, number, ok(bm, 1.0 + number), source(bm))
    print(number, flush=True)
"""


def test_two_processes_write_to_one_new_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    writers = [subprocess_running(WRITE, str(path), seed, "50") for seed in "12"]
    for writer in writers:
        output, _ = writer.communicate(timeout=120)
        assert (writer.returncode, len(output.split())) == (0, 50)
    with open_store(str(path), create=False) as store:
        assert sorted(run.num_trials for run in store.runs()) == [50, 50]
        for run in store.runs():
            assert [outcome.time_us for outcome in store.trials(run.run_id)] == [
                1.0 + number for number in range(50)
            ]
    with closing(sqlite3.connect(path)) as connection:
        kept = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("devices", "kernels", "run_trials", "measurements")
        ]
    # Every second kernel is common to both.
    assert kept == [1, 75, 100, 100]
    assert is_whole(path)


def test_what_was_recorded_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    new_store(tmp_path).close()
    writer = subprocess_running(WRITE, str(path), "1")
    assert writer.stdout is not None
    recorded = [int(next(writer.stdout)) for _ in range(20)]
    writer.send_signal(signal.SIGKILL)
    recorded += [int(line) for line in writer.stdout]
    writer.wait()
    writer.stdout.close()
    with open_store(str(path)) as store:
        run = store.runs()[0]
        assert store.find_unfinished_run(run.spec) == run.run_id
        stored = store.trials(run.run_id)
        # The one in flight may have been committed and not yet reported.
        assert len(stored) in (len(recorded), len(recorded) + 1)
        assert [outcome.time_us for outcome in stored] == [1.0 + i for i in range(len(stored))]
        store.record_trial(run.run_id, len(stored), ok(8, 1.0), source(8))
    assert is_whole(path)


def test_threads_share_a_store(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def record(store: Store, run: int, number: int) -> int:
        return store.record_trial(run, number, ok(number, 1.0), source(number))

    with new_store(tmp_path) as store, ThreadPoolExecutor(4) as pool:
        run = store.begin_run(SPEC)
        ids = list(pool.map(lambda number: record(store, run, number), range(40)))
        assert len(set(ids)) == 40
        assert len(store.trials(run)) == 40
