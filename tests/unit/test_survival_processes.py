"""Real processes as a user starts them, and what ends them from outside: one line, then go on."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from postgres_server import USER, PostgresServer, running_server, why_no_server
from store_samples import fill, new_store, ok, source
from waiting import PATIENCE_S, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TUNE = ("--sampler", "exhaustive", "--budget", "none", "--rounds", "2", "--fix", "BM=32")
# --fix BM=32 leaves three tiles, two unrollings, and two values of a parameter without effect.
NUM_TRIALS = 12
AUTOGEMM = (sys.executable, "-m", "autogemm")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}

Limit = Callable[[], None]


def started(
    folder: Path, hold: int, db: str, limit: Limit | None = None
) -> "subprocess.Popen[str]":
    """A run of the tuner that holds its GPU at the ``hold``th config, at none if 0."""

    def begin() -> None:
        # Tests that were started by nohup would hand down that it is ignored.
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        if limit is not None:
            limit()

    command = [sys.executable, str(HERE / "fake_tune.py"), str(folder), str(hold), *TUNE]
    return subprocess.Popen(
        [*command, "--db", db],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=begin,  # noqa: PLW1509
    )


def measured(folder: Path) -> list[str]:
    log = folder / "measured.log"
    return log.read_text().splitlines() if log.exists() else []


def wait_for_the_gpu(process: "subprocess.Popen[str]", folder: Path, num: int) -> None:
    wait_until(lambda: process.poll() is not None or len(measured(folder)) >= num, "GPU is held")
    assert process.poll() is None, process.communicate()


def last_line(process: "subprocess.Popen[str]") -> str:
    """The last line that it says; no traceback is among them."""
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    return err.splitlines()[-1]


def size_of_files(most: int) -> Limit:
    """No file may grow beyond so many bytes, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def configs(path: Path) -> Counter[str]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return Counter(config for (config,) in connection.execute("SELECT config FROM run_trials"))


def test_a_scheduler_that_ends_it_and_a_terminal_that_closes(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    for num, (number, code) in enumerate(((signal.SIGTERM, 143), (signal.SIGHUP, 129)), 1):
        process = started(tmp_path, 3, str(path))
        wait_for_the_gpu(process, tmp_path, 3 * num)
        process.send_signal(number)
        (tmp_path / "go").touch()
        assert last_line(process) == "interrupted; the same command resumes"
        assert process.returncode == code
        (tmp_path / "go").unlink()
        assert set(measured(tmp_path)) == set(measured(tmp_path)[: len(configs(path))])
    process = started(tmp_path, 0, str(path))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "winner:" in out
    found = configs(path)
    assert (len(found), set(found.values())) == (NUM_TRIALS, {1})
    assert max(Counter(measured(tmp_path)).values()) == 1, "a stored trial was measured again"


def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "tune.db"
    process = started(tmp_path, 0, str(path), size_of_files(400_000))
    said = last_line(process)
    assert process.returncode == 1
    assert said.startswith(f"Error: the database {path}")
    before = configs(path)
    assert len(before) < NUM_TRIALS
    process = started(tmp_path, 0, str(path))
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    found = configs(path)
    assert before <= found
    assert (len(found), set(found.values())) == (NUM_TRIALS, {1})


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of which every listing is longer than a pipe is wide."""
    folder = tmp_path_factory.mktemp("full")
    with new_store(folder) as store:
        fill(store)
        run = store.begin_run(store.run(1).spec)
        for number in range(120):
            store.record_trial(
                run, number, ok(1000 + number, 100.0 + number), source(1000 + number)
            )
    return folder / "a.db"


@pytest.mark.parametrize("words", ["db list --trials --csv", "db export -f jsonl"])
def test_a_reader_that_closes_the_pipe(full: Path, words: str) -> None:
    with subprocess.Popen(
        [*AUTOGEMM, *words.split(), "--db", str(full)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_disk(full: Path) -> None:
    with Path("/dev/full").open("w") as nowhere:
        done = subprocess.run(
            [*AUTOGEMM, "db", "list", "--json", "--db", str(full)],
            env=ENVIRONMENT,
            stdout=nowhere,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == "Error: cannot write: No space left on device: make room and try again\n"
    assert done.returncode == 1


def test_an_export_that_does_not_fit_leaves_the_old_file(full: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "all.csv").write_text("mine")
    words = ["db", "export", "-o", str(folder / "all.csv"), "--force", "--db", str(full)]
    done = subprocess.run(
        [*AUTOGEMM, *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=size_of_files(40_000),
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: cannot write {folder}/all.csv: File too large\n"
    assert [path.read_text() for path in folder.iterdir()] == ["mine"]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of its own, because it is stopped; it writes to the disk before it says so."""
    if missing := why_no_server():
        pytest.skip(missing)
    with running_server() as server:
        yield server


def test_a_server_that_is_stopped_at_once_and_started_again(
    server: PostgresServer, tmp_path: Path
) -> None:
    url = server.new_database()

    def stored() -> list[str]:
        with psycopg.connect(host=str(server.folder), user=USER, dbname="test_0") as connection:
            rows = connection.execute("SELECT config::text FROM run_trials ORDER BY id").fetchall()
        return [str(config) for (config,) in rows]

    process = started(tmp_path, 4, url)
    wait_for_the_gpu(process, tmp_path, 4)
    wait_until(lambda: len(stored()) >= 3, "what was measured is stored")
    before = stored()
    server.stop_immediately()
    (tmp_path / "go").touch()
    said = last_line(process)
    assert process.returncode == 1
    assert said.startswith("Error: the database postgresql+psycopg://autogemm@/")
    process = started(tmp_path, 0, url)
    assert last_line(process).startswith("Error: the database postgresql+psycopg://autogemm@/")
    assert process.returncode == 1
    server.start_again()
    assert stored()[: len(before)] == before, "a stored trial was lost"
    process = started(tmp_path, 0, url)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    found = Counter(stored())
    assert (len(found), set(found.values())) == (NUM_TRIALS, {1})
