"""Accuracy as a condition of the search: who is less accurate is kept, and never the winner."""

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
    CUBLAS_ERROR,
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    error,
    time_us,
    tiny_family,
    tiny_recording,
)
from kernel_tuner_caches import write_cache

import autogemm.tuning.opening
import autogemm.tuning.tuner
from autogemm.cli import main
from autogemm.formats import write_recording
from autogemm.model.results.outcome import Finals, Outcome, Status, Verification
from autogemm.search import Proposal, Search
from autogemm.store import Store, open_store
from autogemm.support.errors import CertificationError, UsageError
from autogemm.targets import Chosen
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import TuneRequest, tune


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


def request_for(tmp_path: Path, max_error: str, **changes: Any) -> TuneRequest:
    family = tiny_family(tmp_path / "tiny")
    given = {"sampler": "random", "max_error": max_error}
    return TuneRequest(PROBLEM, (family,), **given | changes)


@pytest.mark.parametrize("max_error", ["cublas", "1e-6"])
def test_the_winner_is_the_fastest_that_is_accurate_enough(
    tmp_path: Path, store: Store, max_error: str
) -> None:
    result = tune(request_for(tmp_path, max_error), FakeTarget(), FakeCompiler(), store)
    assert result.max_error == CUBLAS_ERROR
    allowed = [one for one in result.outcomes if error(one.config) <= CUBLAS_ERROR]
    assert 0 < len(allowed) < NUM_LEGAL
    assert result.counts == {
        Status.OK: len(allowed),
        Status.INACCURATE: NUM_LEGAL - len(allowed),
    }
    assert result.finals is not None
    assert time_us(result.finals.winner.config) == min(time_us(one.config) for one in allowed)
    assert {one.config for one in result.finals.entries} <= {one.config for one in allowed}
    unbound = tune(request_for(tmp_path, ""), FakeTarget(), FakeCompiler(), store)
    assert unbound.max_error is None
    assert unbound.finals is not None
    assert time_us(unbound.finals.winner.config) < time_us(result.finals.winner.config)


def test_an_inaccurate_trial_keeps_its_time_and_says_why(tmp_path: Path, store: Store) -> None:
    result = tune(request_for(tmp_path, "5e-7"), FakeTarget(), FakeCompiler(), store)
    stored = store.trials(result.run_id)
    inaccurate = [one for one in stored if one.status is Status.INACCURATE]
    assert {one.config["BN"] for one in inaccurate} == {32, 64}
    for one in inaccurate:
        assert one.time_us is None
        assert one.measurement is not None
        assert one.measurement.time_us == time_us(one.config)
        assert one.reason == f"error {error(one.config):.4g}, 5e-07 is allowed"
    (run,) = store.runs()
    assert run.spec.max_error == "5e-07"
    assert run.num_ok == len(stored) - len(inaccurate)


def test_what_was_measured_is_judged_anew_and_not_measured_again(
    tmp_path: Path, store: Store
) -> None:
    tune(request_for(tmp_path, "5e-7"), FakeTarget(), FakeCompiler(), store)
    target = FakeTarget()
    loose = tune(request_for(tmp_path, "1"), target, FakeCompiler(), store)
    assert not target.measured
    assert loose.counts == {Status.OK: NUM_LEGAL}
    tight = tune(request_for(tmp_path, "5e-7", seed=1), target, FakeCompiler(), store)
    assert not target.measured
    assert tight.counts[Status.INACCURATE] > 0
    # Right elsewhere: nothing speaks against it where nobody asks for accuracy.
    assert store.best()[0].time_us == min(time_us(one.config) for one in loose.outcomes)


def test_the_search_is_told_times_made_worse_by_the_excess(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[Any, float | None] = {}

    class Listening(Search):
        def tell(self, proposal: Proposal, outcome: Outcome, cost: float | None = None) -> None:
            told[outcome.config] = cost
            super().tell(proposal, outcome, cost)

    monkeypatch.setattr(autogemm.tuning.tuner, "Search", Listening)
    tune(request_for(tmp_path, "5e-7"), FakeTarget(), FakeCompiler(), store)
    assert len(told) == NUM_LEGAL
    for config, cost in told.items():
        assert cost == pytest.approx(time_us(config) * max(1.0, error(config) / 5e-7))


def test_a_finalist_that_turns_out_inaccurate_does_not_win(tmp_path: Path, store: Store) -> None:
    class Wavering(FakeTarget):
        def finals(self, candidates: Any, rounds: int, seed: int) -> Finals:
            finals = super().finals(candidates, rounds, seed)
            first = replace(finals.winner, verification=Verification(1.0, 0.9, 1e-3))
            return replace(finals, entries=(first, *finals.entries[1:]))

    request = request_for(tmp_path, "1e-4", finalists=3)
    result = tune(request, Wavering(), FakeCompiler(), store)
    assert result.finals is not None
    (lost,) = result.finals.disqualified
    assert lost.status is Status.INACCURATE
    assert lost.config != result.finals.winner.config
    assert result.counts[Status.INACCURATE] == 2, "two configs of one kernel"
    with pytest.raises(
        CertificationError, match=r"no finalist is accurate enough: error 0\.001, 0\.0001"
    ):
        tune(replace(request, finalists=1, fresh=True), Wavering(), FakeCompiler(), store)


@pytest.mark.parametrize("text", ["0", "-1", "1e", "inf", "nan", "better", "1e400", "1e-400"])
def test_a_limit_that_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="the largest error is a number above 0"):
        request_for(tmp_path, text)


def test_a_recording_answers_with_its_own_errors(tmp_path: Path, store: Store) -> None:
    family = tiny_family(tmp_path / "tiny")
    recording = tiny_recording(family)
    path = tmp_path / "tiny.json.gz"
    write_recording(recording, path)
    target = RecordedTarget(path)
    with pytest.raises(
        UsageError, match="error of cuBLAS is not known there: give --max-error a n"
    ):
        tune(request_for(tmp_path, "cublas"), target, None, store)
    errors = [one for one in recording.error if one is not None]
    largest = f"{max(errors):.17g}"
    result = tune(request_for(tmp_path, largest), target, None, store)
    assert Status.INACCURATE not in result.counts
    result = tune(request_for(tmp_path, "1e-30"), target, None, store)
    assert Status.OK not in result.counts


class Cli:
    """`autogemm` on the fake target, with one database."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.db = str(folder / "cli.db")
        self._family = str(folder / "tiny")
        tiny_family(folder / "tiny")
        monkeypatch.setattr(
            autogemm.tuning.opening, "choose_target", lambda *args, **kwargs: Chosen(FakeTarget())
        )

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(main, [*args, "--db", self.db])

    def tune(self, *args: str) -> Result:
        size = ("--size", PROBLEM.size_label, "--family", self._family, "-q", "--no-certify")
        return self.run("tune", *size, *args)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(tmp_path, monkeypatch)


def test_tune_prints_both_errors_and_what_was_asked_for(cli: Cli) -> None:
    shown = cli.tune("--max-error", "cublas")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert "error" in lines[1].split()
    (said,) = [line for line in lines if "the limit is" in line]
    assert "relative Frobenius 1e-06; cuBLAS: " in said
    assert said.endswith("relative Frobenius 1e-06; the limit is 1e-06")
    assert "inaccurate" in lines[-3]
    (row,) = csv.DictReader(io.StringIO(cli.run("db", "list", "--csv").output))
    assert row["max_error"] == "cublas"


def test_tune_without_a_condition_says_nothing_of_it(cli: Cli) -> None:
    shown = cli.tune()
    assert "asked for" not in shown.output
    assert "error" not in shown.output.splitlines()[1].split()
    result = json.loads(cli.tune("--json", "--fresh").output)
    assert result["max_error"] is None


def test_no_candidate_is_accurate_enough(cli: Cli) -> None:
    shown = cli.tune("--max-error", "1e-9")
    assert shown.exit_code == 1
    assert f"no candidate ran correctly: {NUM_LEGAL} inaccurate; first inaccurate: error" in (
        shown.output
    )
    bad = cli.tune("--max-error", "none")
    assert bad.exit_code == 2
    assert "the largest error is a number above 0 (1e-6) or cublas, got 'none'" in bad.output


def test_a_list_of_times_has_no_errors(tmp_path: Path) -> None:
    path = write_cache(tmp_path / "cache.json")
    arguments = ("tune", "--gpu", f"recorded:{path}", "--max-error", "1e-6", "-q")
    result = CliRunner().invoke(main, [*arguments, "--db", str(tmp_path / "x.db")])
    assert result.exit_code == 2
    assert "that recording contains no errors, only times: leave --max-error out" in result.output
