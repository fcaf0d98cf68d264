"""A search continued from its database goes on where it stopped, and repeats nothing."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from fake_search_space import GridSpace, failed, ok, tiles, tiles_time_us

from autogemm.errors import StoreError
from autogemm.outcome import Outcome
from autogemm.search import Search


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


def test_trials_left_running_are_closed_and_may_be_proposed_again(tmp_path: Path) -> None:
    space = GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)})
    url = url_of(tmp_path)
    killed = Search(space, "surrogate", 0, url, "run-1")
    left = [killed.ask() for _ in range(3)]
    assert all(left)
    resumed = Search(space, "surrogate", 0, url, "run-1")
    assert resumed.num_told == 0
    indices = []
    while (proposal := resumed.ask()) is not None:
        indices.append(proposal.index)
        resumed.tell(proposal, ok(proposal.config, 1.0))
    assert sorted(indices) == list(range(8))
    study = optuna.load_study(study_name="run-1", storage=url)
    assert [t.state.name for t in study.get_trials(deepcopy=False)[:3]] == ["FAIL"] * 3


def test_tell_after_another_process_took_over_is_one_line(tmp_path: Path) -> None:
    space = tiles()
    first = Search(space, "random", 0, url_of(tmp_path), "run-1")
    proposal = first.ask()
    assert proposal is not None
    Search(space, "random", 0, url_of(tmp_path), "run-1")
    with pytest.raises(StoreError, match="another process"):
        first.tell(proposal, ok(proposal.config, 1.0))


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
