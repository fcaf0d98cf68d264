"""A run that is killed or interrupted goes on where it was: no trial lost, none repeated."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from fake_target import NUM_LEGAL, PROBLEM, FakeCompiler, FakeTarget, Fault, tiny_family

from autogemm.config import Config
from autogemm.errors import DeviceError
from autogemm.outcome import Outcome
from autogemm.store import RunState, Store, open_store
from autogemm.tuning import TuneRequest, TuneResult, tune

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARGUMENTS = ("--sampler", "exhaustive", "--budget", "none", "--rounds", "2")
# Long enough for a slow machine to import everything.
PATIENCE_S = 60.0


def start(folder: Path, delay_s: float, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(HERE / "fake_tune.py"), str(folder), str(delay_s), *arguments],
        cwd=ROOT,
        env=os.environ | {"AUTOGEMM_DB": str(folder / "tune.db"), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_trials(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(measured(folder)) < count:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.01)


def measured(folder: Path) -> list[str]:
    log = folder / "measured.log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder: Path) -> list[Outcome]:
    with open_store(str(folder / "tune.db"), create=False) as store:
        (row,) = store.runs()
        return store.trials(row.run_id)


def test_kill_9_loses_only_what_was_on_the_card(tmp_path: Path) -> None:
    process = start(tmp_path, 0.02, *ARGUMENTS)
    wait_for_trials(tmp_path, 10, process)
    process.kill()
    process.communicate()
    before = stored(tmp_path)
    at_kill = measured(tmp_path)
    # One may have been measured and not yet stored, and one was begun.
    assert len(before) >= len(at_kill) - 2
    assert len(before) >= 8

    process = start(tmp_path, 0.0, *ARGUMENTS)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert f"resumed with {len(before)} trials" in err
    after = stored(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == NUM_LEGAL
    assert max(Counter(outcome.config for outcome in after).values()) == 1
    kept = {str(outcome.config) for outcome in before}
    again = measured(tmp_path)[len(at_kill) :]
    assert not kept & set(again), "a stored trial was measured again"
    assert f"{len(before)} resumed" in out
    # optuna-dashboard sees the same: what the killed process had not copied was copied later.
    (study,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'tune.db'}")
    trials = optuna.load_study(study_name=study, storage=f"sqlite:///{tmp_path / 'tune.db'}").trials
    values = sorted(trial.value for trial in trials if trial.value is not None)
    assert values == sorted(outcome.time_us or 0.0 for outcome in after)


def test_ctrl_c_prints_the_best_and_the_same_command_resumes(tmp_path: Path) -> None:
    process = start(tmp_path, 0.02, *ARGUMENTS)
    wait_for_trials(tmp_path, 10, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "best so far" in out
    assert "TFLOP/s" in out
    assert "the same command resumes" in err
    assert "Traceback" not in err
    before = stored(tmp_path)
    # What was on the card was awaited and kept; other trials are of the same kernels.
    assert set(measured(tmp_path)) <= {str(outcome.config) for outcome in before}
    with open_store(str(tmp_path / "tune.db"), create=False) as store:
        assert store.runs()[0].state is RunState.INTERRUPTED
        assert store.runs()[0].finals is None

    process = start(tmp_path, 0.0, *ARGUMENTS)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "winner:" in out
    assert len(stored(tmp_path)) == NUM_LEGAL


def test_a_second_ctrl_c_does_not_wait_for_the_card(tmp_path: Path) -> None:
    process = start(tmp_path, 20.0, *ARGUMENTS)
    wait_for_trials(tmp_path, 1, process)
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    began = time.monotonic()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    # The card would take 20 s.
    assert time.monotonic() - began < 10.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def request_all(tmp_path: Path) -> TuneRequest:
    """Every config of the tiny family, in random order."""
    return TuneRequest(PROBLEM, (tiny_family(tmp_path / "tiny"),), sampler="random", rounds=3)


def run(
    request: TuneRequest, store: Store, fault: Fault = lambda config: None
) -> tuple[TuneResult, FakeTarget]:
    target = FakeTarget(fault)
    return tune(request, target, FakeCompiler(), store), target


@pytest.mark.parametrize("error", [DeviceError("the card is gone"), RuntimeError("a bug")])
def test_a_lost_card_ends_the_run_and_loses_nothing(
    request_all: TuneRequest, store: Store, error: Exception
) -> None:
    seen: list[Config] = []

    def fault(config: Config) -> Exception | None:
        seen.append(config)
        return error if len(seen) == 10 else None

    with pytest.raises(type(error), match=str(error)):
        run(request_all, store, fault)
    (row,) = store.runs()
    assert row.state is RunState.INTERRUPTED
    kept = row.num_trials
    assert kept >= 9
    result, target = run(request_all, store)
    assert (result.run_id, result.num_resumed) == (row.run_id, kept)
    assert result.num_trials == NUM_LEGAL
    assert len({outcome.config for outcome in result.outcomes}) == NUM_LEGAL
    assert not set(seen[:9]) & set(target.measured), "a stored trial was measured again"


def test_a_study_that_was_not_copied_is_made_again_from_the_trials(
    request_all: TuneRequest, store: Store, tmp_path: Path
) -> None:
    seen: list[Config] = []

    def fault(config: Config) -> Exception | None:
        seen.append(config)
        return DeviceError("gone") if len(seen) == 10 else None

    with pytest.raises(DeviceError):
        run(request_all, store, fault)
    kept = store.runs()[0].num_trials
    with closing(sqlite3.connect(tmp_path / "tune.db")) as connection:
        connection.execute("DELETE FROM trials WHERE number > 1")
        for table in ("trial_params", "trial_values", "trial_user_attributes"):
            kept_ids = "SELECT trial_id FROM trials"
            connection.execute(f"DELETE FROM {table} WHERE trial_id NOT IN ({kept_ids})")
        connection.commit()
    result, target = run(request_all, store)
    assert result.num_resumed == kept
    assert len({outcome.config for outcome in result.outcomes}) == result.num_trials == NUM_LEGAL
    assert not set(seen[:9]) & set(target.measured)
    url = f"sqlite:///{tmp_path / 'tune.db'}"
    (name,) = optuna.get_all_study_names(url)
    study = optuna.load_study(study_name=name, storage=url)
    assert len([trial for trial in study.trials if trial.value is not None]) == NUM_LEGAL


def test_trials_count_those_that_were_resumed(request_all: TuneRequest, store: Store) -> None:
    seen: list[Config] = []

    def fault(config: Config) -> Exception | None:
        seen.append(config)
        return DeviceError("gone") if len(seen) == 10 else None

    with pytest.raises(DeviceError):
        run(replace(request_all, trials=20), store, fault)
    result, _ = run(replace(request_all, trials=20), store)
    assert result.num_trials == 20


def test_fresh_begins_anew(request_all: TuneRequest, store: Store) -> None:
    with pytest.raises(DeviceError):
        run(request_all, store, lambda config: DeviceError("gone"))
    (interrupted,) = store.runs()
    result, _ = run(replace(request_all, fresh=True, trials=3), store)
    assert result.run_id != interrupted.run_id
    assert result.num_resumed == 0
