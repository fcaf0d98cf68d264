"""benchmarks/measure.py: parts in the time there is, each once, also over several calls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import measure
import suite
from suite_shapes import suite_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path) -> measure.Here:
    return measure.Here(tmp_path, "abc", "NVIDIA H200, 580", "h200", "code")


class Planned:
    """Parts that end with the codes planned for their calls, and note the order of the calls."""

    def __init__(self, **codes: list[int]) -> None:
        self.calls: list[str] = []
        self.parts = [self._part(name, codes[name]) for name in codes]

    def _part(self, name: str, codes: list[int]) -> measure.Part:
        def run(here: measure.Here, seconds: float) -> int:
            self.calls.append(name)
            return codes.pop(0)

        return measure.Part(name, 1, run)


def test_parts_that_are_done_are_not_begun_again(here: measure.Here) -> None:
    planned = Planned(a=[0], b=[measure.GOES_ON, 0], c=[1, 0])
    far = measure.time.monotonic() + 1000
    assert measure.measure(here, planned.parts, far) == measure.GOES_ON
    assert planned.calls == ["a", "b", "c"]
    assert measure.measure(here, planned.parts, far) == 0
    assert planned.calls[3:] == ["b", "c"]
    assert measure.measure(here, planned.parts, far) == 0
    assert planned.calls[5:] == []
    state = json.loads((here.out / "measure_h200.json").read_text())
    assert {name: one["exit"] for name, one in state.items()} == {"a": 0, "b": 0, "c": 0}


def test_what_was_done_for_other_files_is_done_again(here: measure.Here) -> None:
    planned = Planned(a=[0, 0])
    far = measure.time.monotonic() + 1000
    measure.measure(here, planned.parts, far)
    changed = measure.Here(here.out, "abd", here.gpu, here.gpu_label, "changed")
    assert measure.measure(changed, planned.parts, far) == 0
    assert planned.calls == ["a", "a"]


def test_no_part_is_begun_without_time(here: measure.Here) -> None:
    planned = Planned(a=[0])
    assert measure.measure(here, planned.parts, measure.time.monotonic()) == measure.GOES_ON
    assert planned.calls == []


@pytest.mark.parametrize("listens", [True, False])
def test_a_program_ends_when_its_time_is_up(
    here: measure.Here, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setattr(measure, "GRACE_S", 5.0 if listens else 0.2)
    ignore = "" if listens else "signal.signal(signal.SIGINT, signal.SIG_IGN);"
    text = f"import signal, time; {ignore} print('on', flush=True); time.sleep(60)"
    log = here.out / "log"
    began = measure.time.monotonic()
    assert measure.started(here, [sys.executable, "-c", text], 1.0, log) == measure.GOES_ON
    assert measure.time.monotonic() - began < 20
    assert "\non\n" in log.read_text()


def test_gpu_tests_go_on_by_file(here: measure.Here, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))
    ran: list[str] = []

    def started(here: measure.Here, command: list[str], seconds: float, log: Path) -> int:
        ran.append(command[-1])
        log.write_text(
            f"FAILED {command[-1]}::test_x - no\n1 failed, 4 passed, 2 skipped in 7.5s\n"
        )
        return 1 if len(ran) == 1 else 0

    monkeypatch.setattr(measure, "started", started)
    assert measure.gpu_tests(here, 1000.0) == 1
    assert len(ran) == len(files)
    text = (here.out / "gpu_tests_h200.txt").read_text()
    assert f"{4 * len(files)} passed, {len(files)} failed, {2 * len(files)} skipped" in text
    assert f"{ran[0]}::test_x" in text
    # The one that failed, and no other.
    assert measure.gpu_tests(here, 1000.0) == 0
    assert ran[len(files) :] == [ran[0]]
    assert measure.gpu_tests(here, 0.0) == 0


def test_the_recordings_that_ship_are_made_anew_with_what_they_cover(
    here: measure.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def started(here: measure.Here, command: list[str], seconds: float, log: Path) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(measure, "started", started)
    assert measure.recordings(here, 1000.0) == 0
    assert len(commands) == len(measure.list_recordings())
    options = ["--size", "4096", "--layout", "nn", "--family", "sgemm_simt"]
    command = next(one for one in commands if one[2:8] == options)
    fixed = {command[at + 1] for at, word in enumerate(command) if word == "--fix"}
    assert {"BM=64,128", "BN=128,256", "CHAIN_K=0"} <= fixed
    dtypes = [command[command.index("--dtype") + 1] for command in commands]
    assert {"f32", "bf16"} <= set(dtypes)
    outs = [Path(command[command.index("--out") + 1]).name for command in commands]
    assert "gemm_wgmma_h200_4096_nn_bf16.json.gz" in outs
    names = [parameter.name for parameter in measure.load_family("sgemm_simt").parameters]
    assert sorted(one.partition("=")[0] for one in fixed) == sorted(names)


def test_every_part_is_a_call_that_its_script_understands() -> None:
    listed = CliRunner().invoke(measure.main, ["--list"])
    assert [line.split()[0] for line in listed.output.splitlines()] == [
        part.name for part in measure.PARTS
    ]
    assert "no part 'none'" in CliRunner().invoke(measure.main, ["--parts", "none"]).output


def test_every_suite_that_is_a_part_has_shapes(
    here: measure.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def started(here: measure.Here, command: list[str], seconds: float, log: Path) -> int:
        commands.append(command)
        return 0

    monkeypatch.setattr(measure, "started", started)
    names = []
    for part in measure.PARTS:
        before = len(commands)
        if "suite.<locals>" in part.run.__qualname__:
            part.run(here, 100.0)
            (command,) = commands[before:]
            options = suite.main.make_context("suite.py", command[2:]).params
            names.append(suite_of(options).name)
    assert len(names) >= 25
    assert {"epilogue_bias_gelu_bf16_LAYOUT", "suite_i8_LAYOUT", "cube_f16_LAYOUT"} <= {*names}


def test_the_code_that_results_depend_on_has_a_hash() -> None:
    assert measure.code_sha256() == measure.code_sha256()
    tracked = subprocess.run(
        ["git", "ls-files", *measure.CODE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert tracked.returncode != 0 or "autogemm/__init__.py" in tracked.stdout


def test_a_file_of_which_every_test_is_skipped_is_not_done(
    here: measure.Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(here: measure.Here, command: list[str], seconds: float, log: Path) -> int:
        log.write_text("ss\n2 skipped in 0.10s\n")
        return 0

    monkeypatch.setattr(measure, "started", started)
    assert measure.gpu_tests(here, 1000.0) == measure.NOTHING_RAN
    assert "2 skipped NONE PASSED" in (here.out / "gpu_tests_h200.txt").read_text()
