"""``autogemm cache``: sizes by kind, clearing, and a limit beyond which the oldest goes first."""

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autogemm.cli import main
from autogemm.support import disk_cache

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three files of 1000 bytes: used three days, two days and a minute ago."""
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path))
    now = time.time()
    for name, age_s in (("cubins/old", 3 * DAY_S), ("emulator/mid", 2 * DAY_S), ("cubins/new", 60)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (now - age_s, now - age_s))
    (tmp_path / "mine.txt").write_text("no file of the cache's")
    return tmp_path


def cache(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cache", *arguments], prog_name="autogemm")


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("**/*") if path.is_file()} - {"mine.txt", "limit"}


def test_size_by_kind_and_limit(folder: Path) -> None:
    shown = cache().stdout
    assert shown == cache("size").stdout
    assert any(line.split()[0] == "cubins" and "2.0 kB" in line for line in shown.splitlines())
    assert f"2.9 kB in {folder}; limit: 2.0 GB" in shown
    rows = {row["kind"]: row for row in json.loads(cache("size", "--json").stdout)}
    assert (rows["cubins"]["num_files"], rows["cubins"]["num_bytes"]) == (2, 2000)
    assert rows["failed"]["num_bytes"] == 0


def test_clear_one_kind_then_all(folder: Path) -> None:
    assert cache("clear", "emulator").stdout == "deleted 1 file, 1000 bytes\n"
    assert left(folder) == {"old", "new"}
    refused = cache("clear", "cubin")
    assert refused.exit_code == 2
    assert "known: cubins, emulator" in refused.stderr
    cache("clear")
    assert left(folder) == set()
    assert (folder / "mine.txt").exists()


def test_beyond_the_limit_the_longest_unused_goes_first_and_the_newest_stays(folder: Path) -> None:
    assert cache("limit", "2.5kB").stdout == "limit: 2.5 kB; deleted 1 file, 1000 bytes\n"
    assert left(folder) == {"mid", "new"}
    assert cache("limit").stdout == "2.5 kB\n"
    # Kept for later calls, which trim as they begin.
    (folder / "limit").write_text("1kB")
    assert disk_cache.trim(folder).num_files == 1
    # Used within the last hour: another process may be at it.
    assert left(folder) == {"new"}


def test_a_folder_that_another_process_deletes_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = folder / "emulator" / "building"
    passing.mkdir()
    listing = os.scandir

    def after_its_end(path: str | Path) -> object:
        if Path(path) == passing:
            passing.rmdir()
        return listing(path)

    monkeypatch.setattr(os, "scandir", after_its_end)
    disk_cache.set_limit(folder, "2500")
    assert disk_cache.trim(folder).num_files == 1
    assert not passing.exists()


def test_the_environment_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache("limit", "1kB")
    monkeypatch.setenv("AUTOGEMM_CACHE_LIMIT", "none")
    assert disk_cache.limit_bytes(folder) is None
    assert cache("limit").stdout == "none\n"
    monkeypatch.setenv("AUTOGEMM_CACHE_LIMIT", "much")
    result = cache("limit")
    assert result.exit_code == 2
    assert "'much' is not a size: write 500MB or 2GB" in result.stderr
    assert cache("limit", "-3GB").exit_code == 2


def test_a_folder_that_is_not_there_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOGEMM_CACHE", str(tmp_path / "none"))
    assert "0 bytes in" in cache().stdout
    assert not (tmp_path / "none").exists()
