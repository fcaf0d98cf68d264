"""Tests of a run's settings: defaults, words that are stored, the target that it opens."""

import logging
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_target import FakeTarget, tiny_family
from store_samples import SPEC, ok

from autogemm.model.problem import Problem
from autogemm.model.results.outcome import (
    CacheState,
    Fill,
    Objective,
    Provenance,
    Status,
    StopRule,
)
from autogemm.support.errors import StoreLockedError
from autogemm.targets import Chosen
from autogemm.tuning import opening
from autogemm.tuning.loop import ledger
from autogemm.tuning.task.options import TuneOptions
from autogemm.tuning.task.request import TuneRequest


def test_defaults_are_those_of_the_documentation(tmp_path: Path) -> None:
    options = TuneOptions()
    request = TuneRequest(Problem(64, 64, 64), (tiny_family(tmp_path / "tiny"),))
    for one in (options, request):
        assert (one.finalists, one.rounds) == (8, 30)
        assert (one.warm_start, one.prune, one.fresh) == (True, True, False)
        assert (one.sampler, one.seed, one.max_error) == ("surrogate", 0, "")
        assert (one.until_ratio, one.until_gain) == (None, None)
    # The command certifies its winner; the library does when it is asked to.
    assert (options.certify, request.certify) == (True, False)
    assert (options.trials, options.budget_s) == (300, 120.0)


def test_words_that_databases_and_files_hold() -> None:
    """Those of others' files too: another word would not be found again."""
    kinds: tuple[Any, ...] = (Status, Provenance, CacheState, Fill, Objective, StopRule)
    assert [" ".join(kind) for kind in kinds] == [
        "ok rejected compile_failed compile_timeout launch_failed crashed timed_out wrong_result "
        "inaccurate too_slow",
        "measured recorded",
        "warm cold rotate",
        "uniform normal integers zeros",
        "time energy edp",
        "trials budget ratio gain used_up interrupted",
    ]


class Locked:
    """A store of which another process holds the lock for the first few writes."""

    def __init__(self, num_locked: int) -> None:
        self.left = num_locked
        self.written: list[int] = []

    def next_trial_number(self, run_id: int) -> int:
        return 0

    def known_kernels(self, spec: object) -> frozenset[str]:
        return frozenset()

    def trials(self, run_id: int) -> list[object]:
        return []

    def record_trial(self, run_id: int, number: int, *rest: object) -> None:
        if self.left:
            self.left -= 1
            raise StoreLockedError("another process writes")
        self.written.append(number)


def test_an_outcome_waits_for_the_lock_of_another_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = iter(range(0, 10_000, 100))
    monkeypatch.setattr(ledger.time, "monotonic", lambda: next(now))
    caplog.set_level(logging.CRITICAL)
    store: Any = Locked(5)
    kept = ledger.Ledger(store, 1, SPEC)
    assert kept.record(3, ok(64, 7.0), None)
    assert store.written == [3]
    # Ten minutes, here six failures, are too long.
    for num_locked, is_kept in ((6, True), (7, False)):
        store = Locked(num_locked)
        kept = ledger.Ledger(store, 1, SPEC)
        if is_kept:
            assert kept.record(3, ok(64, 7.0), None)
        else:
            with pytest.raises(StoreLockedError):
                kept.record(3, ok(64, 7.0), None)


def test_a_target_is_chosen_for_the_families_and_its_notice_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Any, ...]] = []
    closed: list[str] = []
    target: Any = FakeTarget()
    compiler = SimpleNamespace(close=lambda: closed.append("compiler"))
    monkeypatch.setattr(target, "compiler", lambda: compiler)
    monkeypatch.setattr(target, "close", lambda: closed.append("target"))

    def choose(gpu: str, families: Collection[str], require_gpu: bool, problem: None) -> Chosen:
        asked.append((gpu, list(families), require_gpu, problem))
        return Chosen(target, "times are recorded")

    monkeypatch.setattr(opening, "choose_target", choose)
    told: list[str] = []
    with ExitStack() as stack:
        chosen, opened = opening.open_target(stack, "h100", ["a"], True, notify=told.append)
        assert (chosen.target, opened) == (target, compiler)
        assert closed == []
    assert asked == [("h100", ["a"], True, None)]
    assert told == ["times are recorded"]
    assert closed == ["compiler", "target"]


@pytest.mark.parametrize("require_gpu", [False, True])
def test_a_run_opens_the_gpu_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, require_gpu: bool
) -> None:
    asked: list[tuple[Any, ...]] = []

    def choose(*arguments: Any) -> Chosen:
        asked.append(arguments)
        return Chosen(FakeTarget(), "")  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "choose_target", choose)
    options = TuneOptions(gpu="h100", require_gpu=require_gpu, family=("sgemm_simt",))
    told: list[str] = []
    with ExitStack() as stack:
        opened = opening.open_run(
            stack,
            Problem(64, 64, 64),
            options,
            str(tmp_path / "a.db"),
            command="this one",
            notify=told.append,
        )
    assert asked == [("h100", ["sgemm_simt"], require_gpu, Problem(64, 64, 64))]
    assert told == []
    assert opened.request.command == "this one"
