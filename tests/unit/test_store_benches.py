"""Benchmarks, profiles and ceilings come out of the database as they went in."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_samples import CEILINGS, PROFILE, SPEC, entries, fill_bench
from store_samples import H100, T4, new_store, ok, source
from store_samples import SPEC as RUN

from autogemm.store import Store
from autogemm.support.errors import NotFoundError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as store:
        yield store


def test_a_benchmark_comes_back_whole(store: Store) -> None:
    bench_id = fill_bench(store)
    bench = store.bench()
    assert (bench.bench_id, bench.spec) == (bench_id, SPEC)
    assert bench.entries == (*entries("1024"), *entries("512x256x64"))
    assert bench.finished_at is not None
    assert bench.started_at <= bench.finished_at


def test_what_was_recorded_of_an_unfinished_benchmark_is_there(store: Store) -> None:
    fill_bench(store)
    second = store.begin_bench(SPEC)
    store.record_entries(second, entries("64")[:1], {})
    newest, oldest = store.benches()
    assert (newest.bench_id, newest.finished_at) == (second, None)
    assert newest.entries == entries("64")[:1]
    assert len(oldest.entries) == 10
    assert store.benches(limit=1) == [newest]


def test_a_benchmark_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFoundError, match="run autogemm bench first"):
        store.bench()
    with pytest.raises(NotFoundError, match="no benchmark 7"):
        store.bench(7)


def test_profiles_by_kernel(store: Store) -> None:
    fill_bench(store)
    assert store.profiles() == store.profiles(source(64).sha256) == [PROFILE]
    assert store.profiles(source(32).sha256) == []


def test_ceilings_of_a_device(store: Store) -> None:
    fill_bench(store)
    assert store.ceilings(H100) == CEILINGS
    assert store.ceilings(T4) is None


def test_a_kernel_that_was_only_benchmarked_or_profiled(store: Store) -> None:
    own = source(64)
    store.record_profile(PROFILE, own)
    profiled = store.stored_kernel(own.sha256)
    assert (profiled.time_us, profiled.run_id) == (None, None)
    assert (profiled.problem, profiled.device) == (PROFILE.problem, H100)
    bench_id = store.begin_bench(SPEC)
    store.record_entries(bench_id, entries("1024"), {own.sha256: own})
    kernel = store.stored_kernel(own.sha256)
    assert (kernel.time_us, kernel.ratio, kernel.run_id) == (80.0, 1.25, None)
    assert (kernel.source, kernel.device, kernel.provenance) == (own, H100, "measured")
    # A run says more.
    run = store.begin_run(RUN)
    store.record_trial(run, 0, ok(64, 75.0), own)
    assert (store.stored_kernel(own.sha256).run_id, kernel.kernel_id) == (run, 1)
