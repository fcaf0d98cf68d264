"""benchmarks/record.py on a GPU that is none: a recording of every config, also in two calls."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from export_samples import stored_kernel
from fake_target import NUM_LEGAL, PROBLEM, FakeCompiler, FakeTarget, tiny_family

from autogemm.codegen import render
from autogemm.formats import SHORT_SHA256, Recording, read_recording
from autogemm.model.config import Config
from autogemm.model.results.stored import TimedText
from autogemm.targets.recorded import timed_text

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import record


def test_the_command_that_is_kept_names_no_folder_of_the_machine() -> None:
    words = ["/home/somebody/x/benchmarks/record.py", "--size", "512", "--out", "/tmp/a/b.json.gz"]
    shown = "python benchmarks/record.py --size 512 --out b.json.gz"
    assert record.shown_command([*words, "--state", "/tmp/s.db"]) == f"{shown} --state s.db"


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    made = FakeTarget()
    monkeypatch.setattr(record, "CudaTarget", lambda index: made)
    monkeypatch.setattr(record, "Compiler", FakeCompiler)
    return made


def call(folder: Path, *arguments: str) -> Result:
    tiny_family(folder / "tiny")
    given = ["--family", str(folder / "tiny"), "--size", "1024", "--rounds", "6"]
    given += ["--out", str(folder / "out.json.gz"), "--commit", "abc"]
    return CliRunner().invoke(record.main, [*given, *arguments])


def test_every_config_is_recorded_with_the_hash_of_its_text(
    tmp_path: Path, target: FakeTarget
) -> None:
    stopped = call(tmp_path, "--limit-seconds", "0.000001")
    assert "the same command goes on" in str(stopped.exception)
    done = call(tmp_path)
    assert done.exit_code == 0, (done.output, done.exception)
    assert len(set(target.measured)) == len(target.measured) <= NUM_LEGAL
    recording = read_recording(tmp_path / "out.json.gz")
    assert recording.complete
    assert len(recording) == NUM_LEGAL
    family = tiny_family(tmp_path / "tiny")
    assert recording.kernel_sha256 is not None
    for row, known in enumerate(recording.kernel_sha256):
        source = render(family, config_of(recording, row), PROBLEM)
        assert source.sha256[:SHORT_SHA256] == known
    kernel = stored_kernel(family, PROBLEM, config_of(recording, 0))
    assert timed_text(kernel, family, tmp_path) is TimedText.THIS


def config_of(recording: Recording, row: int) -> Config:
    return Config.of("tiny", recording.values(row))
