"""autogemm.tune and autogemm.best, on a recording."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import attach

import autogemm
from autogemm.catalogue.gpus import find_device
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Objective, Provenance
from autogemm.runtime import searching
from autogemm.space import build_space
from autogemm.store import open_store
from autogemm.support.errors import DeviceError, NotFoundError, UsageError
from autogemm.tuning import TuneOptions
from autogemm.tuning.task.options import request_for


def test_tune_and_best_return_values(tmp_path: Path) -> None:
    place = str(tmp_path / "mine.db")
    result = autogemm.tune((1024, 1024, 1024), gpu="recorded", trials=6, db=place)
    assert result.num_trials == 6
    assert result.finals is not None
    row = autogemm.best(1024, db=place)
    assert row.config == result.finals.winner.config
    assert (row.problem, row.provenance) == (Problem.of_size("1024"), Provenance.RECORDED)
    assert autogemm.best(Problem.of_size("1024"), gpu="h100", db=place) == row
    with pytest.raises(NotFoundError):
        autogemm.best(1024, layout="tt", db=place)


def test_recorded_times_in_place_of_a_gpu_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(monkeypatch)
    with pytest.warns(UserWarning, match="recorded, not measured here"):
        autogemm.tune(1024, trials=3, db=str(tmp_path / "mine.db"))


@pytest.mark.parametrize("size", ["1024x", (0, 4, 4), -1])
def test_a_size_that_is_none(size: str | int, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        autogemm.tune(size, layout=Layout.NT, gpu="recorded", db=str(tmp_path / "mine.db"))
    assert not (tmp_path / "mine.db").exists()


def test_the_keywords_are_the_options_of_the_command() -> None:
    keywords = dict(inspect.signature(autogemm.tune).parameters)
    for name in ("size", "layout", "dtype", "db"):
        del keywords[name]
    assert {name: keyword.default for name, keyword in keywords.items()} == {
        field.name: field.default for field in fields(TuneOptions)
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
            family="sgemm_simt",
            fix={"BM": (64, 128), "STAGES": 3},
            max_error=1e-6,
            db=place,
            **values,
        )
    problem = Problem(64, 32, 16, Layout.NT, DType.BF16)
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
        ({"fix": "BM=64"}, "fix takes a list of texts or a dict, got 'BM=64'"),
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
