"""An export that is interrupted or runs out of disk leaves the file as it was, and nothing else."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from store_samples import CERTIFICATE, fill, new_store

import autogemm.store
from autogemm.cli import main


@pytest.fixture
def database(tmp_path: Path) -> str:
    with new_store(tmp_path) as store:
        fill(store)
    return str(tmp_path / "a.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "best.json").write_text("mine")
    return folder


def export(database: str, folder: Path) -> Result:
    arguments = ["export", str(folder / "best.json"), "--format", "json", "--force"]
    return CliRunner().invoke(main, [*arguments, "--run", "1", "--db", database])


def raising(error: BaseException) -> Callable[..., Any]:
    def replacement(*_: object, **__: object) -> None:
        raise error

    return replacement


@pytest.mark.parametrize(
    "place",
    ["pathlib.Path.write_bytes", "pathlib.Path.replace", "autogemm.cli.export.run.export_json"],
)
def test_ctrl_c_leaves_the_old_file(
    database: str, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(place, raising(KeyboardInterrupt()))
    result = export(database, folder)
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"
    assert [path.name for path in folder.iterdir()] == ["best.json"]
    assert (folder / "best.json").read_text() == "mine"


def test_ctrl_c_while_the_database_is_read(
    database: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autogemm.store.Store, "stored_kernel", raising(KeyboardInterrupt()))
    result = export(database, folder)
    assert (result.exit_code, result.stderr) == (130, "interrupted\n")
    assert (folder / "best.json").read_text() == "mine"


@pytest.mark.parametrize("place", ["pathlib.Path.write_bytes", "pathlib.Path.replace"])
def test_a_full_disk_leaves_the_old_file(
    database: str, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(place, raising(OSError(errno.ENOSPC, "No space left on device")))
    result = export(database, folder)
    assert result.exit_code == 1
    assert "best.json: No space left on device" in result.stderr
    assert "Traceback" not in result.stderr
    assert [path.name for path in folder.iterdir()] == ["best.json"]
    assert (folder / "best.json").read_text() == "mine"


def test_without_faults_it_is_written_with_its_certificate(database: str, folder: Path) -> None:
    result = export(database, folder)
    assert result.exit_code == 0, result.stderr
    text = (folder / "best.json").read_text()
    assert '"verdict": "passed"' in text
    assert CERTIFICATE.checks[1].what in text
