"""A database that is locked or cannot grow: the run waits, or ends with one line and resumes."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_target import PROBLEM, FakeCompiler, FakeTarget, tiny_family
from sqlalchemy import event
from sqlalchemy.engine import Engine

import autogemm.tuning.loop.ledger
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Outcome
from autogemm.store import Store, open_store
from autogemm.support.errors import StoreError
from autogemm.tuning import Event, SearchStarted, TrialDone, TuneRequest, TuneResult, tune

NUM_TRIALS = 12
# Nobody's backup takes longer.
PATIENCE_S = 30
# Longer than SQLite and its drivers wait unless they are told, which is 5 s.
LOCKED_S = 6.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tune.db"


@pytest.fixture
def request_some(tmp_path: Path) -> TuneRequest:
    family = tiny_family(tmp_path / "tiny")
    return TuneRequest(PROBLEM, (family,), fix={"BM": (32,)}, sampler="exhaustive", rounds=2)


class WordyTarget(FakeTarget):
    """So many samples that each trial takes two or three pages of the database."""

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        outcome = super().measure(candidate, best_us)
        assert outcome.measurement is not None
        samples_us = outcome.measurement.samples_us * 1500
        return replace(outcome, measurement=replace(outcome.measurement, samples_us=samples_us))


def run(
    request: TuneRequest, store: Store, on_event: Callable[[Event], None] = lambda event: None
) -> TuneResult:
    return tune(request, WordyTarget(), FakeCompiler(), store, on_event)


def assert_complete(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        configs = connection.execute("SELECT run_id, config FROM run_trials").fetchall()
    assert len(configs) == len(set(configs)) == NUM_TRIALS


def stored(path: Path) -> list[Outcome]:
    with open_store(str(path)) as store:
        return store.trials(1)


def locked(path: Path) -> sqlite3.Connection:
    """It holds the write lock, as another program may, until it is closed."""
    connection = sqlite3.connect(
        path, check_same_thread=False, isolation_level=None, timeout=PATIENCE_S
    )
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_a_locked_database_is_waited_for(path: Path, request_some: TuneRequest) -> None:
    def on_event(event: Event) -> None:
        if isinstance(event, TrialDone) and event.num_trials == 3:
            threading.Timer(LOCKED_S, locked(path).close).start()

    with open_store(str(path)) as store:
        result = run(request_some, store, on_event)
    assert result.num_trials == NUM_TRIALS
    assert_complete(path)


def test_each_connection_waits_longer_than_half_a_minute(path: Path) -> None:
    waits = []

    def note(connection: Any, *_: object) -> None:
        waits.append(connection.execute("PRAGMA busy_timeout").fetchone()[0])

    with listening("connect", note):
        open_store(str(path)).close()
    assert waits
    assert min(waits) > 1000 * PATIENCE_S


def test_a_lock_that_stays_ends_the_run_which_resumes(
    path: Path, request_some: TuneRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autogemm.tuning.loop.ledger, "LOCK_PATIENCE_S", 0.3)

    locks: list[sqlite3.Connection] = []

    class LockingTarget(WordyTarget):
        """Nothing is asked for any more when the last one is measured: trials are written next."""

        def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
            if len(self.measured) == 2:
                locks.append(locked(path))
            return super().measure(candidate, best_us)

    request = replace(request_some, trials=3, fix={"BM": (32,), "ECHO": (0,)})
    with (
        open_store(str(path), timeout_s=0.1) as store,
        pytest.raises(StoreError, match="is locked by another process"),
    ):
        tune(request, LockingTarget(), FakeCompiler(), store)
    (lock,) = locks
    lock.close()
    # Those before the last may be measured and not yet stored.
    num_stored = len(stored(path))
    assert num_stored < 3
    with open_store(str(path)) as store:
        result = run(replace(request, trials=None), store)
    assert (result.num_resumed, result.num_trials) == (num_stored, 6)


@contextmanager
def listening(name: str, listener: Callable[..., None]) -> Iterator[None]:
    """On every engine: the store's and that of the search."""
    event.listen(Engine, name, listener)
    try:
        yield
    finally:
        event.remove(Engine, name, listener)


@contextmanager
def full_disk(path: Path, spare_pages: int) -> Iterator[None]:
    """SQLite may add so many pages to the file; then the disk is full, as it tells the program."""
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()

    def limit(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages + spare_pages}").close()

    with listening("connect", limit):
        yield


@pytest.fixture
def made(path: Path, request_some: TuneRequest) -> None:
    """All tables are there, also those of the search."""

    class EnoughError(Exception):
        pass

    def stop(event: Event) -> None:
        if isinstance(event, TrialDone):
            raise EnoughError

    with open_store(str(path)) as store, pytest.raises(EnoughError):
        run(request_some, store, stop)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("spare_pages", [0, 2, 7, 15])
def test_a_full_disk_ends_the_run_which_resumes(
    path: Path, request_some: TuneRequest, spare_pages: int
) -> None:
    before = stored(path)
    with (
        full_disk(path, spare_pages),
        open_store(str(path)) as store,
        pytest.raises(StoreError, match=r"full") as caught,
    ):
        run(request_some, store)
    assert "\n" not in str(caught.value)
    kept = stored(path)
    assert kept[: len(before)] == before
    assert len(kept) < NUM_TRIALS
    with open_store(str(path)) as store:
        result = run(request_some, store)
    assert result.num_trials == NUM_TRIALS
    assert_complete(path)


def test_a_disk_that_is_full_from_the_start(path: Path, request_some: TuneRequest) -> None:
    path.touch()
    for spare_pages in (1, 4, 40):
        with (
            full_disk(path, spare_pages),
            pytest.raises(StoreError, match="full"),
            open_store(str(path)) as store,
        ):
            run(request_some, store)
    with open_store(str(path)) as store:
        assert run(request_some, store).num_trials == NUM_TRIALS
    assert_complete(path)


def test_events_name_the_run_that_resumes(path: Path, request_some: TuneRequest) -> None:
    """These tests rely on this: an ended run is continued under its number."""
    numbers = []

    def note(event: Event) -> None:
        if isinstance(event, SearchStarted):
            numbers.append(event.run_id)
            raise StoreError("as the test wanted")

    for _ in range(2):
        with open_store(str(path)) as store, pytest.raises(StoreError, match="as the test"):
            run(request_some, store, note)
    assert numbers == [1, 1]
