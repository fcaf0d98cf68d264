"""The newest is what was measured last, not what came last into this database."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from bench_samples import CEILINGS, PROFILE
from bench_samples import SPEC as BENCH_SPEC
from store_samples import (
    CERTIFICATE,
    ENVIRONMENT,
    H100,
    SPEC,
    T4,
    entry,
    finals,
    new_store,
    ok,
    source,
)

from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.outcome import CacheState, Finals, Outcome
from autogemm.store import RunSpec, Store

OLDER = replace(SPEC, environment=replace(ENVIRONMENT, driver="1.0"))
NEWER = replace(SPEC, environment=replace(ENVIRONMENT, driver="2.0"))
FAILED = Certificate((Check("gpu", Verdict.FAILED, "1 of 41"),), CERTIFICATE.made_at)
LATER = replace(CERTIFICATE, made_at=CERTIFICATE.made_at + timedelta(hours=1))


@pytest.fixture
def older(tmp_path: Path) -> Store:
    """The database that is filled first, and merged into the other when that is full."""
    (tmp_path / "older").mkdir()
    return new_store(tmp_path / "older")


@pytest.fixture
def newer(tmp_path: Path) -> Store:
    (tmp_path / "newer").mkdir()
    return new_store(tmp_path / "newer")


def decide(store: Store, spec: RunSpec, outcome: Outcome, bm: int, found: Finals) -> int:
    run = store.begin_run(spec)
    store.record_trial(run, 0, outcome, source(bm))
    store.record_finals(run, found, {})
    return run


def test_the_environment_in_which_the_best_is_looked_for(older: Store, newer: Store) -> None:
    decide(older, OLDER, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.2)))
    decide(newer, NEWER, ok(128, 2700.0), 128, finals(entry(128, 2700.0, ratio=0.9)))
    newer.merge(older)
    (best,) = newer.best()
    assert (best.environment.driver, best.config["BM"]) == ("2.0", 128)


def test_decided_runs_have_their_own_problem_and_gpu(newer: Store) -> None:
    small, far = (replace(SPEC, problem=Problem(m, m, m)) for m in (3072, 64))
    specs = [SPEC, replace(small, device=T4), replace(SPEC, device=T4), small, far]
    numbers = [
        decide(newer, spec, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.2)))
        for spec in specs
    ]
    newer.begin_run(replace(SPEC, seed=1))  # has no finals
    expected = [(n, one.problem, one.device) for n, one in zip(numbers, specs, strict=True)]
    found = [(one.run_id, one.problem, one.device) for one in newer.decided_runs()]
    assert found == expected
    near = newer.decided_runs(SPEC.problem, 1.0)
    assert [(one.run_id, one.problem, one.device) for one in near] == expected[:-1]
    assert newer.decided_runs(Problem(4, 4, 4), 1.0) == []


def test_a_kernel_is_worth_its_newest_ratio_and_not_its_luckiest(newer: Store) -> None:
    lucky, steady = entry(64, 2500.0, ratio=1.05), entry(128, 2600.0, ratio=1.02)
    decide(newer, SPEC, ok(64, 2500.0), 64, finals(lucky))
    decide(newer, SPEC, ok(128, 2600.0), 128, finals(steady))
    (best,) = newer.best()
    assert (best.config["BM"], best.ratio) == (64, 1.05)
    # Again beside each other, and with its own trials in another run: it was luck.
    again = newer.begin_run(SPEC)
    for number, bm in enumerate((64, 128)):
        newer.record_trial(again, number, ok(bm, 2500.0), source(bm))
    late = replace(lucky, ratio=1.01, ratio_low=1.005, ratio_high=1.015)
    newer.record_finals(again, finals(replace(steady, ratio=1.015), late), {})
    (best,) = newer.best()
    assert (best.config["BM"], best.ratio, best.run_id) == (128, 1.015, again)
    # The interval is that of the same finals; an export says the same.
    newer.record_finals(again, finals(late, replace(steady, ratio=1.001)), {})
    (best,) = newer.best()
    assert (best.config["BM"], best.ratio) == (64, 1.01)
    assert (best.ratio_low, best.ratio_high) == (1.005, 1.015)
    stored = newer.stored_kernel()
    assert (stored.ratio, stored.ratio_low, stored.ratio_high) == (1.01, 1.005, 1.015)


def test_a_ratio_of_another_environment_or_cache_is_not_the_newest(newer: Store) -> None:
    decide(newer, OLDER, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.2)))
    decide(newer, NEWER, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.1)))
    cold = replace(NEWER, l2=CacheState.COLD)
    decide(newer, cold, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.4)))
    assert sorted((row.l2, row.ratio) for row in newer.best()) == [("cold", 1.4), ("warm", 1.1)]
    assert sorted(row.ratio or 0.0 for row in newer.history()) == [1.1, 1.2, 1.4]


def test_the_finals_of_a_run(older: Store, newer: Store) -> None:
    """A copy of the database went on, and so did the database."""
    run = decide(older, SPEC, ok(64, 2500.0), 64, finals(entry(64, 2500.0, ratio=1.2)))
    newer.merge(older)
    older.record_finals(run, finals(entry(64, 2400.0, ratio=1.3)), {})
    newer.record_finals(1, finals(entry(64, 2600.0, ratio=1.1)), {})
    newer.merge(older)
    assert [row.time_us for row in newer.runs()] == [2600.0]
    assert [row.finals.winner.time_us for row in newer.decided()] == [2600.0]
    assert newer.stored_kernel(source(64).sha256).time_us == 2600.0


@pytest.mark.parametrize("passed_first", [True, False])
def test_the_certificate_of_a_kernel(older: Store, newer: Store, passed_first: bool) -> None:
    first, second = (CERTIFICATE, replace(FAILED, made_at=LATER.made_at))
    if not passed_first:
        first, second = FAILED, LATER
    for store, certificate in ((older, first), (newer, second)):
        run = store.begin_run(SPEC)
        store.record_trial(run, 0, ok(64, 2500.0), source(64))
        store.record_certificate(run, source(64).sha256, certificate)
    newer.merge(older)
    assert newer.stored_kernel(source(64).sha256).certificate == second
    assert len(newer.best()) == (0 if passed_first else 1)


def test_what_a_kernel_did(older: Store, newer: Store) -> None:
    for store, time_us in ((older, 2500.0), (newer, 2700.0)):
        store.record_trial(store.begin_run(SPEC), 0, ok(64, time_us), source(64))
    newer.merge(older)
    known = newer.known_outcome(source(64).sha256, SPEC)
    assert known is not None
    assert known.time_us == pytest.approx(2700.0)
    assert newer.stored_kernel(1).time_us == pytest.approx(2700.0)


def test_benchmarks_profiles_and_ceilings(older: Store, newer: Store) -> None:
    hour = timedelta(hours=1)
    for number, store in enumerate((older, newer)):
        store.begin_bench(replace(BENCH_SPEC, command=f"bench {number}"))
        store.record_profile(replace(PROFILE, made_at=PROFILE.made_at + number * hour), source(64))
        measured_at = CEILINGS.measured_at + number * hour
        store.record_ceilings(H100, ENVIRONMENT, replace(CEILINGS, measured_at=measured_at))
    newer.merge(older)
    assert newer.bench().spec.command == "bench 1"
    assert [bench.spec.command for bench in newer.benches()] == ["bench 1", "bench 0"]
    assert [one.made_at - PROFILE.made_at for one in newer.profiles()] == [hour, 0 * hour]
    ceilings = newer.ceilings(H100)
    assert ceilings is not None
    assert ceilings.measured_at == CEILINGS.measured_at + hour
