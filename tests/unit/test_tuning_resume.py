"""A run that is killed or interrupted goes on where it was: no trial lost, none repeated."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_target import NUM_LEGAL, PROBLEM, FakeCompiler, FakeTarget, Fault, tiny_family
from waiting import PATIENCE_S, wait_until

from autogemm.model.config import Config
from autogemm.model.results.outcome import Outcome
from autogemm.store import RunState, Store, open_store
from autogemm.support.errors import DeviceError
from autogemm.tuning import TuneRequest, TuneResult, tune

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARGUMENTS = ("--sampler", "exhaustive", "--budget", "none", "--rounds", "2")


def start(folder: Path, hold: int, *arguments: str) -> "subprocess.Popen[str]":
    """The GPU is held at the ``hold``th config, at none if 0."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "fake_tune.py"), str(folder), str(hold), *arguments],
        cwd=ROOT,
        env=os.environ
        | {
            "AUTOGEMM_DB": str(folder / "tune.db"),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at(folder: Path, hold: int, process: "subprocess.Popen[str]") -> list[Outcome]:
    """Kill the run that holds the GPU at its ``hold``th config; what it had stored.

    Before, it is waited for what was measured to be stored, which happens meanwhile.
    """
    try:
        wait_until(lambda: has_ended(process) or len(measured(folder)) == hold, "the GPU is held")
        wait_until(lambda: has_ended(process) or len(stored(folder)) >= hold - 1, "all is stored")
        assert not has_ended(process), process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert len(measured(folder)) == hold
    return stored(folder)


def has_ended(process: "subprocess.Popen[str]") -> bool:
    return process.poll() is not None


def measured(folder: Path) -> list[str]:
    log = folder / "measured.log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder: Path) -> list[Outcome]:
    with open_store(str(folder / "tune.db"), create=False) as store:
        (row,) = store.runs()
        return store.trials(row.run_id)


def test_kill_9_loses_only_what_was_on_the_gpu(tmp_path: Path) -> None:
    before = kill_at(tmp_path, 10, start(tmp_path, 10, *ARGUMENTS))
    at_kill = measured(tmp_path)
    kept = {str(outcome.config) for outcome in before}
    assert kept >= set(at_kill[:-1]), "something else was lost"
    assert at_kill[-1] not in kept

    process = start(tmp_path, 0, *ARGUMENTS)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert f"resumed with {len(before)} trials" in err
    after = stored(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == NUM_LEGAL
    assert max(Counter(outcome.config for outcome in after).values()) == 1
    again = measured(tmp_path)[len(at_kill) :]
    assert not kept & set(again), "a stored trial was measured again"
    assert f"{len(before)} resumed" in out


def test_ctrl_c_prints_the_best_and_the_same_command_resumes(tmp_path: Path) -> None:
    process = start(tmp_path, 10, *ARGUMENTS)
    wait_until(lambda: has_ended(process) or len(measured(tmp_path)) == 10, "the GPU is held")
    process.send_signal(signal.SIGINT)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "best so far" in out
    assert "TFLOP/s" in out
    assert "the same command resumes" in err
    assert "Traceback" not in err
    before = stored(tmp_path)
    # The candidate on the GPU was awaited and kept; other trials are of the same kernels.
    assert set(measured(tmp_path)) <= {str(outcome.config) for outcome in before}
    with open_store(str(tmp_path / "tune.db"), create=False) as store:
        assert store.runs()[0].state is RunState.INTERRUPTED
        assert store.runs()[0].ratio is None

    process = start(tmp_path, 0, *ARGUMENTS)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "winner:" in out
    assert len(stored(tmp_path)) == NUM_LEGAL


def test_a_second_ctrl_c_does_not_wait_for_the_gpu(tmp_path: Path) -> None:
    process = start(tmp_path, 1, *ARGUMENTS)
    wait_until(lambda: has_ended(process) or measured(tmp_path), "the GPU is held")
    # Two that arrive together are one.
    deadline = time.monotonic() + PATIENCE_S / 2
    while not has_ended(process) and time.monotonic() < deadline:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert has_ended(process), "the GPU, which stays held, is waited for"
    process.communicate()
    assert process.returncode != 0


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


@pytest.mark.parametrize("error", [DeviceError("the GPU is gone"), RuntimeError("a bug")])
def test_a_lost_gpu_ends_the_run_and_loses_nothing(
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
