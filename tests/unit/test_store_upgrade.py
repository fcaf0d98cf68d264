"""A database of the first version is brought up to date with nothing lost."""

from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from store_samples import SPEC, config, entry, finals, new_store, ok, source

from autogemm.model.results.outcome import Disqualified, Objective, Status
from autogemm.store import BestQuery, Store, open_store
from autogemm.support.resources import data_folder


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A run with a trial and finals, as the first version wrote it."""
    with new_store(tmp_path) as store:
        run = store.begin_run(SPEC)
        store.record_trial(run, 0, ok(128, 2700.0), source(128))
        store.record_finals(run, finals(entry(128, 2650.0, 2660.0, 2655.0, ratio=1.01)), {})
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    config = Config()
    config.set_main_option("script_location", str(data_folder("db/migrations")))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
    engine.dispose()
    return str(tmp_path / "a.db")


def test_a_database_of_the_first_version_is_read_as_it_was_meant(old: str) -> None:
    with open_store(old) as store:
        (line,) = store.runs()
        run = store.run(line.run_id)
        assert run.spec.families == ("sgemm_simt",)
        assert run.spec.objective is Objective.TIME
        assert run.stopped_by is None
        assert run.finals is not None
        assert run.finals.baseline.config is None
        assert run.finals.winner.config == config(128)
        (trial,), written = store.trials(1), ok(128, 2700.0)
        assert (trial.config, trial.status) == (written.config, written.status)
        assert (trial.time_us, trial.resources) == (written.time_us, written.resources)
        (best,) = store.best(BestQuery(family="sgemm_simt"))
        assert best.config == config(128)
        # The same request goes on with it.
        assert store.find_unfinished_run(SPEC) == 1


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path)


def test_a_kernel_that_was_wrong_in_the_finals_is_no_known_time(store: Store) -> None:
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, ok(64, 2600.0), source(64))
    store.record_trial(run, 1, ok(128, 2700.0), source(128))
    lost = Disqualified(config(64), source(64).sha256, "wrong in the finals: 3 of 9 elements")
    decided = finals(entry(128, 2650.0, 2660.0, 2655.0, ratio=1.01))
    store.record_finals(run, replace(decided, disqualified=(lost,)), {})
    wrong, right = store.trials(run)
    assert (wrong.status, wrong.reason) == (Status.WRONG_RESULT, lost.reason)
    assert wrong.time_us is None
    assert store.run(run).num_ok == 1
    assert [
        times.time_us for times in store.run_times(SPEC.problem, SPEC.device, "sgemm_simt")
    ] == [{config(128).sha256: 2700.0}]
    assert right == ok(128, 2700.0)
    known = store.known_outcome(source(64).sha256, SPEC)
    assert known is not None
    assert known.status is Status.WRONG_RESULT
    store.close()


def test_trial_numbers_go_on_after_the_largest(store: Store) -> None:
    run = store.begin_run(SPEC)
    assert store.next_trial_number(run) == 0
    store.record_trial(run, 7, ok(64, 2600.0), source(64))
    store.record_trial(run, 3, ok(128, 2600.0), source(128))
    assert store.next_trial_number(run) == 8
    store.close()
