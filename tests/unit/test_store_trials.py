"""Stored values come back as they were; runs resume."""

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from store_samples import (
    ENVIRONMENT,
    H100,
    SPEC,
    T4,
    VERIFIED,
    config,
    entry,
    failed,
    finals,
    measurement,
    new_store,
    ok,
    source,
)

from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import (
    CacheState,
    Environment,
    Fill,
    Outcome,
    Provenance,
    Status,
    Verification,
)
from autogemm.store import RunSpec, RunState, Store
from autogemm.support.errors import NotFoundError, StoreError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as opened:
        yield opened


def count(store: Store, table: str) -> int:
    engine = create_engine(store.url)
    with engine.connect() as connection:
        number = connection.scalar(text(f"SELECT count(*) FROM {table}"))
    engine.dispose()
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize(
    "outcome",
    [
        ok(128, 2669.123456789),
        failed(64),
        Outcome(config=config(), status=Status.REJECTED, reason="spills"),
        replace(
            failed(64, Status.WRONG_RESULT, "C[0,0]"),
            verification=Verification(math.inf, math.inf, 1e300),
        ),
        replace(ok(128, 1.0), measurement=measurement(5e-324, 1 / 3, 1.7e308, l2=CacheState.COLD)),
        replace(ok(128, 1.0), measurement=measurement(7, provenance=Provenance.RECORDED)),
        replace(ok(128, 1.0), verification=None, resources=()),
        replace(ok(128, 1.0), status=Status.TOO_SLOW, reason="1.6 times the best"),
    ],
)
def test_outcome_comes_back_exactly(store: Store, outcome: Outcome) -> None:
    run = store.begin_run(SPEC)
    bm = outcome.config["BM"]
    assert isinstance(bm, int)
    store.record_trial(run, 3, outcome, source(bm) if outcome.kernel_sha256 else None)
    (stored,) = store.trials(run)
    assert stored == outcome
    assert stored.config.values == outcome.config.values


def test_an_error_that_is_no_number_comes_back_infinite(store: Store) -> None:
    run = store.begin_run(SPEC)
    nan = Verification(math.nan, math.nan, math.nan)
    store.record_trial(run, 0, replace(failed(64), verification=nan), source(64))
    assert store.trials(run)[0].verification == Verification(math.inf, math.inf, math.inf)


def test_text_that_no_database_takes_is_stored_readably(store: Store) -> None:
    run = store.begin_run(replace(SPEC, command="tune \udcff\0"))
    store.record_trial(run, 0, failed(64, reason="log: \udc80\0 [red]é"), source(64))
    assert store.trials(run)[0].reason == "log: ?? [red]é"
    assert store.run(run).spec.command == "tune ??"


def test_trials_come_in_the_order_of_their_numbers(store: Store) -> None:
    run = store.begin_run(SPEC)
    for number, bm in ((2, 256), (0, 64), (1, 128)):
        store.record_trial(run, number, failed(bm), source(bm))
    assert [outcome.config["BM"] for outcome in store.trials(run)] == [64, 128, 256]


def test_source_comes_back_byte_for_byte(store: Store) -> None:
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, ok(128, 1.0), source(128))
    assert store.stored_kernel(source(128).sha256[:8]).source == source(128)
    assert store.stored_kernel(1).source.text == source(128).text


def test_run_comes_back(store: Store) -> None:
    spec = replace(
        SPEC,
        problem=Problem(7, 5, 3, layout=Layout.TT, lda=9, ldb=4, ldc=8, alpha=0.1, beta=-0.0),
        seed=2**63 - 1,
        l2=CacheState.COLD,
    )
    row = store.run(store.begin_run(spec))
    assert row.spec == spec
    assert (row.state, row.num_trials, row.time_us) == (RunState.RUNNING, 0, None)
    assert row.started_at.utcoffset() is not None


def test_recording_a_trial_again_changes_nothing(store: Store) -> None:
    run = store.begin_run(SPEC)
    first = store.record_trial(run, 0, ok(64, 1.0), source(64))
    assert store.record_trial(run, 0, ok(64, 2.0), source(64)) == first
    assert store.trials(run) == [ok(64, 1.0)]


def test_two_writers_of_one_run_are_told(store: Store) -> None:
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, ok(64, 1.0), source(64))
    with pytest.raises(StoreError, match="two processes are writing to one run"):
        store.record_trial(run, 0, ok(128, 1.0), source(128))


def test_a_trial_that_cannot_be_stored_leaves_nothing(store: Store) -> None:
    run = store.begin_run(SPEC)
    endless = replace(ok(64, 1.0), measurement=measurement(math.inf))
    with pytest.raises(ValueError, match="samples_us must hold finite numbers"):
        store.record_trial(run, 0, endless, source(64))
    with pytest.raises(ValueError, match="got source"):
        store.record_trial(run, 0, ok(64, 1.0), source(128))
    with pytest.raises(NotFoundError, match="no run 99"):
        store.record_trial(99, 0, ok(64, 1.0), source(64))
    assert count(store, "kernels") == count(store, "run_trials") == 0


def test_devices_environments_problems_and_kernels_are_kept_once(store: Store) -> None:
    for seed in range(3):
        run = store.begin_run(replace(SPEC, seed=seed))
        store.record_trial(run, 0, ok(64, 1.0), source(64))
    store.begin_run(replace(SPEC, device=T4, environment=Environment(), problem=Problem(1, 2, 3)))
    tables = ("devices", "environments", "problems", "kernels", "runs")
    assert [count(store, table) for table in tables] == [2, 2, 2, 1, 4]


def test_device_facts_are_those_last_seen(store: Store) -> None:
    run = store.begin_run(SPEC)
    newer = replace(H100, memory_bytes=H100.memory_bytes - 4096)
    store.begin_run(replace(SPEC, device=newer))
    assert store.run(run).spec.device == newer


def test_finals_come_back(store: Store) -> None:
    run = store.begin_run(SPEC)
    decided = finals(entry(128, 2650.0, 2660.5, ratio=1.01), entry(64, 2790.0, ratio=0.96))
    unpaired = replace(decided.entries[1], ratio=math.nan, ratio_low=math.nan, ratio_high=math.inf)
    decided = replace(decided, entries=(decided.entries[0], unpaired))
    store.record_finals(run, decided, {source(bm).sha256: source(bm) for bm in (64, 128)})
    stored = store.run(run).finals
    assert stored is not None
    assert math.isnan(stored.entries[1].ratio)
    # NaN differs from itself, its text does not.
    assert repr(stored) == repr(decided)


@pytest.fixture
def unfinished(store: Store) -> int:
    return store.begin_run(SPEC)


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, problem=Problem(4096, 4096, 4096, beta=1.0)),
        replace(SPEC, device=T4),
        replace(SPEC, environment=replace(ENVIRONMENT, driver="590")),
        replace(SPEC, family_sha256="0" * 64),
        replace(SPEC, fix=()),
        replace(SPEC, fix=(("BM", (128,)), ("FMA_ORDER", ("snake",)))),
        replace(SPEC, sampler="random"),
        replace(SPEC, seed=1),
        replace(SPEC, provenance=Provenance.RECORDED),
        replace(SPEC, l2=CacheState.COLD),
    ],
)
def test_another_request_does_not_resume(store: Store, unfinished: int, other: RunSpec) -> None:
    assert store.find_unfinished_run(other) is None


def test_the_same_request_resumes_until_it_is_finished(store: Store, unfinished: int) -> None:
    same = replace(SPEC, command="typed otherwise", fix=SPEC.fix[::-1])
    assert store.find_unfinished_run(same) == unfinished
    store.finish_run(unfinished, RunState.INTERRUPTED)
    assert store.find_unfinished_run(same) == unfinished
    store.resume_run(unfinished)
    assert store.run(unfinished).state is RunState.RUNNING
    store.finish_run(unfinished, RunState.FINISHED)
    assert store.find_unfinished_run(same) is None
    newer = store.begin_run(SPEC)
    assert store.find_unfinished_run(same) == newer


def test_a_run_that_a_live_process_writes_is_not_taken_from_it(store: Store) -> None:
    code = (
        "import sys; from store_samples import SPEC; from autogemm.store import open_store;"
        "print(open_store(sys.argv[1]).begin_run(SPEC), flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, store.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with other:
        assert other.stdout is not None
        run = int(other.stdout.readline())
        assert store.find_unfinished_run(SPEC) is None
        other.kill()
    assert store.find_unfinished_run(SPEC) == run


def known(store: Store, bm: int, spec: RunSpec = SPEC) -> Outcome | None:
    return store.known_outcome(source(bm).sha256, spec)


def test_a_known_outcome_is_the_newest_of_the_same_circumstances(store: Store) -> None:
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, ok(64, 2.0), source(64))
    again = store.begin_run(replace(SPEC, seed=1))
    store.record_trial(again, 0, ok(64, 3.0), source(64))
    assert known(store, 64) == ok(64, 3.0)
    assert known(store, 128) is None
    for other in (
        replace(SPEC, problem=Problem(1, 2, 3)),
        replace(SPEC, device=T4),
        replace(SPEC, environment=replace(ENVIRONMENT, driver="590")),
        replace(SPEC, provenance=Provenance.RECORDED),
        replace(SPEC, l2=CacheState.COLD),
        replace(SPEC, fill=Fill.ZEROS),
    ):
        assert known(store, 64, other) is None


@pytest.mark.parametrize("status", list(Status))
def test_only_ends_that_repeat_are_known(store: Store, status: Status) -> None:
    run = store.begin_run(SPEC)
    store.record_trial(run, 0, replace(failed(64, status), verification=VERIFIED), source(64))
    lasting = (Status.OK, Status.INACCURATE, Status.COMPILE_FAILED, Status.WRONG_RESULT)
    repeats = status in lasting
    assert (known(store, 64) is not None) == repeats


def test_a_config_of_another_family_keeps_its_name(store: Store) -> None:
    run = store.begin_run(replace(SPEC, families=("mine",)))
    mine = Outcome(config=Config("mine", (("TILE", 8),)), status=Status.REJECTED, reason="no")
    store.record_trial(run, 0, mine, None)
    assert store.trials(run) == [mine]
