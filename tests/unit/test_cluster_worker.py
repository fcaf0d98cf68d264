"""The code of a worker process: its turns, what it begins ahead, and its databases."""

import importlib
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_target import FakeCompiler
from sized_target import BusyTarget, NotingCompiler, SizedTarget, interrupted_run, requests_for
from waiting import PATIENCE_S, wait_until

from autogemm.catalogue.gpus import find_device
from autogemm.cluster.files import copy_blank
from autogemm.cluster.history import history_of
from autogemm.cluster.messages import Place, Work
from autogemm.model.results.outcome import Environment, Provenance
from autogemm.store import RunState, open_store
from autogemm.support.interrupt import RemoteCtrlC, stop_on_ctrl_c

worker: Any = importlib.import_module("autogemm.cluster.worker")

PLACE = Place(find_device("h100"), Environment(driver="1"), Provenance.MEASURED)


def attach(monkeypatch: pytest.MonkeyPatch, target: SizedTarget, compiler: FakeCompiler) -> None:
    """Have this process be a worker of Dask with that GPU."""
    monkeypatch.setattr(worker, "_gpu", worker._Gpu(target, compiler, ExitStack(), PLACE))
    dask = SimpleNamespace(name="0", periodic_callbacks={}, log_event=lambda topic, told: None)
    dask.state = SimpleNamespace(tasks={"key": SimpleNamespace(state="executing")})
    dask.get_current_task = lambda: "key"
    monkeypatch.setattr(worker, "get_worker", lambda: dask)


def test_a_worker_begins_with_its_next_problem_while_the_gpu_holds_finals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = NotingCompiler()
    # The finals of the first problem do not end before a kernel of the second is compiled.
    attach(monkeypatch, BusyTarget(compiler, num_followed=1), compiler)
    works = [
        pickle.dumps(Work("session", number, request, None, str(tmp_path / "parts")))
        for number, request in enumerate(requests_for(tmp_path, [64, 500]))
    ]
    with ThreadPoolExecutor(2) as threads:
        with worker._turn(works[0]):
            answers = [threads.submit(worker.tune_one, packed) for packed in works]
            wait_until(lambda: len(worker._line) == 3, "both wait for the GPU")
        done = [one.result(PATIENCE_S) for one in answers]
    assert [one.swept.problem.m for one in done] == [64, 500]
    assert all(one.swept.finals is not None for one in done)
    # Each has one seed, once, and nothing is left.
    assert compiler.num_ahead == 2
    assert not worker._line
    assert worker._begun.take(pickle.loads(works[1]).request) is None


@pytest.mark.parametrize("has_trials", [False, True])
def test_a_problem_goes_on_where_a_worker_died_in_it_and_is_begun_anew_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_trials: bool
) -> None:
    (request,) = requests_for(tmp_path, [512])
    left = tmp_path / "parts" / "0-left.db"
    left.parent.mkdir()
    copy_blank(left)
    # A run that was interrupted is known, with which a fresh search does not go on.
    with open_store(str(left if has_trials else tmp_path / "t.db")) as store:
        interrupted_run(store, request)
        history = history_of(store, request, store.decided_runs(), [PLACE.device])
    attach(monkeypatch, SizedTarget(), FakeCompiler())
    given = () if has_trials else history
    work = Work("session", 0, replace(request, fresh=True), None, str(left.parent), given)
    done = worker.tune_one(pickle.dumps(work))
    with open_store(str(left.parent / done.file)) as store:
        states = {line.run_id: line.state for line in store.runs()}
    assert states.pop(done.swept.run_id) is RunState.FINISHED
    assert list(states.values()) == ([] if has_trials else [RunState.INTERRUPTED])
    assert not left.exists()


def test_ctrl_c_from_elsewhere_stops_searches_now_and_later() -> None:
    # As in a thread that is not the main one.
    from concurrent.futures import ThreadPoolExecutor

    remote = RemoteCtrlC()

    def searches() -> list[bool]:
        found = []
        with remote.heeding():
            for _ in range(2):
                with stop_on_ctrl_c() as stop:
                    found.append(stop.is_set())
                    remote.press()
                    found.append(stop.is_set() and stop.by_user)
        with stop_on_ctrl_c() as other:
            found.append(other.is_set())
        return found

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(searches).result() == [False, True, True, True, False]


def test_a_worker_keeps_the_servers_database_for_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened:
        def __init__(self, url: str) -> None:
            self.url, self.closed = url, False

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(worker, "open_store", Opened)
    monkeypatch.setattr(worker, "_server", None)
    first = worker._store_of("a", "postgresql://x")
    assert worker._store_of("a", "postgresql://x") is first
    other = worker._store_of("b", "postgresql://y")
    assert (first.closed, other.closed, other.url) == (True, False, "postgresql://y")
    worker.forget("a")
    with worker._turn(pickle.dumps("a problem")):
        # A problem is here: its thread leaves the database, and not Dask's.
        worker.forget("b")
    assert not other.closed
    worker.forget("b")
    assert other.closed
    assert worker._store_of("b", "postgresql://y") is not other
