"""Energy as what is minimised: searched, stored, ranked, and the front of time and energy."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_target import (
    CUBLAS_MJ,
    CUBLAS_US,
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    energy_mj,
    time_us,
    tiny_family,
    tiny_recording,
)

import autogemm.tuning.opening
import autogemm.tuning.tuner
from autogemm.cli import main
from autogemm.formats import write_recording
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.outcome import CacheState, Objective
from autogemm.store import Store, open_store
from autogemm.support.errors import UsageError
from autogemm.targets import Chosen, MeasureOptions
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import Certifier, TuneRequest, tune

FASTEST = {"BM": 32, "BN": 64, "U": 4}
MOST_FRUGAL = {"BM": 32, "BN": 64, "U": 1}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


def request_for(tmp_path: Path, objective: Objective, **changes: Any) -> TuneRequest:
    family = tiny_family(tmp_path / "tiny")
    measure = MeasureOptions(objective=objective)
    return TuneRequest(PROBLEM, (family,), **{"sampler": "random", "measure": measure} | changes)


@pytest.mark.parametrize(
    ("objective", "best"),
    [(Objective.TIME, FASTEST), (Objective.ENERGY, MOST_FRUGAL), (Objective.EDP, FASTEST)],
)
@pytest.mark.parametrize("sampler", ["random", "surrogate"])
def test_the_objective_decides_what_is_best(
    tmp_path: Path, store: Store, objective: Objective, best: dict[str, int], sampler: str
) -> None:
    request = request_for(tmp_path, objective, sampler=sampler, finalists=2)
    result = tune(request, FakeTarget(), FakeCompiler(), store)
    assert result.objective is objective
    assert result.best is not None
    assert result.finals is not None
    for config in (result.best.config, result.finals.winner.config):
        assert config is not None
        assert {name: config[name] for name in best} == best
    row = store.run(result.run_id)
    assert row.spec.objective is objective
    assert row.finals == result.finals
    assert set(store.trials(result.run_id)) == set(result.outcomes)


def test_energy_is_kept_with_each_contender(tmp_path: Path, store: Store) -> None:
    request = request_for(tmp_path, Objective.EDP, sampler="exhaustive")
    result = tune(request, FakeTarget(), FakeCompiler(), store)
    measured = [o.measurement for o in store.trials(result.run_id) if o.measurement]
    assert len(measured) == NUM_LEGAL
    with_energy = [one for one in measured if one.energy_mj is not None]
    assert 0 < len(with_energy) < NUM_LEGAL, "the hopeless have none"
    finals = store.run(result.run_id).finals
    assert finals is not None
    assert finals.baseline.energy_mj == CUBLAS_MJ
    assert finals.winner.config is not None
    assert finals.winner.energy_mj == energy_mj(finals.winner.config)
    # The ratio is of times, whatever is minimised.
    assert finals.winner.ratio == pytest.approx(CUBLAS_US / time_us(finals.winner.config))


def test_times_without_energy_are_measured_again(tmp_path: Path, store: Store) -> None:
    tune(request_for(tmp_path, Objective.TIME), FakeTarget(), FakeCompiler(), store)
    target = FakeTarget()
    result = tune(request_for(tmp_path, Objective.ENERGY), target, FakeCompiler(), store)
    assert len(target.measured) >= NUM_LEGAL / 2
    assert result.best is not None
    assert result.best.cost(Objective.ENERGY) is not None
    # Those with an energy serve the next.
    again = FakeTarget()
    fresh = request_for(tmp_path, Objective.EDP)
    tune(fresh, again, FakeCompiler(), store)
    assert len(again.measured) < len(target.measured)


def test_another_objective_is_another_run(tmp_path: Path, store: Store) -> None:
    def gone(_: object) -> Exception:
        return RuntimeError("gone")

    for objective in (Objective.TIME, Objective.ENERGY):
        with pytest.raises(RuntimeError):
            tune(request_for(tmp_path, objective), FakeTarget(gone), FakeCompiler(), store)
    assert len(store.runs()) == 2


def test_recordings_have_no_energy(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "one.json.gz"
    request = request_for(tmp_path, Objective.ENERGY)
    write_recording(tiny_recording(request.families[0]), path)
    with pytest.raises(UsageError, match="--objective energy needs a GPU"):
        tune(request, RecordedTarget(path), None, store)
    assert store.runs() == []


def test_energy_is_not_measured_behind_flushes(tmp_path: Path) -> None:
    request = request_for(tmp_path, Objective.ENERGY)
    with pytest.raises(UsageError, match="--l2 cold does not go with --objective energy"):
        replace(request, measure=replace(request.measure, l2=CacheState.COLD))


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """`tune --objective energy` over the whole space: run 1, and a run 2 of times only."""
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    # The tiny family computes nothing.
    passed = Check("gpu", Verdict.PASSED, "as the test wanted", "a fake")
    monkeypatch.setattr(Certifier, "_steps", lambda *_: iter([(passed,)]))
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(FakeTarget()))
    folder = str(tiny_family(tmp_path / "tiny").yaml_path.parent)
    arguments = ("tune", "--family", folder, "--size", "1024", "--sampler", "random")
    result = invoke(*arguments, "--objective", "energy")
    invoke(*arguments, "--trials", "5", "-q")
    return result


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_tune_prints_energies(tuned: Result) -> None:
    assert "energy mJ" in tuned.stdout
    assert "43.29 mJ, 0.72" in tuned.stdout
    assert "mJ, about" in tuned.stderr
    (shown,) = json.loads(invoke("db", "show", "run:1", "--json").stdout)
    assert shown["objective"] == "energy"
    assert shown["finals"][0]["energy_mj"] < shown["finals"][-1]["energy_mj"] == CUBLAS_MJ


def front(*arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(invoke("db", "pareto", *arguments, "--json").stdout)
    return rows


def test_the_front_has_what_nothing_beats_in_both(tuned: Result) -> None:
    *kernels, baseline = front()
    assert baseline["name"] == "cuBLAS"
    assert baseline["on_front"] is None
    points = [(row["time_us"], row["energy_mj"]) for row in kernels]
    assert len(points) >= 2
    assert points == sorted(points)
    assert [energy for _, energy in points] == sorted((e for _, e in points), reverse=True)
    assert {name: kernels[0]["config"][name] for name in FASTEST} == FASTEST
    assert {name: kernels[-1]["config"][name] for name in MOST_FRUGAL} == MOST_FRUGAL
    *every, _ = front("--all", "--run", "1")
    assert {(r["time_us"], r["energy_mj"]) for r in every if r["on_front"]} == set(points)
    for row in every:
        beaten = any(
            time <= row["time_us"] and energy <= row["energy_mj"]
            for time, energy in points
            if (time, energy) != (row["time_us"], row["energy_mj"])
        )
        assert beaten is not row["on_front"]


def test_the_front_as_table_and_csv(tuned: Result) -> None:
    table = invoke("db", "pareto").stdout
    assert "energy_mj" in table
    assert "U=1" in table
    assert "all of them: BM=32 BN=64" in table
    rows = list(csv.DictReader(io.StringIO(invoke("db", "pareto", "--csv").stdout)))
    assert len(rows) == len(front())


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_front_as_a_picture(tuned: Result, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"front{suffix}"
    assert invoke("db", "pareto", "--plot", str(path)).exit_code == 0
    beginning = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(beginning)
    again = invoke("db", "pareto", "--plot", str(path))
    assert again.exit_code == 2
    assert "--force to overwrite it" in again.stderr


def test_a_front_that_there_is_none_of(tuned: Result) -> None:
    result = invoke("db", "pareto", "--run", "2")
    assert result.exit_code == 2
    assert "no run that matches measured energy: autogemm tune --objective energy" in result.stderr
    result = invoke("db", "pareto", "--plot", "front.doc")
    assert result.exit_code == 2
    assert "a plot is one of .png .svg .pdf, got 'front.doc'" in result.stderr
