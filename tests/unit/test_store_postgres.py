"""The store on a PostgreSQL server: the same tables, the same answers, the same errors."""

import json
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from click.testing import CliRunner, Result
from postgres_server import PostgresServer
from sqlalchemy import create_engine, inspect
from store_samples import SPEC, fill, new_store, ok, source

import autogemm.store.tables.writing
from autogemm.cli import main
from autogemm.store import Store, open_store
from autogemm.store.connection.schema import SCHEMA_REVISION, VERSION_TABLE
from autogemm.store.tables.models import Base
from autogemm.support.errors import NotFoundError, StoreError, StoreLockedError
from autogemm.support.resources import data_folder

# How long to wait for another process's lock.
IMPATIENT_S = 0.1


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result


def test_models_and_migrations_agree(postgres_url: str) -> None:
    """A new database is made from the models: one that was migrated from nothing is the same."""
    config = Config()
    config.set_main_option("script_location", str(data_folder("db/migrations")))
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, Base.metadata) == []
        assert context.get_current_revision() == SCHEMA_REVISION
    engine.dispose()
    open_store(postgres_url, create=False).close()


def test_an_older_schema_is_brought_up_to_date(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        fill(store)
        expected = store.trials(1)
    config = Config()
    config.set_main_option("script_location", str(data_folder("db/migrations")))
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        assert "certificates" not in inspect(connection).get_table_names()
    engine.dispose()
    with open_store(postgres_url, create=False) as store:
        assert [one.time_us for one in store.trials(1)] == [one.time_us for one in expected]
        assert len(store.best()) == 3


def test_it_answers_as_sqlite_does(postgres_url: str, tmp_path: Path) -> None:
    with open_store(postgres_url) as there, new_store(tmp_path) as here:
        for store in (there, here):
            fill(store)

        def told(store: Store, *arguments: str) -> list[dict[str, object]]:
            output = run("db", *arguments, "--db", store.url, "--json").stdout

            def without_dates(row: dict[str, object]) -> dict[str, object]:
                return {name: value for name, value in row.items() if not name.endswith("_at")}

            rows: list[dict[str, object]] = json.loads(output, object_hook=without_dates)
            return rows

        for question in (
            ("best", "--gpu", "h100"),
            ("list",),
            ("list", "--trials", "--status", "crashed"),
            ("show", "2"),
            ("export",),
        ):
            assert told(there, *question) == told(here, *question) != []
        assert there.trials(1) == here.trials(1)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql", "postgres"])
def test_a_run_of_the_tuner_by_url(postgres_url: str, scheme: str) -> None:
    url = postgres_url.replace("postgresql+psycopg", scheme)
    tune = ("tune", "--gpu", "recorded", "--size", "1024", "--db", url, "-q", "--json")
    first = json.loads(run(*tune, "--trials", "3").stdout)
    assert first["database"].startswith("postgresql+psycopg://autogemm@/")
    rows = json.loads(run("db", "list", "--trials", "--db", url, "--json").stdout)
    assert [row["number"] for row in rows] == [2, 1, 0]


def test_what_another_machine_writes_is_not_resumed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = open_store(postgres_url)
    run_id = there.begin_run(SPEC)
    monkeypatch.setattr(autogemm.store.tables.writing, "this_process", lambda: "elsewhere:1")
    monkeypatch.setattr(autogemm.store.tables.writing.socket, "gethostname", lambda: "elsewhere")
    with open_store(postgres_url) as here:
        assert here.find_unfinished_run(SPEC) is None
        with pytest.raises(StoreError, match="another process has just resumed run 1"):
            here.resume_run(run_id)
        # The other machine's process ends, however it does.
        there.close()
        assert here.find_unfinished_run(SPEC) == run_id
        here.resume_run(run_id)
        with open_store(postgres_url) as third:
            assert third.find_unfinished_run(SPEC) is None
        here.finish_run(run_id, autogemm.store.RunState.INTERRUPTED)
        with open_store(postgres_url) as third:
            assert third.find_unfinished_run(SPEC) == run_id


def test_a_lock_of_another_is_waited_for_but_not_for_ever(
    postgres_url: str, postgres: PostgresServer
) -> None:
    with open_store(postgres_url, timeout_s=IMPATIENT_S) as store:
        run_id = store.begin_run(SPEC)
        name = postgres_url.rpartition("/")[0].rpartition("@/")[2].partition("?")[0]
        with closing(
            psycopg.connect(host=str(postgres.folder), user="autogemm", dbname=name)
        ) as other:
            other.execute("LOCK TABLE run_trials")
            with pytest.raises(StoreLockedError, match="is locked by another process"):
                store.record_trial(run_id, 0, ok(64, 1.0), source(64))
        store.record_trial(run_id, 0, ok(64, 1.0), source(64))
        assert len(store.trials(run_id)) == 1


def test_errors_are_one_line_without_the_password(
    postgres_url: str, postgres: PostgresServer
) -> None:
    with pytest.raises(NotFoundError, match=r"no database at .*: run autogemm tune or"):
        open_store(postgres_url, create=False)
    wrong = postgres.url("not_there").replace("autogemm@", "autogemm:secret@")
    nobody = wrong.replace(str(postgres.folder), "/not/there")
    for url, said in ((wrong, 'database "not_there" does not exist'), (nobody, "/not/there")):
        with pytest.raises(StoreError) as caught:
            open_store(url)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "secret" not in str(caught.value)
