"""Warm start: which results are similar, and what becomes of their configs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_target import FakeCompiler, FakeTarget, tiny_family
from sized_target import SizedTarget
from store_samples import SPEC

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.certificate import Certificate, Check, Verdict
from autogemm.model.results.outcome import Finals, FinalsEntry, Objective, Provenance
from autogemm.model.similarity import distance
from autogemm.space import Family
from autogemm.store import DecidedRow, Store, open_store
from autogemm.tuning import SearchStarted, TuneRequest, TuneResult, tune
from autogemm.tuning.loop.warm import nearest_starts, warm_starts

H100 = find_device("h100")


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return tiny_family(tmp_path / "tiny")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with open_store(str(tmp_path / "warm.db")) as opened:
        yield opened


def config(bm: int, bn: int = 64, **other: int) -> Config:
    return Config.of("tiny", {"BM": bm, "BN": bn, "U": 4, "ECHO": 0} | other)


def row(
    run_id: int,
    problem: Problem,
    *configs: Config,
    device: Device = H100,
    objective: Objective = Objective.TIME,
) -> DecidedRow:
    entries = tuple(
        FinalsEntry("", one, "", (1.0,), 1.0, 1.0, 1.0, tied=False, verification=None)
        for one in configs
    )
    spec = replace(SPEC, problem=problem, device=device, objective=objective)
    finals = Finals(entries, entries[0], 1, Provenance.MEASURED)
    return DecidedRow(run_id, spec, finals, datetime(2026, 11, run_id, tzinfo=UTC))


def test_distances_have_the_right_order() -> None:
    base = Problem(1024, 1024, 1024)

    def to(other: Problem, device: Device = H100) -> float:
        return distance(base, H100, other, device)

    assert to(base) == 0.0
    assert to(Problem(2048, 1024, 1024)) == pytest.approx(1.0)
    assert to(Problem(1024, 1024, 512)) == pytest.approx(1.0)
    assert 0 < to(Problem(1024, 1024, 1024, Layout.NT)) < to(Problem(2048, 1024, 1024))
    assert to(Problem(1023, 1023, 1023)) > to(Problem(1000, 1000, 1000))
    assert to(Problem(1024, 1024, 1024, dtype=DType.BF16)) == float("inf")
    h200, t4 = find_device("h200"), find_device("t4")
    assert 0 <= to(base, h200) < to(base, find_device("a100")) < to(base, t4)
    # Problems that fill any GPU differ by less than their ratio says.
    huge = distance(Problem(8192, 8192, 8192), H100, Problem(16384, 8192, 8192), H100)
    assert huge == pytest.approx(0.5)


def test_the_nearest_results_in_order(family: Family) -> None:
    rows = [
        row(1, Problem(4096, 4096, 4096), config(64)),
        row(2, Problem(1024, 1024, 512), config(16), config(32), config(64), config(16, 16)),
        row(3, Problem(2048, 2048, 2048), config(32), config(16)),
        # Another GPU is nearer than four times the extents.
        row(4, Problem(1024, 1024, 512), config(32, 16), device=find_device("t4")),
        row(5, Problem(1024, 1024, 1000), config(16, 32), objective=Objective.ENERGY),
        row(6, Problem(1024, 1024, 900), config(16, 32, U=9)),
        row(9, Problem(1024, 1024, 1000), config(16, 32)),
    ]
    spec = replace(SPEC, problem=Problem(1024, 1024, 1024))
    starts = warm_starts(rows, spec, (family,), run_id=9)
    assert [(start.run_id, len(start.configs)) for start in starts] == [(2, 3), (3, 1), (4, 1)]
    assert str(starts[0]) == "1024x1024x512 nn f32 on NVIDIA H100 80GB HBM3 (run 2)"


def test_a_repeat_starts_as_the_first_did(family: Family) -> None:
    problem = Problem(1024, 1024, 1024)
    spec = replace(SPEC, problem=problem)
    rows = [row(1, problem, config(16))]
    assert warm_starts(rows, spec, (family,), run_id=2) == ()
    elsewhere = replace(spec, environment=replace(spec.environment, driver="999"))
    assert [one.run_id for one in warm_starts(rows, elsewhere, (family,), run_id=2)] == [1]


def run(
    family: Family, store: Store, m: int, *, warm: bool = True
) -> tuple[TuneResult, tuple[str, ...]]:
    started: list[tuple[str, ...]] = []

    def listen(event: object) -> None:
        if isinstance(event, SearchStarted):
            started.append(event.started_from)

    request = TuneRequest(Problem(m, 512, 256), (family,), trials=12, rounds=2, warm_start=warm)
    target: FakeTarget = SizedTarget()
    result = tune(request, target, FakeCompiler(), store, listen)  # type: ignore[arg-type]
    return result, started[0]


def test_a_search_begins_with_what_was_good_at_the_nearest_size(
    family: Family, store: Store
) -> None:
    first, started = run(family, store, 2000)
    assert started == ()
    assert first.outcomes[0].config == family.seeds[0]
    warm, started = run(family, store, 3000)
    assert started == ("2000x512x256 nn f32 on NVIDIA H100 80GB HBM3 (run 1)",)
    assert first.finals is not None
    assert warm.outcomes[0].config == first.finals.winner.config
    assert family.seeds[0] in [outcome.config for outcome in warm.outcomes[:5]]
    cold, started = run(family, store, 4000, warm=False)
    assert started == ()
    assert cold.outcomes[0].config == family.seeds[0]


def test_a_large_database_is_read_in_part_and_gives_the_same_starts(
    family: Family, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many near, one alone in its neighbourhood, one of an extent that no neighbour may have.
    sizes = (*range(1000, 1320, 16), 150_000, 2**31 - 8)
    for m in sizes:
        run(family, store, m, warm=False)
    read: list[int] = []
    decided = store.decided

    def noted(**given: Any) -> list[DecidedRow]:
        rows = decided(**given)
        read.append(len(rows))
        return rows

    everything = store.decided()
    elsewhere = replace(everything[0].spec.environment, driver="999")
    monkeypatch.setattr(store, "decided", noted)
    for m, most_read in ((1100, 6), (1_000_000, 12), (2**31 - 8, 6), (2, 40)):
        read.clear()
        spec = replace(everything[0].spec, problem=Problem(m, 512, 256), environment=elsewhere)
        for run_id in (10, len(sizes) + 1):
            told = nearest_starts(store, (), spec, (family,), run_id)
            assert told == warm_starts(everything, spec, (family,), run_id)
        assert read[-1] <= most_read
        for shipped_m in (m, 500 * m + 24):
            problem = Problem(min(shipped_m, 2**31 - 8), 512, 256)
            shipped = replace(everything[0], run_id=-1, spec=replace(spec, problem=problem))
            told = nearest_starts(store, [shipped], spec, (family,), 10)
            assert told == warm_starts([shipped, *everything], spec, (family,), 10)
    assert (
        nearest_starts(store, (), replace(spec, problem=Problem(2, 512, 256)), (family,), 9) == ()
    )


def test_a_winner_that_failed_since_starts_nothing(family: Family, store: Store) -> None:
    result, _ = run(family, store, 1000, warm=False)
    assert result.finals is not None
    spec = replace(store.decided()[0].spec, problem=Problem(1016, 512, 256))
    (start,) = nearest_starts(store, (), spec, (family,), 9)
    check = Check("edges", Verdict.FAILED, "wrong")
    failed = Certificate((check,), datetime(2030, 1, 1, tzinfo=UTC))
    store.record_certificate(result.run_id, result.finals.winner.kernel_sha256, failed)
    (after,) = nearest_starts(store, (), spec, (family,), 9)
    assert after.configs[:2] == start.configs[1:]
    assert start.configs[0] not in after.configs
