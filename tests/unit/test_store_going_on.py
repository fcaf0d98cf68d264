"""A run that went on after its first merge: the rest comes with the next merge."""

import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import SPEC as BENCH_SPEC
from bench_samples import entries
from exchange_samples import written
from sqlalchemy import Engine, event
from store_samples import SPEC, config, entry, finals, new_store, ok, source

from autogemm.exchange import Format, import_results
from autogemm.model.results.outcome import Disqualified
from autogemm.store import RunState, Store
from autogemm.store.transfer import merging

Bring = Callable[[Store, Store], None]


def by_merging(there: Store, here: Store) -> None:
    here.merge(there)


def by_a_file(there: Store, here: Store) -> None:
    folder = Path(str(there.url).removeprefix("sqlite:///")).parent
    import_results(here, written(there, Format.JSONL, folder / "all.jsonl"))


@pytest.fixture(params=[by_merging, by_a_file])
def bring(request: pytest.FixtureRequest) -> Bring:
    found: Bring = request.param
    return found


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store]:
    """Where something goes on, and where it is brought."""
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    return new_store(tmp_path / "there"), new_store(tmp_path / "here")


def test_a_benchmark(stores: tuple[Store, Store], bring: Bring) -> None:
    there, here = stores
    bench = there.begin_bench(BENCH_SPEC)
    sources = {source(64).sha256: source(64)}
    there.record_entries(bench, entries("1024"), sources)
    bring(there, here)
    assert (len(here.bench().entries), here.bench().finished_at) == (5, None)
    there.record_entries(bench, entries("2048"), {})
    bring(there, here)
    assert here.bench().entries == there.bench().entries
    assert here.bench().finished_at is None
    there.finish_bench(bench)
    for _ in range(2):
        bring(there, here)
        assert replace(here.bench(), bench_id=bench) == there.bench()
    assert len(here.benches()) == 1


def test_a_trial_that_was_found_wrong(stores: tuple[Store, Store], bring: Bring) -> None:
    there, here = stores
    run = there.begin_run(SPEC)
    there.record_trial(run, 0, ok(64, 2500.0), source(64))
    there.record_trial(run, 1, ok(128, 2600.0), source(128))
    bring(there, here)
    wrong = Disqualified(config(64), source(64).sha256, "wrong in the finals")
    decided = replace(finals(entry(128, 2600.0, ratio=1.1)), disqualified=(wrong,))
    there.record_finals(run, decided, {})
    bring(there, here)
    assert [one.status for one in here.trials(1)] == ["wrong_result", "ok"]
    assert here.runs()[0].num_ok == 1


def test_a_run_that_another_process_writes_is_left_alone(
    stores: tuple[Store, Store], bring: Bring
) -> None:
    there, here = stores
    run = there.begin_run(SPEC)
    there.record_trial(run, 0, ok(64, 2500.0), source(64))
    bring(there, here)
    there.record_trial(run, 1, ok(128, 2600.0), source(128))
    there.finish_run(run, RunState.FINISHED)
    for owner, state in ((os.getppid(), RunState.RUNNING), (2**22 + 1, RunState.FINISHED)):
        with (
            closing(sqlite3.connect(here.url.removeprefix("sqlite:///"))) as connection,
            connection,
        ):
            owned = ("running", f"{socket.gethostname()}:{owner}")
            connection.execute("UPDATE runs SET state = ?, owner = ?", owned)
        bring(there, here)
        assert [(row.state, row.num_trials) for row in here.runs()] == [(state, 2)]


def test_a_source_that_a_file_left_out(stores: tuple[Store, Store], tmp_path: Path) -> None:
    there, here = stores
    there.record_trial(there.begin_run(SPEC), 0, ok(64, 2500.0), source(64))
    import_results(here, written(there, Format.CSV, tmp_path / "all.csv"))
    assert here.trial_rows()[0].kernel_id is None
    here.merge(there)
    (row,) = here.trial_rows()
    assert row.outcome.kernel_sha256 == source(64).sha256


def test_a_long_run_is_looked_up_once(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not with every few of its trials: a million would take days."""
    there, here = stores
    run = there.begin_run(SPEC)
    for number in range(20):
        there.record_trial(run, number, ok(16 + number, 100.0), source(16 + number))
    asked: list[str] = []
    monkeypatch.setattr(merging, "_CHUNK", 4)
    for num_lookups in (0, 1):
        asked.clear()
        with watched(asked):
            here.merge(there)
        # One more reads what is to be merged.
        assert len(asked) == 1 + num_lookups
    assert len(here.trials(1)) == 20


@contextmanager
def watched(asked: list[str]) -> Iterator[None]:
    """Takes down what is read of trials in any database."""

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("SELECT") and "FROM run_trials" in statement:
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note)
