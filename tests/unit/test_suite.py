"""benchmarks/suite.py on a GPU that is none: what it measures, writes, and leaves as it is."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fake_target import FakeTarget, tiny_family

import autogemm.tuning.opening
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Outcome, Status
from autogemm.support.errors import UsageError
from autogemm.targets import Chosen, MeasureOptions

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import suite
import suite_shapes
import suite_shown
import suite_tables


class Counting(FakeTarget):
    """Notes which problems are prepared, and which configs are measured first."""

    BROKEN = "77x77x76"
    WRONG = "78x78x76"

    def __init__(self) -> None:
        super().__init__()
        self._fault = self._fault_of
        self.prepared: list[Problem] = []
        self.first: list[Any] = []

    def prepare(self, problem: Problem, options: MeasureOptions) -> None:
        super().prepare(problem, options)
        if problem.size_label == self.BROKEN:
            raise UsageError("no room for it")
        self.prepared.append(problem)
        self._is_first = True

    def _fault_of(self, config: Config) -> Status | None:
        is_wrong = self.prepared[-1].size_label == self.WRONG and config["U"] == 4
        return Status.WRONG_RESULT if is_wrong else None

    def measure(self, candidate: Candidate, best_us: float | None) -> Outcome:
        if self._is_first:
            self.first.append(candidate.config)
            self._is_first = False
        return super().measure(candidate, best_us)


class Calls:
    """Calls of the script with one folder of results; ``known`` has none but what a test puts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.known = folder / "out", folder / "known"
        self.family = tiny_family(folder / "tiny")
        self._place = str(folder / "tiny")
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, code: int = 0) -> Counting:
        target = Counting()
        self._monkeypatch.setattr(
            autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target)
        )
        given = ["--family", self._place, "--out", str(self.folder), "--known", str(self.known)]
        given += ["--trials", "6", "--rounds", "6", "--finalists", "2"]
        done = CliRunner().invoke(suite.main, [*given, *arguments])
        assert done.exit_code == code, done.output
        return target

    def table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        return found


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    # A family of a test is known by its folder, not by its name.
    made = Calls(tmp_path, monkeypatch)
    monkeypatch.setattr(suite_tables, "load_family", lambda name: made.family)
    return made


def test_every_layout_has_a_table_with_rounds_that_give_its_ratios(calls: Calls) -> None:
    calls("--shapes", "1024,64x32x512", "--layouts", "nn,tt")
    for layout in ("nn", "tt"):
        name = f"suite_f32_{layout}_h100"
        table = calls.table(name)
        assert [row["shape"] for row in table["rows"]] == ["1024", "64x32x512"]
        assert table["not_measured"] == []
        rounds = suite_tables.unpacked(calls.folder / f"{name}.rounds.json.gz")
        for row in table["rows"]:
            fields = "shape layout dtype epilogue ratio ratio_low ratio_high ratio_of_medians"
            assert not {*fields.split(), "baseline", "error", "baseline_error", "l2"} - {*row}
            assert row["layout"] == layout
            contestants = rounds[row["shape"]]["contestants"]
            by_sha = {one["kernel_sha256"]: one["samples_us"] for one in contestants}
            pairs = zip(by_sha[""], by_sha[row["kernel_sha256"]], strict=True)
            assert sorted(a / b for a, b in pairs)[2] == pytest.approx(row["ratio"])
        assert table["geometric_mean"] == pytest.approx(
            suite_tables.geometric_mean([row["ratio"] for row in table["rows"]])
        )
        assert (
            f"of 2 ratios: {table['geometric_mean']:.3f}"
            in (calls.folder / f"{name}.txt").read_text()
        )


def test_a_row_names_the_configs_that_were_wrong(calls: Calls) -> None:
    calls("--shapes", f"1024,{Counting.WRONG}", "--trials", "40")
    right, wrong = calls.table("suite_f32_nn_h100")["rows"]
    assert "wrong" not in right
    assert all("U=4" in one and "as the test wanted" in one for one in wrong["wrong"])
    assert len(wrong["wrong"]) > 3


def test_the_same_command_goes_on_and_measures_nothing_twice(calls: Calls) -> None:
    first = calls("--shapes", "1024,512,256", "--limit", "0", code=3)
    assert first.measured == []
    assert calls.table("suite_f32_nn_h100")["not_measured"] == ["1024", "512", "256"]
    calls("--shapes", "512")
    on = calls("--shapes", "1024,512,256")
    # The first one prepared opens the run.
    assert {problem.size_label for problem in on.prepared} == {"1024", "256"}
    assert [row["shape"] for row in calls.table("suite_f32_nn_h100")["rows"]] == [
        *("1024", "512", "256")
    ]
    assert calls("--shapes", "1024,512,256").measured == []
    assert len(calls("--shapes", "1024,512", "--trials", "7").measured) > 0


def test_committed_rows_hold_while_their_text_is_emitted(calls: Calls) -> None:
    calls("--shapes", "1024,512")
    calls.folder.rename(calls.known)
    assert calls("--shapes", "1024,512").measured == []
    table = json.loads((calls.known / "suite_f32_nn_h100.json").read_text())
    table["rows"][1]["kernel_sha256"] = "0" * 64
    (calls.known / "suite_f32_nn_h100.json").write_text(json.dumps(table))
    for path in calls.folder.iterdir():
        path.unlink()
    again = calls("--shapes", "1024,512")
    assert {problem.size_label for problem in again.prepared} == {"512"}


@pytest.mark.parametrize("worse", ["ratio", "ratio_of_medians", "against_baseline"])
def test_rows_that_are_not_faster_are_tuned_longer_once(calls: Calls, worse: str) -> None:
    calls("--shapes", "1024,512,256")
    calls.folder.rename(calls.known)
    path = calls.known / "suite_f32_nn_h100.json"
    table = json.loads(path.read_text())
    for row, ratio in zip(table["rows"], (1.2, 1.1, 1.3), strict=True):
        row |= {"ratio": ratio, "ratio_of_medians": ratio, "against_baseline": "faster"}
    table["rows"][1][worse] = "tied" if worse == "against_baseline" else 0.999
    path.write_text(json.dumps(table))
    again = calls("--shapes", "1024,512,256", "--again", "9s")
    assert {problem.size_label for problem in again.prepared} == {"512"}
    # Six trials in 3 s are 18 in 9.
    rows = calls.table("suite_f32_nn_h100")["rows"]
    assert [row.get("again_s") for row in rows] == [None, 9.0, None]
    assert [row["num_trials"] for row in rows] == [6, 18, 6]
    assert rows[0]["ratio"] == 1.2
    assert (
        "longer, not being faster at first: 512"
        in (calls.folder / "suite_f32_nn_h100.txt").read_text()
    )
    # Tied or not, it is not tuned a third time.
    assert calls("--shapes", "1024,512,256", "--again", "9s").measured == []


def test_without_seeds_no_config_that_ships_comes_first(calls: Calls) -> None:
    (seed,) = calls.family.seeds
    assert calls("--shapes", "1024").first == [seed]
    target = calls("--shapes", "1024", "--without-seeds")
    assert target.first != [seed]
    assert (calls.folder / "suite_f32_nn_without_seeds_h100.json").exists()


def test_a_shape_that_fails_is_named_and_the_others_measured(calls: Calls) -> None:
    calls("--shapes", f"1024,{Counting.BROKEN},256", code=1)
    table = calls.table("suite_f32_nn_h100")
    assert [row["shape"] for row in table["rows"]] == ["1024", "256"]
    assert table["failed"] == {Counting.BROKEN: "no room for it"}
    assert table["not_measured"] == [Counting.BROKEN]


def test_unseen_shapes_are_the_same_everywhere_and_follow_their_law() -> None:
    drawn = suite_shapes.unseen_shapes(20, 1)
    assert drawn[:3] == suite_shapes.unseen_shapes(3, 1)
    assert drawn == UNSEEN
    problems = [Problem.of_size(shape) for shape in suite_shapes.unseen_shapes(400, 7)]
    sizes = [size for one in problems for size in (one.m, one.n, one.k)]
    assert min(sizes) >= 32 and max(sizes) <= 8192
    shares = [sum(size % step == 0 for size in sizes) / len(sizes) for step in (2, 8, 64)]
    assert 0.75 < shares[0] < 0.9 and 0.6 < shares[1] < 0.8 and 0.28 < shares[2] < 0.5
    # Log-uniform: as many below the geometric mean of the ends as above.
    assert 0.4 < sum(size < 512 for size in sizes) / len(sizes) < 0.6
    assert not {one.size_label for one in problems} & {*suite_shapes.SHAPES}


UNSEEN = (
    *("64x2211x496", "1152x54x3288", "2192x320x64", "4742x32x5840", "104x38x360"),
    *("117x104x160", "3328x1127x7808", "63x1728x5752", "3136x168x4224", "520x39x2664"),
    *("80x1536x256", "512x568x484", "64x7456x284", "512x2288x3775", "512x784x136"),
    *("6458x2432x4352", "2840x720x64", "755x520x224", "632x952x37", "80x3776x2624"),
)


@pytest.mark.parametrize(
    ("name", "label"),
    [("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100"), ("Tesla", "gpu")],
)
def test_a_file_has_the_gpus_name(name: str, label: str) -> None:
    assert suite_tables.gpu_label(name) == label


def test_bytes_of_experts_that_decode_are_those_of_touched_weights() -> None:
    shape = suite_shapes.MOE_DECODE_SHAPES[0]
    problem = suite_shapes.problem_of(shape, Layout.NT, DType.BF16)
    assert problem.groups.num_used(problem.m) == 8 and suite_shapes.shape_of(problem) == shape
    moved = 2 * (8 * 2048 + 8 * 1536 * 2048 + 8 * 1536)
    row = {"shape": shape, "dtype": "bf16", "time_us": 10.0, "baseline_us": 20.0}
    assert suite_shown.moved_bytes(shape, "bf16") == problem.moved_bytes == moved
    assert "0.630 of a copy" in suite_shown._bytes_line(row, 8000.0, {})
    small = suite_shown._bytes_line(row, 8000.0, {str(moved): 9.0})
    assert small.endswith("; small 9.00 us, 0.900")
    assert all(
        suite_shapes.rows_of_each(suite_shapes.problem_of(one)) <= suite_shapes.MOST_FEW_ROWS
        for one in suite_shapes.MOE_DECODE_SHAPES
    )
