"""`autogemm tune` as it is typed: options, errors, and what is printed."""

import csv
import io
import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from fake_gpus import attach
from fake_target import NUM_LEGAL, FakeTarget, tiny_family, tiny_recording

import autogemm.tuning.opening
import autogemm.tuning.tuner
from autogemm.cli import main
from autogemm.cli.options import MatrixOptions, seconds
from autogemm.cli.tune.command import tune as tune_command
from autogemm.compile import Compiler
from autogemm.formats import write_recording
from autogemm.model.problem import Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.model.results.outcome import CacheState, Fill, Status
from autogemm.search import SAMPLERS
from autogemm.store import open_store
from autogemm.support.errors import CompilerMissingError
from autogemm.targets import Chosen, MeasureOptions
from autogemm.tuning import Certifier, TuneOptions


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOGEMM_DB", str(tmp_path / "tune.db"))
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "cache"))
    # The tiny family computes nothing; test_tuning_certify.py has the checks themselves.
    passed = Check("gpu", Verdict.PASSED, "as the test wanted", "a fake")
    monkeypatch.setattr(Certifier, "_steps", lambda *_: iter([(passed,)]))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    attach(monkeypatch)


@pytest.fixture
def family(tmp_path: Path) -> str:
    return str(tiny_family(tmp_path / "tiny").yaml_path.parent)


@pytest.fixture
def recording(tmp_path: Path, family: str) -> Path:
    path = tmp_path / "one.json.gz"
    write_recording(tiny_recording(tiny_family(Path(family))), path)
    return path


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    target = FakeTarget()
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
    return target


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["tune", *map(str, arguments)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1.5h", 5400.0),
        ("45", 45.0),
        (" 2 M ", 120.0),
        ("none", None),
    ],
)
def test_times(text: str, expected: float | None) -> None:
    context = click.Context(tune_command)
    assert seconds(context, tune_command.params[0], text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "-5s", "soon", "1d", "1e3", "2m30s", "nan", "inf"])
def test_what_is_no_time(family: str, text: str) -> None:
    result = invoke("--family", family, "--budget", text)
    assert result.exit_code == 2
    assert "is not a time: write 90s, 2m, 1h or none" in result.output


def test_defaults_agree_with_the_library() -> None:
    own = ("db", "quiet", "cross", "as_json", "as_csv", "sizes", "preset", "problems_file")
    own += ("rounds_file", "scheduler", "scheduler_file", "compilers", "total_s")
    matrix = [field.name for field in fields(MatrixOptions)]
    # A command keeps the settings of its first context, -h among them.
    parent = click.Context(main, **main.context_settings)
    parsed = tune_command.make_context("tune", [], parent=parent).params
    assert TuneOptions(**{k: v for k, v in parsed.items() if k not in (*own, *matrix)}) == (
        TuneOptions()
    )
    text = " ".join(invoke("-h").output.split())
    for name in SAMPLERS:
        assert name in text


def test_a_run_on_a_gpu(family: str, fake_gpu: FakeTarget) -> None:
    result = invoke("--family", family, "--size", "1024", "--sampler", "random", "--budget", "none")
    assert result.exit_code == 0, result.output
    assert f"{NUM_LEGAL} legal of" in result.stderr
    assert "about 1.111 x cuBLAS" in result.stderr
    assert "finals: 8 candidates and cuBLAS, 30 rounds" in result.stderr
    assert "\x1b" not in result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "1024 nn f32 on NVIDIA H100 80GB HBM3: finals, 30 interleaved rounds"
    assert any("cuBLAS" in line and "100" in line for line in lines)
    (winner,) = [line for line in lines if line.startswith("winner:")]
    assert winner.startswith("winner: seed 0 of tiny with BN=64 (was 32), U=4 (was 1)")
    assert "1.111 x cuBLAS (1.100..1.122)" in result.stdout
    assert "largest error 0.1 of its bound, relative Frobenius 2e-06; cuBLAS:" in result.stdout
    assert "recorded" not in result.output
    assert "wrong: " not in result.stdout
    assert "stored: run 1 in" in result.stdout
    assert "next: autogemm export best.cu --run 1" in result.stdout
    assert fake_gpu.closed


def test_a_legal_config_with_a_wrong_result_is_named(
    family: str, fake_gpu: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        fake_gpu, "_fault", lambda one: Status.WRONG_RESULT if one["U"] == 4 else None
    )
    result = invoke("--family", family, "--size", "1024", "--budget", "none")
    assert result.exit_code == 0, result.output
    named = [line for line in result.stdout.splitlines() if line.startswith("  wrong: ")]
    assert len(named) == 3
    assert all("U=4" in line and line.endswith(": as the test wanted") for line in named)
    assert "autogemm db list --trials --run 1 --status wrong_result" in result.stdout
    # Of many problems each that has some is named, and they are counted in JSON.
    sizes = ("--family", family, "--size", "1024", "--size", "512", "--budget", "none", "--fresh")
    swept = invoke(*sizes)
    assert swept.exit_code == 0, swept.output
    (line,) = [one for one in swept.stdout.splitlines() if one.startswith("512 nn f32: a defect")]
    assert line.endswith("autogemm db list --trials --run 3 --status wrong_result")
    problems = json.loads(invoke(*sizes, "--json").stdout)["problems"]
    assert [one["num_wrong"] for one in problems] == [16, 16]
    assert "which cost 16 candidates" in result.stdout and "which cost 16 candidates" in line


def test_the_extremes_of_few_rounds_are_not_called_95_percent(
    family: str, fake_gpu: FakeTarget
) -> None:
    few = ("--family", family, "--size", "1024", "--trials", 5, "--rounds")
    said = "intervals are the extremes of 3 rounds: they contain the true ratio with 75 %, not 95 %"
    assert said in invoke(*few, 3).stdout
    assert "intervals are" not in invoke(*few, 6, "--fresh").stdout
    for rounds, confidence in ((3, 0.75), (5, 0.9375), (6, 0.95)):
        facts = json.loads(invoke(*few, rounds, "--fresh", "--json").stdout)
        assert facts["finals"]["confidence"] == confidence


def test_json_is_the_only_thing_on_stdout(family: str, fake_gpu: FakeTarget) -> None:
    result = invoke("--family", family, "--size", "1024", "--trials", 20, "--json")
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    assert facts["num_trials"] == 20
    assert facts["provenance"] == "measured"
    assert facts["finals"]["baseline"]["time_us"] == 100.0
    assert facts["finals"]["entries"][0]["ratio"] >= facts["finals"]["entries"][1]["ratio"]
    assert facts["best"]["time_us"] == facts["finals"]["entries"][0]["time_us"]
    assert facts["counts"] == {"ok": 20}


def test_csv_has_a_row_for_each_finalist_and_the_baseline(
    family: str, fake_gpu: FakeTarget
) -> None:
    asked = ("--family", family, "--size", "1024", "--trials", 20, "--finalists", 3, "--fresh")
    result = invoke(*asked, "--csv")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["place"] for row in rows] == ["1", "2", "3", ""]
    facts = json.loads(invoke(*asked, "--json").stdout)
    finals = facts["finals"]
    for row, entry in zip(rows, [*finals["entries"], finals["baseline"]], strict=True):
        # Every figure of the JSON is there, with the same name and in full precision.
        assert entry.keys() < row.keys()
        assert float(row["time_us"]) == entry["time_us"]
        assert float(row["ratio"]) == entry["ratio"]
        assert (json.loads(row["config"]) if row["config"] else None) == entry["config"]
        assert row["kernel_sha256"] == entry["kernel_sha256"]
        assert (row["gpu"], row["m"], row["provenance"]) == (facts["gpu"], "1024", "measured")
        assert (row["rounds"], row["confidence"]) == ("30", "0.95")
    assert (rows[-1]["name"], rows[-1]["ratio"]) == ("cuBLAS", "1.0")


def test_json_and_csv_exclude_each_other_before_anything_runs(
    family: str, fake_gpu: FakeTarget
) -> None:
    result = invoke("--family", family, "--size", "1024", "--json", "--csv")
    assert result.exit_code == 2
    assert "choose one" in result.stderr
    assert not fake_gpu.measured


def test_how_kernels_are_timed_is_passed_on_and_stored(
    family: str, fake_gpu: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[MeasureOptions] = []
    monkeypatch.setattr(
        fake_gpu, "prepare", lambda problem, options: prepared.append(options), raising=True
    )
    arguments = ("--family", family, "--size", "1024", "--trials", 3, "--l2", "rotate")
    assert invoke(*arguments, "--fill", "normal").exit_code == 0
    (options,) = prepared
    assert (options.l2, options.fill) == (CacheState.ROTATE, Fill.NORMAL)
    with open_store() as store:
        (run,) = store.runs()
    assert (run.spec.l2, run.spec.fill) == (CacheState.ROTATE, Fill.NORMAL)
    refused = invoke(*arguments, "--fill", "ones")
    assert refused.exit_code == 2
    assert "'ones' is not one of 'uniform', 'normal', 'integers', 'zeros'" in refused.stderr


@pytest.mark.parametrize("flags", [(), ("--no-prune",)])
def test_pruned_candidates_are_counted(
    family: str, fake_gpu: FakeTarget, flags: tuple[str, ...]
) -> None:
    # One block: 131 of 132 SMs idle.
    yaml = Path(family) / "tiny.yaml"
    yaml.write_text(yaml.read_text().replace("ceil_div(M, BM) * ceil_div(N, BN)", "1"))
    result = invoke("--family", family, "--size", "1024", *flags)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("search:")]
    match = re.search(r"(\d+) pruned.*: (\d+) ok, (\d+) rejected", line)
    if flags:
        assert match is None
        assert f"{NUM_LEGAL} ok" in line
    else:
        assert match is not None
        assert match[1] == match[3]
        assert int(match[2]) + int(match[3]) == NUM_LEGAL


def test_quiet_says_nothing_on_the_way(family: str, fake_gpu: FakeTarget) -> None:
    result = invoke("--family", family, "--size", "1024", "--trials", 5, "-q")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "winner:" in result.stdout


def test_the_live_display_on_a_terminal(
    family: str, fake_gpu: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = invoke("--family", family, "--size", "1024", "--trials", 10)
    assert result.exit_code == 0, result.output
    assert f"{NUM_LEGAL} legal of" in result.stderr
    assert "\x1b[?25h" in result.stderr, "the cursor is shown again"
    assert "winner:" in result.stdout


def test_the_next_command_names_a_database_that_was_typed(
    family: str, fake_gpu: FakeTarget, tmp_path: Path
) -> None:
    path = tmp_path / "my own.db"
    arguments = ("--family", family, "--size", 1024, "--trials", 5, "--db", path)
    result = invoke(*arguments)
    assert f"next: autogemm export best.cu --run 1 --db '{path}'" in result.stdout
    assert path.exists()


def test_no_candidate_that_works(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(lambda config: Status.CRASHED)
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: Chosen(target))
    result = invoke("--family", family, "--size", "1024", "--trials", 5)
    assert result.exit_code == 1
    assert "no candidate ran correctly: 5 crashed; first crashed: as the test wanted" in (
        result.stderr
    )
    assert "next:" not in result.stdout


def test_auto_without_a_gpu_says_so_once_and_marks_everything(
    family: str, recording: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "autogemm.targets.recorded.target.recording_folder"
    monkeypatch.setattr(folder, lambda: recording.parent)
    result = invoke("--family", family, "--size", "1024", "--trials", 30)
    assert result.exit_code == 0, result.output
    first, *rest = result.stderr.splitlines()
    assert first == (
        "no GPU: no driver is loaded; using the recording of Recorded GPU: "
        "every time below is recorded, not measured here"
    )
    assert not any("no GPU" in line for line in rest)
    assert all("(recorded)" in line for line in rest if "TFLOP/s" in line)
    assert "on Recorded GPU: finals, recorded" in result.stdout
    assert "; recorded on Recorded GPU" in result.stdout
    with open_store() as store:
        assert [row.provenance for row in store.best()] == ["recorded"]


def test_a_recording_by_name(family: str, recording: Path) -> None:
    arguments = ("--family", family, "--gpu", f"recorded:{recording}", "--size", "1024", "--json")
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    assert "using the recording of one.json.gz, Recorded GPU" in result.stderr
    facts = json.loads(result.stdout)
    assert facts["provenance"] == "recorded"
    assert facts["gpu"] == "Recorded GPU"
    winner = facts["finals"]["entries"][0]
    assert winner["ratio"] > 1
    assert winner["ratio_low"] is winner["ratio_high"] is None


def test_a_command_with_a_name_that_is_no_utf8_is_kept(
    family: str, fake_gpu: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["autogemm", "tune", "caf\udce9.txt"])
    assert invoke("--family", family, "--size", "1024", "--trials", "3").exit_code == 0
    with open_store(create=False) as store:
        assert store.runs()[0].spec.command == r"autogemm tune 'caf\udce9.txt'"


def test_what_a_recording_does_not_hold_is_not_made_up(family: str, recording: Path) -> None:
    arguments = ("--family", family, "--size", "1024", "--gpu", f"recorded:{recording}")
    assert invoke(*arguments, "--trials", "5").exit_code == 0

    def asked(*words: str) -> Any:
        return json.loads(CliRunner().invoke(main, ["db", *words, "--json"]).stdout)

    (best,) = asked("best")
    assert best["ratio"] > 0
    assert best["ratio_low"] is best["ratio_high"] is None
    (trial,) = asked("show", "trial:1")
    assert trial["max_error_ratio"] > 0
    assert trial["max_abs_error"] is None
    export = ("export", "--family", family, "--format", "json", "--no-verify", "-")
    exported = json.loads(CliRunner().invoke(main, export).stdout)
    assert exported["measurement"]["ratio_low"] is None


def test_a_replay_compiles_nothing(
    family: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Compiling(FakeTarget):
        def compiler(self) -> Compiler:
            return Compiler()

    def missing(*_: object) -> None:
        raise CompilerMissingError("NVRTC is not installed: pip install autogemm")

    monkeypatch.setattr(Compiler, "__init__", missing)
    arguments = ("--family", family, "--size", "1024", "--trials", "5")
    result = invoke(*arguments, "--gpu", f"recorded:{recording}")
    assert result.exit_code == 0, result.output
    assert "NVRTC" not in result.output
    target = Chosen(Compiling())
    monkeypatch.setattr(autogemm.tuning.opening, "choose_target", lambda *_: target)
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert "Error: NVRTC is not installed" in result.stderr


ERRORS = [
    (("--require-gpu",), 1, "no GPU: no driver is loaded; --gpu recorded replays"),
    (("--gpu", "rtx9999"), 2, "no attached GPU is 'rtx9999'; attached: none (no driver is loaded"),
    (("--gpu", "3"), 2, "no attached GPU is '3'"),
    (("--gpu", ""), 2, "no attached GPU is ''"),
    (("--gpu", "recorded", "--require-gpu"), 2, "exclude each other"),
    (("--gpu", "recorded:/nowhere/x.json.gz"), 2, "no such recording: /nowhere/x.json.gz"),
    (("--gpu", "recorded:{recording}", "--size", "2048"), 2, "no recording holds 2048 nn f32"),
    (("--gpu", "recorded:{family}/tiny.yaml"), 1, "broken recording"),
    (("--sampler", "magic"), 2, "unknown sampler 'magic'; known: surrogate, random"),
    (("--size", "0"), 2, "M must be from 1"),
    (("--size", "-5"), 2, "-5"),
    (("--size", "4096x"), 2, "a size is one positive integer"),
    (("--trials", "0"), 2, "--trials"),
    (("--fix", "BX=1"), 2, "BX"),
    (("--family", "/nowhere"), 2, "/nowhere"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), ERRORS, ids=[str(e[0]) for e in ERRORS])
def test_errors_are_one_line(  # noqa: PLR0917
    family: str,
    recording: Path,
    no_gpu: None,
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    places = {"family": family, "recording": recording}
    filled = [argument.format(**places) for argument in arguments]
    database = Path(os.environ["AUTOGEMM_DB"])
    result = invoke("--family", family, "--trials", 3, *filled)
    assert result.exit_code == code, result.output
    assert not database.exists(), "a call that tunes nothing leaves no database behind"
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error:")]
    assert message in line
    assert "Traceback" not in result.output


def test_the_held_sizes_are_named(family: str, recording: Path, tmp_path: Path) -> None:
    folder = tmp_path / "held"
    folder.mkdir()
    other = tiny_recording(tiny_family(Path(family)), problem=Problem(64, 64, 64))
    for name, content in (("a", recording.read_bytes()),):
        (folder / f"{name}.json.gz").write_bytes(content)
    write_recording(other, folder / "b.json.gz")
    result = invoke("--family", family, "--gpu", f"recorded:{folder}", "--size", "2048")
    assert result.exit_code == 2
    assert "recorded: 1024 nn f32, 64 nn f32 (tiny, Recorded GPU)" in result.stderr


def test_names_in_files_are_not_markup(family: str, tmp_path: Path) -> None:
    odd = "[red]GPU[/nonsense]"
    base = tiny_recording(tiny_family(Path(family)))
    device = dict(base.model_dump()["source"]["device"], name=odd)
    source = base.source.model_dump() | {"device": device}
    path = tmp_path / "odd.json.gz"
    write_recording(tiny_recording(tiny_family(Path(family)), source=source), path)
    result = invoke("--family", family, "--gpu", f"recorded:{path}", "--size", 1024, "--trials", 3)
    assert result.exit_code == 0, result.output
    assert odd in result.stdout
