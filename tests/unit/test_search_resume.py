"""A search continued from its database goes on where it stopped, and repeats nothing."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from fake_search_space import TILES, GridSpace, failed, ok, tiles, tiles_time_us

from autogemm.model.outcome import Outcome
from autogemm.search import Search
from autogemm.search.enumerated import fingerprint
from autogemm.search.storage import StudyMirror
from autogemm.support.errors import StoreError


def outcome_of(index: int, space: GridSpace) -> Outcome:
    config = space.config(index)
    return failed(config) if index % 7 == 0 else ok(config, tiles_time_us(config))


def run(search: Search, space: GridSpace, num_trials: int) -> list[int]:
    indices = []
    for _ in range(num_trials):
        proposal = search.ask()
        assert proposal is not None
        indices.append(proposal.index)
        search.tell(proposal, outcome_of(proposal.index, space))
    return indices


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'tuning.db'}"


@pytest.mark.parametrize("sampler", ["surrogate", "random", "exhaustive"])
def test_interrupted_run_proposes_what_an_uninterrupted_one_does(
    tmp_path: Path, sampler: str
) -> None:
    space = tiles()
    whole = run(Search(space, sampler, 5, None, "whole"), space, 24)
    url = url_of(tmp_path)
    before = run(Search(space, sampler, 5, url, "run-1"), space, 13)
    resumed = Search(space, sampler, 5, url, "run-1")
    assert resumed.num_told == 13
    assert before + run(resumed, space, 11) == whole


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_resumed_stock_samplers_repeat_nothing(tmp_path: Path, sampler: str) -> None:
    space = tiles()
    url = url_of(tmp_path)
    before = run(Search(space, sampler, 5, url, "run-1"), space, 8)
    after = run(Search(space, sampler, 5, url, "run-1"), space, 8)
    assert len({*before, *after}) == 16


def test_best_and_failures_survive(tmp_path: Path) -> None:
    space = tiles()
    url = url_of(tmp_path)
    first = Search(space, "random", 0, url, "run-1")
    run(first, space, 12)
    assert Search(space, "random", 0, url, "run-1").best == first.best


def test_trials_that_a_killed_process_had_out_may_be_proposed_again(tmp_path: Path) -> None:
    space = GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)})
    url = url_of(tmp_path)
    killed = Search(space, "surrogate", 0, url, "run-1")
    assert all(killed.ask() for _ in range(3))
    resumed = Search(space, "surrogate", 0, url, "run-1")
    assert resumed.num_told == 0
    indices = []
    while (proposal := resumed.ask()) is not None:
        indices.append(proposal.index)
        resumed.tell(proposal, ok(proposal.config, 1.0))
    assert sorted(indices) == list(range(8))


def test_what_is_out_when_a_search_is_closed_is_marked_as_interrupted(tmp_path: Path) -> None:
    space = tiles()
    search = Search(space, "exhaustive", 0, url_of(tmp_path), "run-1")
    first, second = search.ask(), search.ask()
    assert first is not None
    assert second is not None
    search.tell(second, ok(second.config, 1.0))
    search.close()
    left, told = trials_of(tmp_path)
    assert (left.state.name, left.user_attrs) == ("FAIL", {"status": "interrupted"})
    assert told.value == 1.0
    again = Search(space, "exhaustive", 0, url_of(tmp_path), "run-1")
    assert again.num_told == 1
    assert run(again, space, 3) == [first.index, second.index + 1, second.index + 2]


def test_trials_that_another_version_left_running_are_closed(tmp_path: Path) -> None:
    space = tiles()
    Search(space, "random", 0, url_of(tmp_path), "run-1").close()
    optuna.load_study(study_name="run-1", storage=url_of(tmp_path)).ask()
    resumed = Search(space, "random", 0, url_of(tmp_path), "run-1")
    assert resumed.num_told == 0
    run(resumed, space, 1)
    assert [trial.state.name for trial in trials_of(tmp_path)] == ["FAIL", "COMPLETE"]


def trials_of(folder: Path) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name="run-1", storage=url_of(folder)).get_trials(deepcopy=False)


def test_two_processes_in_one_study_is_one_line(tmp_path: Path) -> None:
    space = tiles()
    first, second = (Search(space, "random", 0, url_of(tmp_path), "run-1") for _ in range(2))
    run(first, space, 2)
    proposal = second.ask()
    assert proposal is not None
    with pytest.raises(StoreError, match="another process"):
        second.tell(proposal, ok(proposal.config, 1.0))
    assert len(trials_of(tmp_path)) == 2


def test_the_database_has_the_trials_that_optuna_would_have_written(tmp_path: Path) -> None:
    space = tiles()
    run(Search(space, "random", 0, url_of(tmp_path), "run-1"), space, 8)
    mirror = StudyMirror(url_of(tmp_path), "run-1", fingerprint(space))
    with_notes = optuna.trial.create_trial(
        value=1.5,
        params={"BM": 64},
        distributions={"BM": optuna.distributions.CategoricalDistribution(TILES["BM"])},
        user_attrs={"by": "a person"},
        # Where samplers keep what they must know again.
        system_attrs={"generation": 3, "parents": [1, 2]},
    )
    with_notes.number = 8
    mirror.add(with_notes)
    mirror.close()
    ours = trials_of(tmp_path)
    other = optuna.create_study(storage=f"sqlite:///{tmp_path / 'other.db'}", study_name="copy")
    other.add_trials(ours)
    theirs = optuna.load_study(study_name="copy", storage=f"sqlite:///{tmp_path / 'other.db'}")

    def facts(trial: optuna.trial.FrozenTrial) -> dict[str, object]:
        return {name: value for name, value in vars(trial).items() if name != "_trial_id"}

    assert [facts(t) for t in ours] == [facts(t) for t in theirs.get_trials(deepcopy=False)]
    assert [trial.number for trial in ours] == list(range(9))
    assert ours[-1].system_attrs == with_notes.system_attrs


def test_a_trial_waits_for_those_before_it(tmp_path: Path) -> None:
    space = tiles()
    search = Search(space, "random", 0, url_of(tmp_path), "run-1")
    first, second, third = (search.ask() for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    search.tell(third, ok(third.config, 3.0))
    search.tell(second, ok(second.config, 2.0))
    assert trials_of(tmp_path) == []
    search.tell(first, ok(first.config, 1.0))
    assert [trial.value for trial in trials_of(tmp_path)] == [1.0, 2.0, 3.0]


def test_a_locked_database_keeps_nobody_waiting_and_loses_nothing(tmp_path: Path) -> None:
    space = tiles()
    search = Search(space, "random", 0, url_of(tmp_path), "run-1")
    run(search, space, 2)
    lock = sqlite3.connect(tmp_path / "tuning.db", isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    run(search, space, 3)
    # SQLite waits for half a minute and more where it is let.
    assert time.monotonic() - began < 25.0
    assert search.num_told == 5
    assert len(trials_of(tmp_path)) == 2
    lock.execute("ROLLBACK")
    lock.close()
    search.close()
    assert len(trials_of(tmp_path)) == 5


def test_a_copy_that_cannot_be_made_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    space = tiles()
    search = Search(space, "random", 0, url_of(tmp_path), "run-1")
    connection = sqlite3.connect(tmp_path / "tuning.db")
    connection.execute("DROP TABLE trial_params")
    connection.close()
    run(search, space, 3)
    assert search.num_told == 3
    search.close()
    search.close()
    (record,) = caplog.records
    assert "lacks 3 trials" in record.getMessage()
    assert "no such table: trial_params" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_what_a_killed_process_had_told_is_remembered_once(tmp_path: Path) -> None:
    space = tiles()
    outcomes = [outcome_of(index, space) for index in range(60, 74)]
    first = Search(space, "surrogate", 0, url_of(tmp_path), "run-1")
    for outcome in outcomes[:9]:
        first.remember(outcome)
    resumed = Search(space, "surrogate", 0, url_of(tmp_path), "run-1")
    for outcome in outcomes:
        resumed.remember(outcome)
    assert resumed.num_told == 14
    assert [trial.state.name for trial in trials_of(tmp_path)] == [
        "FAIL" if index % 7 == 0 else "COMPLETE" for index in range(60, 74)
    ]
    whole = Search(space, "surrogate", 0)
    for outcome in outcomes:
        whole.remember(outcome)
    assert run(resumed, space, 5) == run(whole, space, 5)


def test_trials_are_optuna_trials_with_status_and_reason(tmp_path: Path) -> None:
    space = tiles()
    search = Search(space, "random", 0, url_of(tmp_path), "run-1")
    for make in (lambda c: ok(c, 12.5), lambda c: failed(c, "ptxas: too many registers")):
        proposal = search.ask()
        assert proposal is not None
        search.tell(proposal, make(proposal.config))
    study = optuna.load_study(study_name="run-1", storage=url_of(tmp_path))
    worked, broken = study.get_trials(deepcopy=False)
    assert worked.value == 12.5
    assert "ARCH" not in worked.params
    assert worked.params["BM"] in (16, 32, 64, 128, 256)
    assert broken.state is optuna.trial.TrialState.FAIL
    assert broken.user_attrs["status"] == "compile_failed"
    assert broken.user_attrs["reason"] == "ptxas: too many registers"


def test_two_studies_in_one_database_are_apart(tmp_path: Path) -> None:
    space = tiles()
    run(Search(space, "random", 0, url_of(tmp_path), "run-1"), space, 3)
    assert Search(space, "random", 0, url_of(tmp_path), "run-2").num_told == 0


@pytest.mark.parametrize(
    "changed",
    [
        GridSpace({"A": (1, 2, 4, 16), "B": (1, 2)}),
        GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)}, lambda c: c["A"] != 8),
    ],
    ids=["another value", "another constraint"],
)
def test_a_changed_space_is_refused(tmp_path: Path, changed: GridSpace) -> None:
    space = GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)})
    search = Search(space, "random", 0, url_of(tmp_path), "run-1")
    proposal = search.ask()
    assert proposal is not None
    search.tell(proposal, ok(proposal.config, 1.0))
    with pytest.raises(StoreError, match=r"'run-1'.*start a new run"):
        Search(changed, "random", 0, url_of(tmp_path), "run-1")


def test_closed_search_lets_go_of_the_database(tmp_path: Path) -> None:
    search = Search(tiles(), "random", 0, url_of(tmp_path), "run-1")
    assert (tmp_path / "tuning.db-wal").exists()
    search.close()
    search.close()
    # SQLite removes the write-ahead log with the last connection.
    assert not (tmp_path / "tuning.db-wal").exists()


def test_database_is_in_wal_mode(tmp_path: Path) -> None:
    Search(tiles(), "random", 0, url_of(tmp_path), "run-1")
    connection = sqlite3.connect(tmp_path / "tuning.db")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


@pytest.mark.parametrize("content", [b"this is no database" * 100, None], ids=["text", "folder"])
def test_unusable_database_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tuning.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Search(tiles(), "random", 0, url_of(tmp_path), "run-1")
    assert "\n" not in str(caught.value)
    assert "--db" in str(caught.value)


def test_importing_the_names_does_not_import_optuna() -> None:
    code = "import sys, autogemm.search as s; print(s.SAMPLERS[0], 'optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["surrogate", "False"]
