"""db history, compare, why, stats: what changed, and what stands next to what."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from store_samples import ENVIRONMENT, SPEC, T4, config, failed, fill, finals, new_store, ok, source

from autogemm.cli import main
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import FinalsEntry, Measurement, Outcome, Provenance, Status
from autogemm.store import RunSpec, RunState, Store

ROUNDS = 20


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    with new_store(tmp_path) as opened:
        yield opened


def db(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["db", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rows_of(*arguments: str) -> list[dict[str, object]]:
    result = db(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


def add_run(store: Store, spec: RunSpec, time_us: float, baseline_us: float, bm: int = 128) -> int:
    """A run with finals of ROUNDS rounds; the clocks drift by a tenth, for both alike."""
    drift = [1 + 0.1 * i / ROUNDS + 0.001 * (i % 3) for i in range(ROUNDS)]
    own_us = tuple(time_us * factor for factor in drift)
    ratio = baseline_us / time_us
    entry = FinalsEntry("own", config(bm), source(bm).sha256, own_us, ratio, ratio, ratio, False)
    baseline = replace(
        finals(entry).baseline, samples_us=tuple(baseline_us * factor for factor in drift)
    )
    run = store.begin_run(spec)
    store.record_trial(run, 0, ok(bm, time_us), source(bm))
    store.record_finals(run, replace(finals(entry), baseline=baseline, rounds=ROUNDS), {})
    store.finish_run(run, RunState.FINISHED)
    return run


def test_history_compares_each_environment_with_the_one_before(store: Store) -> None:
    newer = replace(ENVIRONMENT, driver="590.2")
    newest = replace(newer, cublas="13.9")
    add_run(store, SPEC, 2700.0, 2700.0)
    # The clocks of that day were lower by 5 %, for both alike.
    add_run(store, replace(SPEC, environment=newer), 2835.0, 2835.0)
    add_run(store, replace(SPEC, environment=newest), 2500.0, 2835.0)
    rows = rows_of("history", "--size", "4096")
    assert [row["driver"] for row in rows] == ["580.1", "590.2", "590.2"]
    assert [row["verdict"] for row in rows] == [None, "SAME", "FAST"]
    assert [row["by"] for row in rows] == [None, "cublas", "time"]
    assert rows[2]["speed_up"] == pytest.approx(2835 / 2500)
    assert "590.2" in db("history").stdout
    assert store.history(limit=2) == store.history()[:2]
    assert [row.environment.driver for row in store.history(limit=1)] == ["580.1"]


def test_compare_two_runs_by_how_they_stood_to_cublas(store: Store) -> None:
    first = add_run(store, SPEC, 2700.0, 2700.0)
    slower = add_run(store, replace(SPEC, seed=1), 2900.0, 2700.0, bm=64)
    (row,) = rows_of("compare", f"run:{first}", f"run:{slower}")
    assert (row["verdict"], row["by"]) == ("SLOW", "cublas")
    assert row["speed_up"] == pytest.approx(2700 / 2900)
    assert (row["first_run_id"], row["second_run_id"]) == (first, slower)
    (back,) = rows_of("compare", f"run:{slower}", f"run:{first}")
    assert back["verdict"] == "FAST"
    shown = db("compare", f"run:{first}", f"run:{slower}").stdout
    assert "1 SLOW" in shown
    # Drift within both runs is wider than the difference of the medians.
    (by_time,) = rows_of("compare", f"run:{first}", f"run:{slower}", "--by", "time")
    assert by_time["by"] == "time"
    assert by_time["speed_up_low"] < row["speed_up_low"]  # type: ignore[operator]


def test_compare_gpus_and_versions(store: Store) -> None:
    add_run(store, SPEC, 2700.0, 2700.0)
    add_run(store, replace(SPEC, device=T4), 27000.0, 27000.0)
    add_run(store, replace(SPEC, problem=Problem(512, 512, 512)), 20.0, 21.0)
    (row,) = rows_of("compare", "gpu:t4", "gpu:h100")
    assert (row["size"], row["by"], row["verdict"]) == ("4096", "time", "FAST")
    assert row["speed_up"] == pytest.approx(10.0)
    add_run(store, replace(SPEC, environment=replace(ENVIRONMENT, driver="590.2")), 2700.0, 2700.0)
    # As `-h` has it, though the compiler's version is stored as "nvrtc 13.0.88".
    assert rows_of("compare", "nvrtc:13", "nvrtc:13.0")
    (row,) = rows_of("compare", "driver:580", "driver:590")
    assert (row["first_gpu"], row["second_gpu"]) == ("NVIDIA H100 80GB HBM3",) * 2
    assert (row["first_driver"], row["second_driver"]) == ("580.1", "590.2")
    assert row["verdict"] == "SAME"


def test_a_single_recorded_time_is_ambiguous(store: Store) -> None:
    recorded = replace(SPEC, provenance=Provenance.RECORDED)
    for seed, time_us in enumerate((2500.0, 1000.0)):
        run = store.begin_run(replace(recorded, seed=seed))
        measured = Measurement((time_us,), Provenance.RECORDED)
        outcome = Outcome(config(64), Status.OK, "", source(64).sha256, measurement=measured)
        store.record_trial(run, 0, outcome, source(64))
    (row,) = rows_of("compare", "run:1", "run:2")
    assert (row["verdict"], row["speed_up"], row["speed_up_low"]) == ("AMBG", 2.5, None)


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (("run:1", "run:99"), "no result of run:99"),
        (("run:1", "run:3"), "run:1 and run:3 have no problem in common"),
        (("run:1", "h100"), "a side is one of run:N, gpu:NAME"),
        (("run:x", "run:1"), "a side is one of"),
        (("run:", "gpu:"), "a side is one of"),
        (("weather:fine", "run:1"), "a side is one of"),
        (("run:99999999999", "run:1"), "a side is one of"),
        (("run:2", "run:2", "--by", "cublas"), "was in no finals beside cuBLAS"),
    ],
)
def test_what_cannot_be_compared(store: Store, sides: tuple[str, ...], said: str) -> None:
    fill(store)
    result = db("compare", *sides)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_why_shows_the_neighbours_that_were_tried(store: Store) -> None:
    run = store.begin_run(SPEC)
    times = {128: 2700.0, 64: 2900.0, 32: 2650.0}
    for number, (bm, time_us) in enumerate(times.items()):
        outcome = ok(bm, time_us)
        measurement = replace(
            outcome.measurement, samples_us=tuple(time_us + 0.1 * i for i in range(8))
        )
        store.record_trial(run, number, replace(outcome, measurement=measurement), source(bm))
    store.record_trial(run, 3, failed(256), source(256))
    found_wrong = replace(ok(512, 1.0), status=Status.WRONG_RESULT, reason="wrong in the finals")
    store.record_trial(run, 5, found_wrong, source(512))
    two_changes = replace(
        ok(16, 1.0),
        kernel_sha256="",
        config=config(16).__class__.of("sgemm_simt", {**config(16).as_dict(), "BK": 8}),
    )
    store.record_trial(run, 4, two_changes, None)
    told = json.loads(db("why", source(128).sha256[:12], "--short", "--json").stdout)
    assert (told["place"], told["num_ok"], told["run_id"]) == (3, 4, run)
    assert [(n["after"], n["verdict"]) for n in told["neighbours"]] == [
        (32, "FAST"),
        (64, "SLOW"),
        # Timed before it was found wrong: no time to be compared.
        (512, None),
        (256, None),
    ]
    shown = db("why", "1", "--short").stdout
    assert "place 3 of 4 correct kernels" in shown
    assert "illegal address" in shown
    never = db("why", "4", "--short")
    assert never.exit_code == 2
    assert "no trial of kernel 4 ran well" in never.stderr


def test_stats_counts_by_gpu_and_provenance(store: Store) -> None:
    fill(store)
    rows = rows_of("stats")
    assert [(row["gpu"], row["provenance"]) for row in rows] == [
        ("NVIDIA H100 80GB HBM3", "measured"),
        ("NVIDIA H100 80GB HBM3", "recorded"),
        ("Tesla T4", "measured"),
    ]
    assert [(row["num_runs"], row["num_trials"], row["num_ok"]) for row in rows] == [
        (1, 3, 2),
        (1, 1, 1),
        (1, 2, 2),
    ]
    assert [row["gpu"] for row in rows_of("stats", "--gpu", "t4")] == ["Tesla T4"]
