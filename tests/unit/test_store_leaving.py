"""Many trials leave a database: the same text as one by one, whatever their number in memory."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import create_engine, insert, select, update
from store_samples import ENVIRONMENT, TELEMETRY, fill, new_store, ok, source

import autogemm.exchange.csv_columns
import autogemm.exchange.jsonl.jsonl
import autogemm.store.transfer.outgoing
import autogemm.store.transfer.trials
from autogemm.exchange import Format, table, write_results
from autogemm.exchange.jsonl.columns import is_plain
from autogemm.model.kernel import Resources
from autogemm.model.results.outcome import Outcome, Status
from autogemm.store import BestQuery, RunState, Store, TrialColumns, open_store
from autogemm.store.tables.models import Base, MeasurementRecord, TrialRecord
from autogemm.support.errors import ExchangeError

USED = Resources('gemm, "kernel"', 128, 0, 4, 0, 32768)


def odd_outcomes() -> Iterator[Outcome]:
    """Numbers and texts that are written in another way than most."""
    good = ok(64, 1.0)
    assert good.measurement is not None and good.verification is not None
    for time_us in (1.0, 1e-5, 0.5, 123456.75, 1e14, 0.1 + 0.2):
        samples = (time_us, time_us * 1.25)
        measurement = replace(good.measurement, samples_us=samples, telemetry=TELEMETRY)
        yield replace(good, measurement=measurement, measure_seconds=time_us)
    for error in (float("inf"), 0.0, 1e-9, 1e22):
        yield replace(good, verification=replace(good.verification, error=error))
    yield replace(good, measurement=replace(good.measurement, samples_us=(2.5,), energy_mj=1e-7))
    yield replace(good, resources=(USED, replace(USED, registers=7)))
    for reason in ('a "quoted" text', "two\nlines, a comma", "µs \u2028 \x1b", "null"):
        yield replace(
            good, status=Status.CRASHED, reason=reason, verification=None, measurement=None
        )


def filled(store: Store) -> Store:
    fill(store)
    run = store.begin_run(replace(store.run(1).spec, environment=replace(ENVIRONMENT, cupy="1,2")))
    for number, outcome in enumerate(odd_outcomes()):
        store.record_trial(run, number, outcome, source(64) if number % 3 else None)
    store.finish_run(run, RunState.FINISHED)
    return store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as store:
        yield filled(store)


def text(store: Store, wanted: Format, status: Status | None = None) -> str:
    return "".join(write_results(store, BestQuery(), status, wanted).pieces)


def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table, autogemm.exchange.jsonl.jsonl):
        monkeypatch.setattr(module, "is_plain", lambda part: False)


@pytest.mark.parametrize("wanted", [Format.CSV, Format.JSONL])
@pytest.mark.parametrize("status", [None, Status.CRASHED])
def test_columns_are_written_as_values_are(
    store: Store, monkeypatch: pytest.MonkeyPatch, wanted: Format, status: Status | None
) -> None:
    parts = [one for one in store.runs_and_trials() if isinstance(one, TrialColumns)]
    assert all(map(is_plain, parts))
    assert sum(map(len, parts)) == len(store.trial_rows())
    by_columns = text(store, wanted, status)
    one_by_one(monkeypatch)
    assert by_columns.splitlines() == text(store, wanted, status).splitlines()


@pytest.mark.parametrize("wanted", [Format.CSV, Format.JSON, Format.JSONL])
def test_the_text_does_not_depend_on_how_much_is_read_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, wanted: Format
) -> None:
    at_once = text(store, wanted)
    # Batches that end within runs, kernels that are forgotten and read again, runs one by one.
    monkeypatch.setattr(autogemm.store.transfer.trials, "BATCH", 3)
    monkeypatch.setattr(autogemm.store.transfer.trials, "_MOST_KERNELS", 1)
    monkeypatch.setattr(autogemm.exchange.csv_columns, "_ROWS", 2)
    assert text(store, wanted) == at_once
    monkeypatch.setattr(autogemm.store.transfer.outgoing, "_RUNS", 1)
    assert text(store, wanted) == at_once


def test_moments_are_written_as_python_writes_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = datetime(2026, 1, 2, 3, 4, 5)
    moments = (first, first.replace(microsecond=1), first.replace(microsecond=120_000))
    engine = create_engine(store.url)
    with engine.begin() as connection:
        for number, moment in enumerate(moments, start=1):
            row = update(TrialRecord).where(TrialRecord.id == number)
            connection.execute(row.values(finished_at=moment.replace(tzinfo=UTC)))
    engine.dispose()
    by_columns = text(store, Format.CSV)
    assert ",2026-01-02T03:04:05+00:00," in by_columns
    one_by_one(monkeypatch)
    assert by_columns == text(store, Format.CSV)


def test_a_server_gives_the_same(store: Store, postgres: PostgresServer) -> None:
    with open_store(postgres.new_database()) as there:
        there.import_copies(store.copies)
        for wanted in (Format.CSV, Format.JSONL):
            assert text(there, wanted) == text(store, wanted)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ({"measure_seconds": -1.0}, "greater than or equal to 0"),
        ({"reason": "x" * 70_000}, "at most 65536 characters"),
        ({"number": -5}, "greater than or equal to 0"),
    ],
)
def test_what_no_file_may_hold_is_named(store: Store, cell: dict[str, object], said: str) -> None:
    engine = create_engine(store.url)
    with engine.begin() as connection:
        connection.execute(update(TrialRecord).where(TrialRecord.id == 3).values(cell))
    engine.dispose()
    for wanted in (Format.CSV, Format.JSONL):
        with pytest.raises(ExchangeError, match=said):
            text(store, wanted)


def multiplied(store: Store, begin: int, copies: int) -> None:
    """The first trial so many times more, with all that belongs to it."""
    engine = create_engine(store.url)
    with engine.begin() as connection:
        for table_of, key in ((TrialRecord, "id"), (MeasurementRecord, "trial_id")):
            rows: Any = table_of.__table__
            first = dict(connection.execute(select(rows).where(rows.c[key] == 1)).mappings().one())
            more = [
                first | {key: begin + number} | ({"number": begin + number} if key == "id" else {})
                for number in range(copies)
            ]
            connection.execute(insert(rows), more)
        parts = [
            {"trial_id": begin + number, "position": 0, "kernel": "gemm", "registers": 1}
            | {"spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0}
            | {"static_smem_bytes": 0}
            for number in range(copies)
        ]
        connection.execute(insert(Base.metadata.tables["resources"]), parts)
    engine.dispose()


def test_memory_does_not_grow_with_the_number_of_trials(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autogemm.store.transfer.trials, "BATCH", 50)

    def most(wanted: Format) -> int:
        tracemalloc.start()
        for _ in write_results(store, BestQuery(run_id=1), None, wanted).pieces:
            pass
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    formats = (Format.CSV, Format.JSONL)
    multiplied(store, 1000, 100)
    # Twice: what is imported and kept at the first time counts in no comparison.
    few = [[most(wanted) for wanted in formats] for _ in range(2)][1]
    multiplied(store, 2000, 600)
    assert all(most(wanted) < 1.5 * peak for wanted, peak in zip(formats, few, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[1]",
            "[0.5]",
            "[-1.5]",
            "[1.5e3]",
            "[1.5",
            "[1.5,2.5]",
            "[]",
            "[NaN]",
            "[1.5]\n",
            "",
            "[1.5]\n[2.5]",
        ),
        *(
            "[1234567890.5]",
            "[1.5, ]",
            "[" + ", ".join(["1.5"] * 100_000) + "]",
            '["1.5"]',
            b"[1.5]",
        ),
    ],
)
def test_what_may_be_no_list_of_samples_is_decoded_before_it_is_written(text: Any) -> None:
    sound = "[1.5, 22.25]"
    assert autogemm.store.transfer.trials._are_sound((sound, None, sound))
    assert not autogemm.store.transfer.trials._are_sound((sound, text))


@pytest.mark.parametrize("cells", [(0.0, -0.0, 0.5, 0.5), (1, 1, 2), (None, 1e22, 1e22), (1e-5,)])
def test_few_numbers_are_written_as_python_writes_them(cells: tuple[Any, ...]) -> None:
    texts = ["" if cell is None else repr(cell) for cell in cells]
    assert autogemm.exchange.csv_columns._numbers(cells) == texts
