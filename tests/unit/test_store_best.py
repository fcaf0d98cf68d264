"""Which kernel is the best, and the filters."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import (
    ENVIRONMENT,
    H100,
    SPEC,
    T4,
    VERIFIED,
    entry,
    failed,
    fill,
    finals,
    new_store,
    ok,
    source,
)

from autogemm.model.config import Config
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import CacheState, Provenance, Status
from autogemm.store import BestQuery, RunState, Store
from autogemm.support.errors import NotFoundError, UsageError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def filled(store: Store) -> Store:
    fill(store)
    return store


def test_one_best_for_each_device_problem_and_provenance(filled: Store) -> None:
    measured, recorded, small = filled.best()
    assert (measured.device, measured.problem) == (H100, SPEC.problem)
    assert (measured.config["BM"], measured.time_us) == (128, 2655.0)
    assert (measured.ratio, measured.ratio_low, measured.ratio_high) == (1.01, 1.00, 1.02)
    assert measured.tflops == pytest.approx(2 * 4096**3 / 2655.0 * 1e-6)
    # A faster recorded time does not displace a measured one, and says what it is.
    assert (recorded.provenance, recorded.time_us, recorded.ratio) == ("recorded", 2500.0, None)
    assert (small.device, small.time_us, small.config["BM"]) == (T4, 50.0, 64)


def test_the_best_ratio_of_all_finals_decides_not_the_best_time(filled: Store) -> None:
    run = filled.begin_run(replace(SPEC, seed=1))
    filled.record_trial(run, 0, ok(256, 2000.0), source(256))
    filled.record_finals(run, finals(entry(256, 2000.0, ratio=0.99)), {})
    assert filled.best(BestQuery(provenance=Provenance.MEASURED))[0].config["BM"] == 128
    filled.record_finals(run, finals(entry(256, 2700.0, ratio=1.5)), {})
    best = filled.best(BestQuery(provenance=Provenance.MEASURED))[0]
    assert (best.run_id, best.config["BM"], best.time_us) == (run, 256, 2700.0)


def test_the_best_of_a_family_is_its_best_placed_kernel(store: Store) -> None:
    """Also where a kernel of another family won the same finals."""
    both = replace(SPEC, families=("sgemm_simt", "sgemm_skinny"))
    run = store.begin_run(both)
    other = replace(entry(64, 2800.0, ratio=0.9), config=Config("sgemm_skinny", (("BM", 64),)))
    winner, behind = entry(128, 2600.0, ratio=1.1), entry(32, 2900.0, ratio=0.8)
    store.record_finals(run, finals(winner, other, behind), {})
    (found,) = store.best(BestQuery(family="sgemm_skinny"))
    assert (found.config.family, found.ratio) == ("sgemm_skinny", 0.9)
    (found,) = store.best(BestQuery(family="sgemm_simt"))
    assert (found.config["BM"], found.ratio) == (128, 1.1)


def test_what_a_deleted_run_alone_was_made_of_goes_with_it(store: Store, tmp_path: Path) -> None:
    store.begin_run(SPEC)
    odd = replace(SPEC.environment, driver="999.1")
    run = store.begin_run(replace(SPEC, environment=odd, device=T4, problem=Problem(8, 8, 8)))
    store.record_trial(run, 0, ok(64, 5.0), source(64))
    names = ("runs", "run_trials", "kernels", "problems", "devices", "environments")

    def counted() -> dict[str, int]:
        with closing(sqlite3.connect(next(tmp_path.glob("*.db")))) as file:
            return {
                name: file.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names
            }

    assert counted() == dict(zip(names, (2, 1, 1, 2, 2, 2), strict=True))
    store.prune([run])
    assert counted() == dict(zip(names, (1, 0, 0, 1, 1, 1), strict=True))


def test_a_query_that_never_ends_is_read_as_far_as_it_is_shown(store: Store) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    answer = store.sql(endless, timeout_s=5.0, limit=3)
    assert (list(answer.rows), answer.is_cut) == ([(1,), (2,), (3,)], True)


def test_finals_of_an_older_environment_do_not_count(filled: Store) -> None:
    newer = replace(SPEC, environment=replace(SPEC.environment, driver="999.1"))
    run = filled.begin_run(newer)
    filled.record_trial(run, 0, ok(256, 2000.0), source(256))
    filled.record_finals(run, finals(entry(256, 2700.0, ratio=0.5)), {})
    best = filled.best(BestQuery(provenance=Provenance.MEASURED))[0]
    assert (best.run_id, best.ratio) == (run, 0.5)


def test_only_trials_that_ran_well_can_be_the_best(store: Store) -> None:
    run = store.begin_run(SPEC)
    too_slow = replace(ok(64, 1.0), status=Status.TOO_SLOW, reason="slow")
    store.record_trial(run, 0, too_slow, source(64))
    store.record_trial(run, 1, failed(128), source(128))
    assert store.best() == []
    assert store.runs()[0].time_us is None


def test_of_equal_times_the_first_is_the_best(store: Store) -> None:
    run = store.begin_run(SPEC)
    for number, bm in enumerate((128, 64)):
        store.record_trial(run, number, ok(bm, 5.0), source(bm))
    (row,) = store.best()
    assert row.config["BM"] == 128


def test_times_of_different_cache_states_do_not_compete(store: Store) -> None:
    for l2, time_us in ((CacheState.WARM, 5.0), (CacheState.COLD, 9.0)):
        run = store.begin_run(replace(SPEC, l2=l2))
        store.record_trial(run, 0, ok(64, time_us), source(64))
    assert {row.l2: row.time_us for row in store.best()} == {"warm": 5.0, "cold": 9.0}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (BestQuery(), {1, 2, 3}),
        (BestQuery(gpu="h100"), {1, 2}),
        (BestQuery(gpu="TESLA"), {3}),
        (BestQuery(gpu="%"), set()),
        (BestQuery(gpu="H_00"), set()),
        (BestQuery(size="4096"), {1, 2}),
        (BestQuery(size="512x256x64"), {3}),
        (BestQuery(size="512"), set()),
        (BestQuery(layout="nn"), {1, 2, 3}),
        (BestQuery(layout="tt"), set()),
        (BestQuery(dtype="f32"), {1, 2, 3}),
        (BestQuery(dtype="f64"), set()),
        (BestQuery(family="sgemm_simt"), {1, 2, 3}),
        (BestQuery(family="sgemm"), set()),
        (BestQuery(run_id=2), {2}),
        (BestQuery(provenance=Provenance.RECORDED), {2}),
        (BestQuery(gpu="h100", size="4096", provenance=Provenance.MEASURED), {1}),
    ],
)
def test_filters(filled: Store, query: BestQuery, found: set[int]) -> None:
    assert {row.run_id for row in filled.best(query)} == found
    assert {row.run_id for row in filled.runs(query)} == found
    assert {row.run_id for row in filled.trial_rows(query)} == found


def test_a_size_that_is_none(filled: Store) -> None:
    with pytest.raises(UsageError, match="4096x"):
        filled.best(BestQuery(size="4096x"))


def test_runs_are_listed_newest_first_with_what_they_found(filled: Store) -> None:
    assert [row.run_id for row in filled.runs(limit=2)] == [3, 2]
    run = filled.run(1)
    assert (run.num_trials, run.num_ok, run.time_us) == (3, 2, 2655.0)
    assert (run.state, run.finals is not None) == (RunState.FINISHED, True)
    assert run.finished_at is not None
    assert run.started_at <= run.finished_at
    assert (filled.run(3).time_us, filled.run(3).finals) == (50.0, None)
    with pytest.raises(NotFoundError, match="no run 4"):
        filled.run(4)


def test_trials_are_listed_newest_first(filled: Store) -> None:
    assert [(row.run_id, row.number) for row in filled.trial_rows(limit=3)] == [
        (3, 1),
        (3, 0),
        (2, 0),
    ]
    (crashed,) = filled.trial_rows(status=Status.CRASHED)
    assert crashed.outcome == failed(256)
    assert filled.trial(crashed.trial_id) == crashed
    with pytest.raises(NotFoundError, match="no trial 99"):
        filled.trial(99)


def test_stored_kernel_of_a_query_prefers_measured_then_newest(filled: Store) -> None:
    kernel = filled.stored_kernel(BestQuery(gpu="h100"))
    assert (kernel.run_id, kernel.provenance, kernel.time_us) == (1, "measured", 2655.0)
    assert kernel.source == source(128)
    assert (kernel.ratio, kernel.ratio_low, kernel.ratio_high) == (1.01, 1.00, 1.02)
    assert kernel.environment == ENVIRONMENT
    assert kernel.verification == VERIFIED
    assert filled.stored_kernel().run_id == 3
    recorded = filled.stored_kernel(BestQuery(run_id=2))
    assert (recorded.provenance, recorded.source) == ("recorded", source(64))


def test_stored_kernel_by_id(filled: Store) -> None:
    # In finals and in trials of several runs: its newest finals count.
    kernel = filled.stored_kernel(1)
    assert (kernel.source, kernel.ratio, kernel.time_us) == (source(64), 0.96, 2790.0)
    assert filled.stored_kernel("1") == kernel
    assert filled.stored_kernel(source(64).sha256.upper()) == kernel
    crashed = filled.stored_kernel(3)
    assert (crashed.source, crashed.time_us, crashed.ratio) == (source(256), None, None)


@pytest.mark.parametrize("what", [99, "99", "no", "", "%", BestQuery(layout="tt")])
def test_no_such_kernel(filled: Store, what: BestQuery | int | str) -> None:
    with pytest.raises(NotFoundError):
        filled.stored_kernel(what)


def test_an_ambiguous_beginning_of_a_sha256(store: Store) -> None:
    run = store.begin_run(SPEC)
    by_first_letter: dict[str, int] = {}
    for bm in range(1, 40):
        first = source(bm).sha256[0]
        store.record_trial(run, bm, ok(bm, 1.0), source(bm))
        if first in by_first_letter and not first.isdigit():
            with pytest.raises(UsageError, match="several kernels"):
                store.stored_kernel(first)
            return
        by_first_letter[first] = bm
    raise AssertionError("no two sources share the first letter")


def test_the_layout_belongs_to_the_problem(store: Store) -> None:
    for layout in (Layout.NN, Layout.TT):
        run = store.begin_run(replace(SPEC, problem=Problem(64, 64, 64, layout=layout)))
        store.record_trial(run, 0, ok(64, 1.0), source(64))
    assert [row.problem.layout for row in store.best(BestQuery(layout="tt"))] == [Layout.TT]
