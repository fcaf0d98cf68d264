"""Rules that end a search, alone and together, are said and stored."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_target import (
    NUM_LEGAL,
    PROBLEM,
    FakeCompiler,
    FakeTarget,
    tiny_family,
)

import autogemm.tuning.opening
import autogemm.tuning.tuner
from autogemm.cli import main
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.outcome import (
    Finals,
    FinalsEntry,
    Measurement,
    Objective,
    Outcome,
    Provenance,
    Status,
    StopRule,
)
from autogemm.store import RunState, Store, open_store
from autogemm.support.errors import DeviceError, UsageError
from autogemm.targets import Chosen, MeasureOptions
from autogemm.tuning import Certifier, Event, SearchResumed, TuneRequest, TuneResult, tune
from autogemm.tuning.loop.stopping import PATIENCE, StopRules


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "tune.db")) as store:
        yield store


@pytest.fixture
def every(tmp_path: Path) -> TuneRequest:
    """Every config of the tiny family, the worst first: its order is that of the parameters."""
    family = tiny_family(tmp_path / "tiny")
    return TuneRequest(PROBLEM, (family,), sampler="exhaustive", rounds=3)


class Flattered(FakeTarget):
    """While searching the baseline looks slower than it is in the finals, where it takes 100 us."""

    baseline_us = 120.0


def run(
    request: TuneRequest, store: Store, target: FakeTarget | None = None
) -> tuple[TuneResult, list[Event]]:
    events: list[Event] = []
    result = tune(request, target or FakeTarget(), FakeCompiler(), store, events.append)
    row = store.run(result.run_id)
    assert row.stopped_by is result.stopped_by
    assert row.state is RunState.FINISHED
    return result, events


def ok(time_us: float) -> Outcome:
    measurement = Measurement((time_us,), Provenance.MEASURED)
    return Outcome(Config("tiny", ()), Status.OK, measurement=measurement)


def test_without_a_limit_the_space_is_used_up(every: TuneRequest, store: Store) -> None:
    result, _ = run(every, store)
    assert (result.stopped_by, result.num_trials) == (StopRule.USED_UP, NUM_LEGAL)


def test_trials_and_time_are_told_apart(every: TuneRequest, store: Store) -> None:
    result, _ = run(replace(every, trials=5, budget_s=600), store)
    assert (result.stopped_by, result.num_trials) == (StopRule.TRIALS, 5)
    slow = FakeTarget(delay_s=0.05, driver="2")
    result, _ = run(replace(every, trials=30, budget_s=0.3), store, slow)
    assert result.stopped_by is StopRule.BUDGET
    assert result.num_trials < 30


def test_a_ratio_that_the_finals_confirm_ends_the_run(every: TuneRequest, store: Store) -> None:
    result, events = run(replace(every, until_ratio=1.05), store)
    assert result.stopped_by is StopRule.RATIO
    assert result.num_trials < NUM_LEGAL
    assert result.finals is not None
    assert result.finals.winner.ratio >= 1.05
    assert not any(isinstance(event, SearchResumed) for event in events)


def test_a_ratio_that_the_finals_do_not_confirm_does_not(every: TuneRequest, store: Store) -> None:
    result, events = run(replace(every, until_ratio=1.05), store, Flattered())
    assert result.stopped_by is StopRule.RATIO
    assert result.finals is not None
    assert result.finals.winner.ratio >= 1.05
    refuted = [event for event in events if isinstance(event, SearchResumed)]
    assert refuted
    assert all(event.finals.winner.ratio < 1.05 for event in refuted)
    assert len(refuted) < 5, "the finals' verdict is learnt from"
    configs = [outcome.config for outcome in result.outcomes]
    assert len(set(configs)) == len(configs), "nothing is tried twice"


class SlowAtFirst(Flattered):
    """The first finals take 300 ms more than the others."""

    extra_s = 0.3

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        time.sleep(self.extra_s)
        self.extra_s = 0.0
        return super().finals(candidates, rounds, seed)


def test_the_time_of_all_finals_is_told(every: TuneRequest, store: Store) -> None:
    result, events = run(replace(every, until_ratio=1.05), store, SlowAtFirst())
    assert any(isinstance(event, SearchResumed) for event in events)
    assert result.finals_s >= 0.3


def test_a_ratio_out_of_reach_leaves_the_other_limits(every: TuneRequest, store: Store) -> None:
    result, _ = run(replace(every, until_ratio=1.15), store, Flattered())
    assert (result.stopped_by, result.num_trials) == (StopRule.USED_UP, NUM_LEGAL)
    assert result.finals is not None
    assert result.finals.winner.ratio == pytest.approx(100 / 90)
    result, _ = run(replace(every, until_ratio=1.15, trials=12, fresh=True), store, Flattered())
    assert (result.stopped_by, result.num_trials) == (StopRule.TRIALS, 12)


def test_a_baseline_that_was_timed_far_too_slow_costs_one_round_of_finals() -> None:
    rules = StopRules(1.05, None)
    entry = FinalsEntry("x", None, "", (98.0,), 1.0, 1.0, 1.0, False)
    assert rules.reached(ok(100.0), 1600.0, None) is StopRule.RATIO
    assert not rules.confirm(Finals((entry,), entry, 1, Provenance.MEASURED), ok(100.0))
    # Whatever is said of the baseline: 5 % are missing.
    assert rules.reached(ok(96.0), 1600.0, None) is None
    assert rules.reached(ok(95.0), 100.0, None) is StopRule.RATIO


def test_a_ratio_that_is_reached_already_needs_no_trial(every: TuneRequest, store: Store) -> None:
    seen: list[Config] = []

    def fault(config: Config) -> Exception | None:
        seen.append(config)
        return DeviceError("gone") if len(seen) == 14 else None

    with pytest.raises(DeviceError):
        tune(every, FakeTarget(fault), FakeCompiler(), store)
    assert store.runs()[0].stopped_by is None
    result, _ = run(replace(every, until_ratio=0.9), store)
    assert result.stopped_by is StopRule.RATIO
    assert result.num_trials == result.num_resumed > 0
    assert result.finals is not None


def test_too_little_expected_gain_ends_the_run(every: TuneRequest, store: Store) -> None:
    request = replace(every, sampler="surrogate", until_gain=1e-6)
    result, _ = run(request, store)
    assert result.stopped_by is StopRule.GAIN
    assert result.num_trials < NUM_LEGAL
    assert result.best is not None
    assert result.best.time_us == 90.0
    eager, _ = run(replace(request, until_gain=0.9, fresh=True), store, FakeTarget(driver="2"))
    assert eager.num_trials < result.num_trials


def test_a_sampler_without_a_model_expects_nothing(every: TuneRequest, store: Store) -> None:
    result, _ = run(replace(every, until_gain=0.99), store)
    assert result.stopped_by is StopRule.USED_UP


def test_one_poor_expectation_is_not_enough() -> None:
    rules = StopRules(None, 0.01)
    for _ in range(3):
        for _ in range(PATIENCE - 1):
            assert rules.reached(ok(90.0), 100.0, 0.001) is None
        assert rules.reached(ok(90.0), 100.0, 0.02) is None
    for _ in range(PATIENCE - 1):
        assert rules.reached(ok(90.0), 100.0, 0.001) is None
    assert rules.reached(None, None, 0.001) is StopRule.GAIN


def test_nothing_is_reached_before_anything_is_known() -> None:
    rules = StopRules(0.5, 0.01)
    assert rules.reached(None, 100.0, None) is None
    assert rules.reached(ok(90.0), None, None) is None
    assert rules.reached(ok(90.0), 100.0, None) is StopRule.RATIO


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"until_ratio": 0.0}, "more than 0"),
        ({"until_gain": 1.0}, "between 0 and 1"),
        ({"until_gain": 0.0}, "between 0 and 1"),
        (
            {"until_ratio": 1.0, "measure": MeasureOptions(objective=Objective.ENERGY)},
            "leave it out where energy is minimised",
        ),
    ],
)
def test_limits_out_of_range(
    every: TuneRequest, change: dict[str, float | MeasureOptions], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        replace(every, **change)


@pytest.fixture
def cli_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    # The tiny family computes nothing.
    passed = Check("gpu", Verdict.PASSED, "as the test wanted", "a fake")
    monkeypatch.setattr(Certifier, "_steps", lambda *_: iter([(passed,)]))
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(Flattered()))
    return str(tiny_family(tmp_path / "tiny").yaml_path.parent)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_command_line_says_what_ended_the_search(cli_folder: str) -> None:
    arguments = ("tune", "--family", cli_folder, "--size", "1024", "--sampler", "exhaustive")
    result = invoke(*arguments, "--until-ratio", "1.05")
    assert result.exit_code == 0, result.output
    assert "short of 1.05: the search continues" in result.stderr
    assert "; the ratio was reached; finals" in result.stdout
    shown = invoke("db", "show", "run:1", "--json")
    assert json.loads(shown.stdout)[0]["stopped_by"] == "ratio"
    result = invoke(*arguments, "--trials", "4", "--until-gain", "0.01", "--json")
    assert json.loads(result.stdout)["stopped_by"] == "trials"


@pytest.mark.parametrize(
    "options", [("--until-ratio", "0"), ("--until-gain", "1"), ("--until-gain", "x")]
)
def test_the_command_line_refuses_what_is_no_limit(
    cli_folder: str, options: tuple[str, str]
) -> None:
    result = invoke("tune", "--family", cli_folder, *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
