"""benchmarks/generalises.py on a GPU that is none: what it compares, writes, and measures again."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_target import BEST, FakeTarget, tiny_family

import autogemm.tuning.opening
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import Status
from autogemm.targets import Chosen

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import generalises
import suite
import suite_tables


class Calls:
    """Calls of the script with one folder of results."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "out"
        self._place = str(folder / "tiny")
        self._monkeypatch = monkeypatch
        family = tiny_family(folder / "tiny")
        monkeypatch.setattr(suite_tables, "load_family", lambda name: family)
        monkeypatch.setattr(generalises, "DTYPES", (DType.F32,))
        monkeypatch.setenv("AUTOGEMM_CATALOGUE", "none")

    def __call__(self, *arguments: str, code: int = 0, **faults: Any) -> FakeTarget:
        target = FakeTarget(**faults)
        self._monkeypatch.setattr(
            autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target)
        )
        given = ["--family", self._place, "--out", str(self.folder), "--known", str(self.folder)]
        given += ["--short", "3", "--budget", "60", "--long", "99", "--rounds", "6"]
        done = CliRunner().invoke(generalises.main, [*given, *arguments])
        assert done.exit_code == code, done.output
        return target

    def table(self) -> dict[str, Any]:
        path = self.folder / "generalises_h100.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(tmp_path, monkeypatch)


def test_the_share_is_the_long_winner_s_time_over_the_short_one_s(calls: Calls) -> None:
    calls("--shapes", "2")
    results = calls.table()
    for row in results["rows"]:
        short, long = row["short"], row["long"]
        assert short["num_trials"] == 3
        # All legal configs, so the best of them.
        assert long["num_trials"] > 3
        assert long["config"].items() >= BEST.items()
        assert row["found"] == pytest.approx(long["time_us"] / short["time_us"])
        assert row["found"] == pytest.approx(short["ratio"] / long["ratio"])
        assert len(short["samples_us"]) == 6
    shares = [row["found"] for row in results["rows"]]
    assert min(shares) < 1, "a search of three trials that misses nothing shows nothing"
    assert results["mean"] == pytest.approx(sum(shares) / 2)
    assert results["least"] == min(shares)
    text = (calls.folder / "generalises_h100.txt").read_text()
    assert f"mean of 2 shares, none above 1: {results['mean']:.3f}" in text


def test_luck_of_the_short_search_does_not_raise_the_mean() -> None:
    rows = [{"found": found, "shape": "64", "layout": "nn", "dtype": "f32"} for found in (1.2, 0.9)]
    assert generalises.summary(rows)["mean"] == pytest.approx(0.95)
    assert generalises.summary(rows)["below_0.94"] == 1


def test_all_types_and_layouts_come_early() -> None:
    drawn = generalises.problems(40, 2)
    assert drawn == generalises.problems(40, 2)
    assert len({problem.size_label for problem in drawn}) == 40
    first = {(problem.dtype, problem.layout) for problem in drawn[:12]}
    assert first == {(dtype, layout) for dtype in generalises.DTYPES for layout in Layout}
    assert any(problem.k % 2 for problem in drawn)


def test_rows_are_measured_again_only_where_a_text_or_a_setting_changed(calls: Calls) -> None:
    calls("--shapes", "2")
    assert calls("--shapes", "2").measured == []
    path = calls.folder / "generalises_h100.json"
    results = calls.table()
    results["rows"][1]["long"]["kernel_sha256"] = "0" * 64
    path.write_text(json.dumps(results))
    assert len(calls("--shapes", "2").measured) > 3
    assert calls("--shapes", "2").measured == []
    assert len(calls("--shapes", "2", "--long", "50").measured) > 3


def test_a_call_that_has_no_time_for_all_says_so(calls: Calls) -> None:
    assert calls("--shapes", "2", "--limit", "0", code=suite.GOES_ON).measured == []


def test_a_shape_without_a_winner_is_named(calls: Calls) -> None:
    calls("--shapes", "1", code=1, fault=lambda config: Status.WRONG_RESULT)
    failed = calls.table()["failed"]
    assert list(failed.values()) == ["the short search ended without a winner"]
