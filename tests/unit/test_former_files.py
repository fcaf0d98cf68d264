"""Files that version 0.1 wrote are read as they were meant: database, JSON Lines, CSV, T4.

``data/schema_0008`` is what commit b950b1f wrote: a run of `autogemm tune` on a recording, and what
`store_samples.fill` and `bench_samples.fill_bench` put into a database.
"""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from exchange_samples import content_of
from postgres_server import PostgresServer
from store_samples import CERTIFICATE, SPEC, entry, finals, new_store, ok, source

from autogemm.exchange import import_results
from autogemm.model.results.outcome import Provenance, Status
from autogemm.store import BestQuery, Store, open_store

FORMER = Path(__file__).parent / "data" / "schema_0008"


def unpacked(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((FORMER / f"{name}.gz").read_bytes()))
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return unpacked(tmp_path, "results.db")


def check_everything(store: Store) -> None:
    """Check the rows of `fill` and `fill_bench`, and the run on the recording before them."""
    numbers = sorted(run.run_id for run in store.runs())
    tuned, first, recorded, second = map(store.run, numbers)
    assert (tuned.spec.families, tuned.num_trials) == (("sgemm_simt",), 6)
    assert tuned.spec.provenance is recorded.spec.provenance is Provenance.RECORDED
    assert tuned.finals is not None
    assert tuned.finals.winner.verification is not None
    assert tuned.finals.winner.verification.error == pytest.approx(5.7e-7, rel=0.01)
    assert tuned.time_us == tuned.finals.winner.time_us == pytest.approx(51.87, rel=1e-3)
    assert first.spec == SPEC
    written = finals(entry(128, 2650.0, 2660.0, 2655.0, ratio=1.01), entry(64, 2790.0, ratio=0.96))
    assert repr(first.finals) == repr(replace(written, calls=(), sustained=None))
    trials = store.trials(first.run_id)
    assert trials[:2] == [ok(64, 2800.0), ok(128, 2700.0)]
    assert trials[2].status is Status.CRASHED
    assert second.time_us == 50.0
    kernel = store.stored_kernel(source(128).sha256)
    assert (kernel.time_us, kernel.ratio) == (2655.0, 1.01)
    assert kernel.certificate is not None
    # In the words of then.
    assert kernel.certificate.made_at == CERTIFICATE.made_at
    assert [(one.name, str(one.verdict)) for one in kernel.certificate.checks] == [
        ("finals", "passed"),
        ("card", "passed"),
        ("emulator", "not done"),
    ]
    assert kernel.certificate.checks[1].what == "41 of 41 hard problems"
    (bench,) = store.benches()
    assert [one.time_us for one in bench.entries[:5]] == [1000.0, 400.0, 80.0, 100.0, None]
    assert {one.ratio for one in bench.entries} == {0.1, 0.25, 1.25, 1.0, None}
    assert bench.entries[0].verification is not None
    assert bench.entries[0].verification.error == 1.1e-6
    assert len(store.profiles()) == 1


def test_a_database_is_brought_up_to_date(database: Path) -> None:
    with open_store(str(database), create=False) as store:
        check_everything(store)
        assert len(store.best(BestQuery(provenance=Provenance.RECORDED))) == 2
        # The same request goes on with the run that was interrupted.
        assert store.find_unfinished_run(store.run(4).spec) == 4


def test_json_lines(tmp_path: Path, database: Path) -> None:
    with new_store(tmp_path) as store:
        taken = import_results(store, unpacked(tmp_path, "results.jsonl")).taken
        assert taken.known == {}
        check_everything(store)
    open_store(str(database), create=False).close()
    assert content_of(tmp_path / "a.db") == content_of(database)


def test_json_lines_into_a_server(tmp_path: Path, postgres: PostgresServer) -> None:
    with open_store(postgres.new_database()) as store:
        import_results(store, unpacked(tmp_path, "results.jsonl"))
        check_everything(store)


def test_a_table(tmp_path: Path, database: Path) -> None:
    """It adds nothing to the database that it was written from, and everything to another."""
    file = unpacked(tmp_path, "results.csv")
    assert b"relative_frobenius" in file.read_bytes()
    with open_store(str(database), create=False) as store:
        assert import_results(store, file).taken.num_new == 0
        expected = [outcome for run in store.runs() for outcome in store.trials(run.run_id)]
    with new_store(tmp_path) as store:
        assert import_results(store, file).taken.new == {"runs": 4, "trials": 12}
        found = [outcome for run in store.runs() for outcome in store.trials(run.run_id)]
    assert [one.verification for one in found] == [one.verification for one in expected]
    assert [one.measurement for one in found] == [one.measurement for one in expected]


def test_t4(tmp_path: Path) -> None:
    with new_store(tmp_path) as store:
        imported = import_results(store, unpacked(tmp_path, "results.t4.json"))
        assert imported.taken.new == {"runs": 1, "trials": 6}
        (best,) = store.best()
        assert best.time_us == pytest.approx(51.87, rel=1e-3)
