"""db check: what has changed is measured again, what moved is said, and only that is tuned."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from fake_gpus import attach
from fake_target import BEST, PROBLEM, FakeCompiler, FakeTarget, tiny_family

import autogemm.tuning.opening
from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.formats import read_recording, write_recording
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Status
from autogemm.store import RunState, open_store
from autogemm.support.errors import DeviceError
from autogemm.targets import Chosen
from autogemm.targets.recorded import recording_folder
from autogemm.tuning import TuneRequest, tune

OTHER = Problem(512, 512, 512)
Slowdown = Callable[[Config], float]


class DriftingTarget(FakeTarget):
    """Its clocks are another day's in each session, and a kernel may have become slower."""

    def __init__(self, *, driver: str, clock: float = 1.0, slower: Slowdown | None = None) -> None:
        super().__init__(driver=driver)
        self._clock = clock
        self._slower = slower or (lambda config: 1.0)
        self.problem = PROBLEM

    def prepare(self, problem: Problem, options: Any) -> None:
        super().prepare(problem, options)
        self.problem = problem

    def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
        finals = super().finals(candidates, rounds, seed)
        entries = tuple(map(self._drifted, finals.entries))
        return replace(finals, entries=entries, baseline=self._drifted(finals.baseline))

    def _drifted(self, entry: FinalsEntry) -> FinalsEntry:
        slower = self._slower(entry.config) if entry.config and self.problem == PROBLEM else 1.0
        noise = [1 + 0.001 * (i % 5) for i in range(len(entry.samples_us))]
        drifted = tuple(
            us * self._clock * slower * n for us, n in zip(entry.samples_us, noise, strict=True)
        )
        return replace(entry, samples_us=drifted, ratio=entry.ratio / slower)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two problems tuned with driver 1, of the tiny family in ``tiny``."""
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    tiny_family(tmp_path / "tiny")
    (tmp_path / "a.db").write_bytes(tuned())
    return tmp_path


@cache
def tuned() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.db"
        family = tiny_family(Path(name) / "tiny")
        with open_store(str(path)) as store:
            for problem in (PROBLEM, OTHER):
                request = TuneRequest(
                    problem=problem, families=(family,), sampler="random", trials=6
                )
                tune(request, DriftingTarget(driver="1"), FakeCompiler(), store)
        return path.read_bytes()


@pytest.fixture
def check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(target: FakeTarget, *arguments: str) -> Result:
        monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
        command = ["db", "check", "--family", str(folder / "tiny"), "--no-certify", *arguments]
        result = CliRunner().invoke(main, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result

    return run


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return sorted(found, key=lambda row: row["m"])


def test_nothing_changed_nothing_to_do(check: Callable[..., Result]) -> None:
    target = DriftingTarget(driver="1")
    result = check(target, "--json")
    assert rows(result) == []
    assert "2 of 2 winners" in result.stderr
    assert target.measured == []
    assert [row["verdict"] for row in rows(check(target, "--all", "--json"))] == ["SAME", "SAME"]


def test_a_new_driver_that_changes_nothing(check: Callable[..., Result], folder: Path) -> None:
    # The clocks are 5 % lower than on the day of tuning: for cuBLAS too.
    target = DriftingTarget(driver="2", clock=1.05)
    first, second = rows(check(target, "--json"))
    assert (first["verdict"], second["verdict"]) == ("SAME", "SAME")
    assert (first["by"], first["changed"]) == ("cublas", "driver 1 -> 2")
    assert first["time_us"] == pytest.approx(1.05 * first["before_time_us"], rel=0.01)
    # The measurement is kept, and is the expected one from now on.
    with open_store(str(folder / "a.db")) as store:
        assert [run.spec.environment.driver for run in store.runs()] == ["2", "2", "1", "1"]
        assert {row.run_id for row in store.best()} == {first["run_id"], second["run_id"]}
    assert rows(check(DriftingTarget(driver="2"), "--json")) == []


def test_what_became_slower_is_said_and_only_that_is_tuned(
    check: Callable[..., Result], folder: Path
) -> None:
    with open_store(str(folder / "a.db")) as store:
        old = next(row.config for row in store.best() if row.problem == PROBLEM)
    target = DriftingTarget(driver="2", slower=lambda config: 1.5 if config == old else 1.0)
    same, slower = rows(check(target, "--retune", "--trials", "32", "--json"))
    assert (same["size"], same["verdict"], same["retuned_run_id"]) == ("512", "SAME", None)
    assert (slower["size"], slower["verdict"]) == ("1024", "SLOW")
    assert slower["speed_up"] == pytest.approx(1 / 1.5, rel=0.01)
    with open_store(str(folder / "a.db")) as store:
        tuned = store.run(slower["retuned_run_id"])
        assert (tuned.spec.problem, tuned.spec.sampler) == (PROBLEM, "surrogate")
        assert [run.spec.problem for run in store.runs()].count(OTHER) == 2
        best = next(row for row in store.best() if row.problem == PROBLEM)
        assert best.run_id == slower["retuned_run_id"]
        assert best.config != old or old == Config.of("tiny", {**BEST, "ECHO": 0})


def test_the_table_says_what_moved(check: Callable[..., Result]) -> None:
    target = DriftingTarget(driver="2", slower=lambda config: 0.9)
    shown = check(target, "--size", "1024").stdout
    assert "FAST" in shown
    assert "driver 1 -> 2" in shown
    assert "1 FAST" in shown


def test_another_template_is_a_change_once(check: Callable[..., Result], folder: Path) -> None:
    template = folder / "tiny" / "tiny.cu.jinja"
    template.write_text("// better\n" + template.read_text())
    first, _ = rows(check(DriftingTarget(driver="1"), "--json"))
    assert (first["changed"], first["verdict"]) == ("template of tiny", "SAME")
    assert rows(check(DriftingTarget(driver="1"), "--json")) == []


def test_one_that_does_not_run_any_more_moved(check: Callable[..., Result], folder: Path) -> None:
    target = DriftingTarget(driver="2")
    target._fault = lambda config: Status.CRASHED
    first, _ = rows(check(target, "--json"))
    assert (first["verdict"], first["time_us"]) == (None, None)
    assert first["reason"] == "crashed: as the test wanted"
    with open_store(str(folder / "a.db")) as store:
        assert {run.state for run in store.runs()} == {RunState.FINISHED}
    # Its old time stands, and it is measured again the next time.
    again, _ = rows(check(target, "--json"))
    assert again["kernel_id"] == first["kernel_id"]


def test_one_that_is_launched_in_another_way_now_is_not_called_wrong(
    check: Callable[..., Result], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LaunchPlan, "takes", lambda plan, text: False)
    target = DriftingTarget(driver="2")
    target._fault = lambda config: Status.WRONG_RESULT
    checked, _ = rows(check(target, "--json"))
    assert "to TMA in another way: tune again" in checked["reason"]
    with open_store(str(folder / "a.db")) as store:
        assert {row.kernel_id for row in store.best()} >= {checked["kernel_id"]}


def test_one_that_is_wrong_now_is_not_the_best_any_more(
    check: Callable[..., Result], folder: Path
) -> None:
    target = DriftingTarget(driver="2")
    target._fault = lambda config: Status.WRONG_RESULT
    (checked,) = rows(check(target, "--size", "1024", "--json"))
    assert checked["reason"] == "wrong_result: as the test wanted"
    with open_store(str(folder / "a.db")) as store:
        best = next(row for row in store.best() if row.problem == PROBLEM)
        assert best.kernel_id != checked["kernel_id"]


def test_one_that_fails_in_the_finals_only(check: Callable[..., Result], folder: Path) -> None:
    class Late(DriftingTarget):
        def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
            raise DeviceError("no finalist ran a second time, the last one: it hung")

    (checked,) = rows(check(Late(driver="2"), "--size", "1024", "--json"))
    assert checked["reason"].startswith("crashed: no finalist ran a second time")
    with open_store(str(folder / "a.db")) as store:
        assert [one.status for one in store.trials(checked["run_id"])] == [Status.CRASHED]


def test_a_gpu_that_goes_away_ends_it_in_one_line(
    check: Callable[..., Result], folder: Path
) -> None:
    target = DriftingTarget(driver="2")
    target._fault = lambda config: DeviceError("no usable GPU: it fell off the bus")
    result = check(target, "--json")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
    with open_store(str(folder / "a.db")) as store:
        assert store.runs()[0].state is RunState.INTERRUPTED


def test_a_family_that_is_not_at_hand_or_not_what_it_was(
    folder: Path, check: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    yaml = folder / "tiny" / "tiny.yaml"
    yaml.write_text(yaml.read_text().replace("U: {", "UNROLL: {").replace("U: 1", "UNROLL: 1"))
    template = folder / "tiny" / "tiny.cu.jinja"
    template.write_text(template.read_text().replace("config.U", "config.UNROLL"))
    first, _ = rows(check(DriftingTarget(driver="2"), "--json"))
    assert (first["run_id"], "other parameters now" in first["reason"]) == (None, True)
    target = DriftingTarget(driver="2")
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
    result = CliRunner().invoke(main, ["db", "check", "--json"])
    assert "'tiny' is not known: name it with --family" in rows(result)[0]["reason"]


def test_another_gpu_is_not_measured(check: Callable[..., Result]) -> None:
    target = DriftingTarget(driver="2")
    target.device = replace(target.device, name="Tesla T4")
    result = check(target, "--all", "--json")
    assert rows(result) == []
    assert "no winner of Tesla T4 is stored" in result.stderr


def test_without_a_gpu_nothing_is_said_to_be_unchanged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(monkeypatch)
    result = CliRunner().invoke(main, ["db", "check"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no GPU: no driver is loaded; --gpu recorded replays a recording" in result.stderr


def of_two_gpus(folder: Path) -> Path:
    """Two of the recordings that ship, the first of them as if another GPU had made it."""
    folder.mkdir()
    names = ("sgemm_simt_h200_1024_nn", "gemm_skinny_h200_8x4096x4096_nt_bf16")
    gpus = ("h100", "h200")
    for name, gpu in zip(names, gpus, strict=True):
        recording = read_recording(recording_folder() / f"{name}.json.gz")
        source = recording.source.model_copy(update={"device": find_device(gpu)})
        made = recording.model_copy(update={"source": source})
        write_recording(made, folder / f"{name}.json.gz")
    return folder


def test_on_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "a.db"))
    place = of_two_gpus(tmp_path / "recordings")
    monkeypatch.setattr("autogemm.targets.recorded.target.recording_folder", lambda: place)
    tune_it = ["tune", "--gpu", "recorded", "--size", "1024", "--trials", "3", "-q"]
    assert CliRunner().invoke(main, tune_it).exit_code == 0
    # Recordings are of several GPUs: each winner is replayed by that of its problem.
    few_rows = [*tune_it[:4], "8x4096x4096", "--layout", "nt", "--dtype", "bf16", *tune_it[5:]]
    assert CliRunner().invoke(main, few_rows).exit_code == 0
    result = CliRunner().invoke(main, ["db", "check", "--gpu", "recorded", "--all", "--json"])
    found = rows(result)
    assert {row["gpu"] for row in found} == {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    for row in found:
        assert (row["provenance"], row["verdict"], row["speed_up"]) == ("recorded", "AMBG", 1.0)
        assert row["changed"] == ""
    assert "using the recording of NVIDIA H200, NVIDIA H100 80GB HBM3: every" in result.stderr


def test_a_gate_fails_what_became_slower_by_more_than_the_threshold(
    check: Callable[..., Result], folder: Path
) -> None:
    junit = folder / "check.xml"
    reference = (folder / "a.db").read_bytes()

    def gate(slower: float, *arguments: str) -> tuple[Result, list[list[str]]]:
        (folder / "a.db").write_bytes(reference)
        target = DriftingTarget(driver="2", slower=lambda config: slower)
        result = check(target, "--junit", str(junit), *arguments)
        suite = ElementTree.parse(junit).getroot()[0]
        assert suite.get("tests") == "2"
        return result, [[child.tag for child in case] for case in suite]

    passed, ends = gate(1.05, "--fail-on", "slow", "--threshold", "6%")
    assert (passed.exit_code, ends) == (0, [["system-out"], ["system-out"]])
    failed, ends = gate(1.05, "--fail-on", "slow", "--threshold", "2%")
    assert (failed.exit_code, sorted(ends)) == (1, [["failure"], ["system-out"]])
    assert "SLOW" in failed.stdout, "the table comes before the verdict"
    assert failed.stderr.splitlines()[-1] == (
        "Error: 1 of 2 winners slow by more than 2 % or not running: 1024 nn f32 tiny"
    )
    message = ElementTree.parse(junit).getroot().find(".//failure").get("message")  # type: ignore[union-attr]
    assert message is not None
    assert message.startswith("SLOW: 0.95")
    # Faster is no failure of the one gate, and is one of the other.
    assert gate(0.9, "--fail-on", "slow")[0].exit_code == 0
    assert gate(0.9, "--fail-on", "moved")[0].exit_code == 1
    # Without --fail-on the file is written, and the exit code says nothing.
    assert gate(1.05)[0].exit_code == 0
    # Four rounds are no evidence of anything: neither passed nor failed.
    unclear, ends = gate(1.05, "--fail-on", "slow", "--rounds", "4")
    assert (unclear.exit_code, ends) == (0, [["skipped"], ["skipped"]])


def test_a_gate_fails_what_does_not_run_and_where_there_is_nothing_to_hold_against(
    check: Callable[..., Result], folder: Path
) -> None:
    target = DriftingTarget(driver="2")
    target._fault = lambda config: Status.CRASHED
    junit = folder / "check.xml"
    result = check(target, "--fail-on", "slow", "--threshold", "50%", "--junit", str(junit))
    assert result.exit_code == 1
    assert "2 of 2 winners" in result.stderr
    assert 'message="does not run: crashed: as the test wanted"' in junit.read_text()
    none = check(target, "--fail-on", "slow", "--size", "77", "--junit", str(folder / "none.xml"))
    assert (none.exit_code, "no stored winner matches" in none.stderr) == (2, True)
    assert not (folder / "none.xml").exists()
    other = folder / "notes.xml"
    other.write_text("<mine/>")
    assert check(target, "--fail-on", "slow", "--junit", str(other)).exit_code == 2
    assert (other.read_text(), check(target, "--threshold", "2%").exit_code) == ("<mine/>", 2)
    bad = check(target, "--fail-on", "slow", "--threshold", "2")
    assert (bad.exit_code, "write 2% or 0.5%" in bad.stderr) == (2, True)
