"""`db export --format optuna`: runs as studies that Optuna loads."""

from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from store_samples import SPEC, failed, new_store, ok, source

from autogemm.exchange import Format, write_results
from autogemm.model.outcome import Objective, Status
from autogemm.store import BestQuery, RunState, Store


def studies_of(store: Store, folder: Path, **query: int) -> dict[str, list[FrozenTrial]]:
    written = write_results(store, BestQuery(**query), None, Format.OPTUNA)
    path = folder / "studies.log"
    path.write_text("".join(written.pieces))
    assert not path.stat().st_size or path.read_bytes().startswith(written.mark)
    storage = JournalStorage(JournalFileBackend(str(path)))
    return {
        name: optuna.load_study(study_name=name, storage=storage).trials
        for name in optuna.get_all_study_names(storage)
    }


def filled(folder: Path) -> Store:
    store = new_store(folder)
    energy = replace(ok(256, 80.0), measurement=replace(ok(256, 80.0).measurement, energy_mj=7.5))
    for seed, objective, outcomes in (
        (1, Objective.TIME, (ok(128, 90.0), failed(64, Status.CRASHED, "illegal address"))),
        (2, Objective.ENERGY, (energy,)),
        (3, Objective.TIME, ()),
    ):
        run_id = store.begin_run(replace(SPEC, seed=seed, objective=objective))
        for number, outcome in enumerate(outcomes):
            store.record_trial(run_id, number, outcome, source(int(outcome.config["BM"])))
        store.finish_run(run_id, RunState.FINISHED)
    return store


def test_a_study_has_the_trials_of_a_run_and_a_family(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        studies = studies_of(store, tmp_path)
    assert list(studies) == [f"run {run}: sgemm_simt 4096 nn f32" for run in (1, 2)]
    worked, broken = studies["run 1: sgemm_simt 4096 nn f32"]
    assert (worked.state, worked.value) == (TrialState.COMPLETE, 90.0)
    assert worked.params["BM"] == 128
    assert worked.distributions["BM"].to_internal_repr(64) == 0
    assert worked.user_attrs == {}
    assert broken.state is TrialState.FAIL
    assert broken.user_attrs == {"status": "crashed", "reason": "illegal address"}
    assert worked.datetime_start and worked.datetime_complete
    spent = ok(128, 90.0).compile_seconds + ok(128, 90.0).measure_seconds
    assert (worked.datetime_complete - worked.datetime_start).total_seconds() == pytest.approx(
        spent, abs=2e-6
    )


def test_the_value_is_the_figure_of_the_objective(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        (trials,) = studies_of(store, tmp_path, run_id=2).values()
    assert [trial.value for trial in trials] == [7.5]


def test_nothing_is_an_empty_file(tmp_path: Path) -> None:
    with filled(tmp_path) as store:
        assert studies_of(store, tmp_path, run_id=3) == {}
