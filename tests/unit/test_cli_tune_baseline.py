"""`tune` and `db best` show the baseline's name, both estimators, and each kernel alone."""

import csv
import gzip
import io
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_target import CUBLAS_US, FakeTarget, tiny_family

import autogemm.tuning.opening
from autogemm.cli import main
from autogemm.model.kernel import Candidate
from autogemm.model.results.outcome import Call, Finals, Status, Sustained
from autogemm.support.errors import DeviceError
from autogemm.targets import Chosen

NAME = "cuBLASLt proposal 3"
WRONG = Call("cuBLASLt proposal 1", Status.WRONG_RESULT, "less exact than FP32")
SLOW = Call("cuBLAS SGEMM", Status.TOO_SLOW, "1.880 times as long")


class Beside(FakeTarget):
    """Calls of cuBLAS beside the baseline; the baseline takes ``baseline_us`` at first, and
    CUBLAS_US in most rounds. ``breaks`` names what sustained runs end with.
    """

    def __init__(self, own_us: Sequence[float] = (), breaks: str = "") -> None:
        super().__init__()
        self.own_us, self.breaks = own_us, breaks
        self.ran_alone: list[float] = []

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        found = super().finals(candidates, rounds, seed)
        baseline = replace(found.baseline, name=NAME, samples_mj=(60.0, 61.0))
        winner = replace(found.winner, samples_mj=(50.0, 51.0))
        if self.own_us:
            winner = replace(winner, samples_us=tuple(self.own_us))
        other = Call("cuBLAS GemmEx", samples_us=(CUBLAS_US + 4,) * rounds)
        entries = (winner, *found.entries[1:])
        return replace(found, entries=entries, baseline=baseline, calls=(other, SLOW, WRONG))

    def sustained(self, candidate: Candidate, finals: Finals, seconds: float) -> Sustained | None:
        if self.breaks:
            raise DeviceError(self.breaks)
        assert candidate.source.sha256 == finals.winner.kernel_sha256
        self.ran_alone.append(seconds)
        return Sustained(seconds, 120.0, 126.0, 70.0, 84.0)


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))
    return str(tiny_family(tmp_path / "tiny").yaml_path.parent)


def tune(monkeypatch: pytest.MonkeyPatch, target: FakeTarget, *arguments: object) -> Result:
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
    command = ["tune", "--trials", "40", "--no-certify", "--rounds", "8", *map(str, arguments)]
    return CliRunner().invoke(main, command)


def test_the_baseline_is_named_and_the_other_calls_are_told(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = ("--family", family, "--size", 1024)
    shown = tune(monkeypatch, Beside(), *size, "--sustained", "3s").stdout
    line = next(line for line in shown.splitlines() if "baseline:" in line)
    assert f"{NAME}, the fastest of 2 in all rounds; 1 were slower before" in line
    assert "cuBLASLt proposal 1: less exact than FP32" in line
    assert "sustained, each alone: 1.050 x, 120 us against 126 us" in shown
    assert "70 mJ against 84 mJ a GEMM (1.200 x)" in shown
    assert "50.5 mJ, 0.835 of cuBLAS's energy" in shown
    finals = json.loads(tune(monkeypatch, Beside(), *size, "--json", "--fresh").stdout)["finals"]
    assert finals["baseline"]["name"] == NAME
    assert [(call["name"], call["status"], call["time_us"]) for call in finals["calls"]] == [
        ("cuBLAS GemmEx", "ok", CUBLAS_US + 4),
        ("cuBLAS SGEMM", "too_slow", None),
        ("cuBLASLt proposal 1", "wrong_result", None),
    ]
    assert finals["against_baseline"] == "faster"
    assert finals["sustained"] is None
    winner = finals["entries"][0]
    assert winner["ratio_of_medians"] == CUBLAS_US / statistics.median(winner["samples_us"])
    (best,) = json.loads(CliRunner().invoke(main, ["db", "best", "--json"]).stdout)
    assert (best["baseline"], best["against_baseline"]) == (NAME, "faster")
    assert best["ratio_of_medians"] == winner["ratio_of_medians"]
    assert (best["energy_mj"], best["baseline_energy_mj"]) == (50.5, 60.5)


@pytest.mark.parametrize(
    ("own_us", "says"),
    [
        # FakeTarget's interval is above 1 throughout: the medians say otherwise.
        ((CUBLAS_US,) * 8, "a tie: not shown to be faster than cuBLAS"),
        ((1.01 * CUBLAS_US,) * 8, "a tie: not shown to be faster than cuBLAS"),
        ((0.9 * CUBLAS_US,) * 8, ""),
    ],
)
def test_a_winner_at_one_by_either_estimator_is_called_a_tie(
    family: str, monkeypatch: pytest.MonkeyPatch, own_us: tuple[float, ...], says: str
) -> None:
    shown = tune(monkeypatch, Beside(own_us), "--family", family, "--size", 1024).stdout
    assert (says or "ratio of medians 1.111") in shown
    assert ("a tie" in shown) is bool(says)
    table = CliRunner().invoke(main, ["db", "best"]).stdout
    assert ("tied" in table) is bool(says)


def test_sustained_times_are_kept_beside_the_interleaved_ratio(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Beside()
    arguments = ("--family", family, "--size", 1024, "--sustained", "2s", "--json")
    found = json.loads(tune(monkeypatch, target, *arguments).stdout)["finals"]
    assert target.ran_alone == [2.0]
    expected = {
        "sustained_s": 2.0,
        "sustained_us": 120.0,
        "sustained_baseline_us": 126.0,
        "sustained_mj": 70.0,
        "sustained_baseline_mj": 84.0,
        "sustained_ratio": 1.05,
    }
    assert found["sustained"] == expected
    assert found["entries"][0]["ratio"] != 1.05
    (best,) = json.loads(CliRunner().invoke(main, ["db", "best", "--json"]).stdout)
    assert {name: best[name] for name in expected} == expected
    assert best["ratio"] == found["entries"][0]["ratio"]
    assert "sustained_ratio" in CliRunner().invoke(main, ["db", "best", "--wide"]).stdout


def test_sustained_runs_that_break_off_take_nothing_from_the_finals(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--family", family, "--size", 1024, "--sustained", "2s", "--json")
    result = tune(monkeypatch, Beside(breaks="the GPU went away"), *arguments)
    assert result.exit_code == 0
    assert "no sustained times: the GPU went away" in result.stderr
    finals = json.loads(result.stdout)["finals"]
    assert (finals["sustained"], finals["against_baseline"]) == (None, "faster")


def test_sustained_runs_do_not_go_with_a_cold_cache(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--family", family, "--size", 1024, "--sustained", "2s", "--l2", "cold")
    result = tune(monkeypatch, Beside(), *arguments)
    assert result.exit_code == 2
    assert "do not go with --l2 cold" in result.output


def ratio_of(problem: dict[str, Any]) -> float:
    """The winner's ratio from raw rounds alone."""
    times = {one["name"]: one["samples_us"] for one in problem["contestants"]}
    winner = next(one for one in problem["contestants"] if one["role"] == "kernel")
    pairs = zip(times[problem["baseline"]], winner["samples_us"], strict=True)
    return statistics.median(over / under for over, under in pairs)


@pytest.mark.parametrize("name", ["rounds.json", "rounds.json.gz"])
@pytest.mark.parametrize("sizes", [("1024",), ("1024", "512")])
def test_raw_rounds_give_the_ratio_again(
    family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, sizes: tuple[str, ...]
) -> None:
    path = tmp_path / name
    arguments = [word for size in sizes for word in ("--size", size)]
    arguments += ["--family", family, "--rounds-file", str(path), "--csv"]
    result = tune(monkeypatch, Beside(), *arguments)
    assert result.exit_code == 0, result.output
    raw = path.read_bytes()
    kept = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    assert [one["size"] for one in kept["problems"]] == list(sizes)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    for one, row in zip(kept["problems"], rows, strict=False):
        assert ratio_of(one) == pytest.approx(float(row["ratio"]))
        roles = [it["role"] for it in one["contestants"]]
        assert roles[:3] == ["baseline", "call", "kernel"]
        assert {len(it["samples_us"]) for it in one["contestants"]} == {8}
        assert one["contestants"][0]["name"] == one["baseline"] == NAME
    if len(sizes) > 1:
        assert {row["baseline"] for row in rows} == {NAME}
        assert {row["against_baseline"] for row in rows} == {"faster"}
        assert {float(row["baseline_energy_mj"]) for row in rows} == {60.5}
        assert all(float(row["ratio_of_medians"]) > 1 for row in rows)


@pytest.mark.parametrize("place", ["rounds.csv", "nowhere/rounds.json"])
def test_a_rounds_file_that_cannot_be_is_refused_before_the_search(
    family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    target = Beside()
    arguments = ("--family", family, "--size", 1024, "--rounds-file", tmp_path / place)
    result = tune(monkeypatch, target, *arguments)
    assert (result.exit_code, target.measured) == (2, [])
    assert "--rounds-file" in result.output


def test_a_recording_has_no_sustained_times(tmp_path: Path) -> None:
    words = ["tune", "--gpu", "recorded", "--trials", "2", "--sustained", "2s", "--json"]
    result = CliRunner().invoke(main, [*words, "--db", str(tmp_path / "a.db")])
    assert result.exit_code == 0
    assert "no sustained times: nothing runs on a recording" in result.stderr
    assert json.loads(result.stdout)["finals"]["sustained"] is None
