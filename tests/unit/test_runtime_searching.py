"""autogemm.tune and autogemm.best, on a recording."""

import inspect
import re
import sys
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fake_gpus import attach

import autogemm
from autogemm.catalogue.gpus import find_device
from autogemm.cli.tune.command import tune as tune_command
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Objective, Provenance
from autogemm.runtime import searching
from autogemm.runtime.progress import listener_of
from autogemm.space import build_space
from autogemm.store import open_store
from autogemm.support.errors import AutogemmError, DeviceError, NotFoundError, UsageError
from autogemm.tuning import Event, TrialDone, TuneOptions, TuneResult
from autogemm.tuning.task.options import request_for


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[TuneResult, str, list[Event]]:
    """A result on a recording, its database, and the events of the run."""
    place = str(tmp_path_factory.mktemp("tuned") / "mine.db")
    seen: list[Event] = []
    size = (1024, 1024, 1024)
    result = autogemm.tune(size, gpu="recorded", trials=6, db=place, progress=seen.append)
    return result, place, seen


def test_tune_and_best_return_values(tuned: tuple[TuneResult, str, list[Event]]) -> None:
    result, place, _ = tuned
    assert result.num_trials == 6
    assert result.finals is not None
    row = autogemm.best(1024, db=place)
    assert row.config == result.finals.winner.config
    assert (row.problem, row.provenance) == (Problem.of_size("1024"), Provenance.RECORDED)
    assert autogemm.best(Problem.of_size("1024"), gpu="h200", db=place).kernel_id == row.kernel_id
    with pytest.raises(NotFoundError):
        autogemm.best(1024, layout="tt", db=place)


def test_recorded_times_in_place_of_a_gpu_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: a loop over sizes does not say it for each."""
    attach(monkeypatch)
    searching._warned.clear()
    with pytest.warns(UserWarning, match="recorded, not measured here") as told:
        for size in (1024, "4096x256x1024"):
            autogemm.tune(size, trials=3, db=str(tmp_path / "mine.db"))
    assert [one.filename for one in told] == [__file__]


@pytest.mark.parametrize("size", ["1024x", (0, 4, 4), -1])
def test_a_size_that_is_none(size: str | int, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        autogemm.tune(size, layout=Layout.NT, gpu="recorded", db=str(tmp_path / "mine.db"))
    assert not (tmp_path / "mine.db").exists()


# Options of `autogemm tune` that the function lacks: many problems, several GPUs, and what is
# printed or written. All else is a keyword, under the name of the command's parameter.
ONLY_TYPED = {
    *("sizes", "preset", "problems_file", "cross", "scheduler", "scheduler_file"),
    "compilers",
    *("rounds_file", "as_json", "as_csv", "quiet", "form", "help"),
    *("wide", "verbose", "log_file", "total_s"),
}


def test_the_keywords_are_the_options_of_the_command() -> None:
    keywords = dict(inspect.signature(autogemm.tune).parameters)
    typed = {one.name for one in tune_command.params} - ONLY_TYPED
    assert keywords.keys() - {"size", "progress"} == typed
    defaults = {name: keyword.default for name, keyword in keywords.items()}
    for one in fields(TuneOptions):
        assert defaults[one.name] == one.default, one.name
    of_problem = {name: defaults[name] for name in ("lda", "ldb", "ldc", "alpha", "beta")}
    assert of_problem == {
        one.name: one.default for one in tune_command.params if one.name in of_problem
    }


def test_every_option_reaches_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a call with all options is that of the command with all options."""
    asked = []

    def opened(stack: object, problem: Problem, options: TuneOptions, db: str, **_: Any) -> None:
        asked.append((problem, options, db))
        raise NotFoundError("seen")

    monkeypatch.setattr(searching, "open_run", opened)
    place = str(tmp_path / "mine.db")
    values: dict[str, Any] = {
        "gpu": "recorded",
        "require_gpu": True,
        "allow_emulation": True,
        "trials": 5,
        "budget_s": 7.0,
        "until_ratio": 1.5,
        "until_gain": 0.01,
        "sustained_s": 3.0,
        "objective": "edp",
        "sampler": "random",
        "seed": 3,
        "finalists": 4,
        "rounds": 9,
        "l2": "cold",
        "fill": "zeros",
        "prune": False,
        "warm_start": False,
        "seeds": False,
        "certify": False,
        "fresh": True,
    }
    with pytest.raises(NotFoundError, match="seen"):
        autogemm.tune(
            (64, 32, 16),
            layout="nt",
            dtype="bf16",
            lda=24,
            ldb=np.int64(40),
            ldc=48,
            epilogue="relu(acc)",
            family="sgemm_simt",
            fix={"BM": (64, 128), "STAGES": 3},
            max_error=1e-6,
            db=place,
            **values,
        )
    problem = Problem(
        *(64, 32, 16, Layout.NT, DType.BF16, 24, 40, 48),
        epilogue=Epilogue.parse("relu(acc)"),
    )
    rest = {"family": ("sgemm_simt",), "fix": ("BM=64,128", "STAGES=3"), "max_error": "1e-06"}
    options = TuneOptions(**values | rest)
    assert asked == [(problem, options, place)]
    assert isinstance(asked[0][1].objective, Objective)
    assert all(getattr(options, field.name) != field.default for field in fields(TuneOptions)), (
        "an option that keeps its default is not tested"
    )


def test_without_seeds_no_family_that_ships_tries_any_first() -> None:
    problem, device = Problem.of_size("128"), find_device("h100")
    for seeds in (True, False):
        options = TuneOptions(seeds=seeds, family=("sgemm_skinny", "tiled"))
        for family in request_for(problem, options, (), "").families:
            assert bool(build_space(family, problem, device).seeds) is seeds


def test_families_and_parameters_are_narrowed(tmp_path: Path) -> None:
    place = str(tmp_path / "mine.db")
    named: dict[str, Any] = {"gpu": "recorded", "trials": 4, "sampler": "random", "db": place}
    for fix in ({"STAGES": (2, 3), "BM": 128}, ["STAGES=2,3", "BM=128"]):
        result = autogemm.tune(1024, family="sgemm_simt", fix=fix, fresh=True, **named)
        configs = [outcome.config.as_dict() for outcome in result.outcomes]
        assert {(config["BM"], config["STAGES"]) for config in configs} <= {(128, 2), (128, 3)}
    with open_store(place, create=False) as store:
        assert {run.spec.sampler for run in store.runs()} == {"random"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"layout": "xx"}, "layout is one of nn, nt, tn, tt, got 'xx'"),
        ({"dtype": "f8"}, "unknown dtype 'f8'; known: "),
        ({"objective": "money"}, "objective is one of time, energy, edp, got 'money'"),
        ({"l2": "hot"}, "l2 is one of warm, cold, rotate, got 'hot'"),
        ({"fill": "ones"}, "fill is one of "),
        ({"sampler": "magic"}, "unknown sampler 'magic'; known: surrogate"),
        ({"max_error": -1.0}, "the largest error is a number above 0"),
        ({"fix": "BM=64"}, "fix takes a list of strings or a dict, got 'BM=64'"),
        ({"fix": {"NOPE": 1}}, "sgemm_simt has no parameter 'NOPE'"),
        ({"finalists": 0}, "finalists must be at least 1"),
        ({"objective": "energy", "until_ratio": 1.1}, "the ratio to stop at is one of times"),
    ],
)
def test_what_is_no_option(keywords: dict[str, Any], message: str, tmp_path: Path) -> None:
    place = tmp_path / "mine.db"
    with pytest.raises(UsageError) as caught:
        autogemm.tune(1024, gpu="recorded", db=str(place), **keywords)
    assert message in str(caught.value)
    assert not place.exists()


def test_without_a_gpu_where_one_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(monkeypatch)
    with pytest.raises(DeviceError, match="no GPU"):
        autogemm.tune(1024, require_gpu=True, db=str(tmp_path / "mine.db"))


def test_a_function_is_told_of_each_event(tuned: tuple[TuneResult, str, list[Event]]) -> None:
    result, _, seen = tuned
    trials = [event for event in seen if isinstance(event, TrialDone)]
    assert [event.outcome for event in trials] == list(result.outcomes)


def test_a_bar_shows_the_share_and_the_best(
    tuned: tuple[TuneResult, str, list[Event]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, _, seen = tuned
    request = request_for(result.problem, TuneOptions(trials=12), (), "")

    def shown(progress: bool | None) -> str:
        with listener_of(progress, request) as told:
            for event in seen:
                told(event)
        return capsys.readouterr().err

    assert shown(progress=None) == shown(progress=False) == ""
    # A notebook, without ipywidgets: its stderr is no terminal.
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    text = shown(progress=None)
    assert " 50%" in text
    assert re.search(r"6 trials, best [\d.]+ us, [\d.]+ TFLOP/s", text)
    assert "100%" in text
    assert "finals of " in text
    assert shown(progress=False) == ""


def test_results_show_themselves_in_a_line_and_a_table(
    tuned: tuple[TuneResult, str, list[Event]],
) -> None:
    result, place, _ = tuned
    row = autogemm.best(1024, db=place)
    assert result.finals is not None
    shown: list[object] = [result, result.best, result.finals, result.finals.winner, row]
    for one in shown:
        text = repr(one)
        assert text.startswith(f"<{type(one).__name__}: ")
        assert "\n" not in text
        assert len(text) < 600, text
    assert "1024 nn f32 on NVIDIA H200, recorded, 6 trials" in repr(result)
    assert " x cuBLAS" in repr(result)
    page = result._repr_html_()
    assert page.count("<tr>") == 1 + len(result.finals.entries) + 1
    assert str(result.finals.winner.config) in page
    assert str(row.config) in row._repr_html_()
    unsafe = replace(result, device_name="<script>", finals=None)._repr_html_()
    assert "<script>" not in unsafe


def test_the_best_of_a_problem_is_of_that_problem(
    tuned: tuple[TuneResult, str, list[Event]],
) -> None:
    result, place, _ = tuned
    assert autogemm.best(dtype="f32", family="sgemm_simt", db=Path(place)).run_id == result.run_id
    for size, keywords in (
        (replace(result.problem, dtype=DType.BF16), {}),
        (1024, {"dtype": "bf16"}),
        (1024, {"family": "tiled"}),
    ):
        with pytest.raises(NotFoundError):
            autogemm.best(size, db=place, **keywords)


# Errors of every kind that a mistake may raise.
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, float("nan"), float("inf"), 10**400, "", "x", "a\0b", b"x"),
    *((), (1, 2), (1, 2, 3.5), [None], {}, {"BM": None}, {1: 2}, object(), int, 1j),
)


@pytest.mark.parametrize("name", [*inspect.signature(autogemm.tune).parameters])
def test_a_wrong_argument_of_tune_is_an_error_of_ours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the request, which is made of families and options."""

    def opened(
        stack: object, problem: Problem, options: TuneOptions, db: str | None, **_: Any
    ) -> None:
        request_for(problem, options, options.fix, "")
        raise NotFoundError("nothing is wrong")

    monkeypatch.setattr(searching, "open_run", opened)
    sound: dict[str, Any] = {"size": 1024, "family": "tiled"}
    for value in WRONG:
        with pytest.raises(AutogemmError) as caught:
            autogemm.tune(**sound | {name: value})
        assert "\n" not in str(caught.value)


def test_a_place_or_a_gpu_that_is_none_is_an_error_of_ours(tmp_path: Path) -> None:
    sound: dict[str, Any] = {"size": 1024, "gpu": "recorded", "db": str(tmp_path / "mine.db")}
    for name, value in (("db", "a\0b"), ("db", tmp_path), ("gpu", "x"), ("gpu", "a\0b")):
        with pytest.raises(AutogemmError):
            autogemm.tune(**sound | {name: value})


@pytest.mark.parametrize("name", [*inspect.signature(autogemm.best).parameters])
def test_a_wrong_argument_of_best_is_an_error_of_ours(
    name: str, tuned: tuple[TuneResult, str, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, place, _ = tuned
    monkeypatch.setenv("AUTOGEMM_DB", place)
    for value in WRONG:
        if value is not None:
            with pytest.raises(AutogemmError):
                autogemm.best(**{"size": 999, "db": place, name: value})
