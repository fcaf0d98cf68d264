"""tune --gpu all with real worker processes and fake GPUs: results, and deaths in the middle."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import fake_cluster
import pytest
from click.testing import CliRunner
from fake_target import NUM_KERNELS, NUM_LEGAL
from waiting import PATIENCE_S, has_ended, wait_until

from autogemm.cli import main
from autogemm.store import RunState, open_store
from autogemm.targets import choose

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SIZES = (128, 512, 2048)
ASKED = [
    *("--sampler", "exhaustive", "--budget", "none", "--rounds", "2"),
    *(word for size in SIZES for word in ("--size", f"{size}x512x256")),
]


def environment(folder: Path, gpus: int) -> dict[str, str]:
    """The variables that give Dask's workers fake GPUs."""
    paths = (ROOT, ROOT / "tests", HERE)
    return {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "DASK_DISTRIBUTED__WORKER__PRELOAD": "['fake_cluster']",
        fake_cluster.FOLDER: str(folder),
        fake_cluster.GPUS: str(gpus),
    }


class Run:
    """The program in a process group of its own, as a terminal starts it."""

    def __init__(self, folder: Path, gpus: int, *arguments: str) -> None:
        self._folder = folder
        words = [str(folder), str(gpus), "--db", str(folder / "t.db"), *ASKED, *arguments]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_cluster.py"), *words],
            env=os.environ | environment(folder, gpus),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, gpu: int, count: int) -> int:
        """Wait until a GPU has begun its config of that number; the process that did."""
        wait_until(
            lambda: self.has_ended or len(self._of(gpu)) >= count,
            f"GPU {gpu} begins {count} configs",
        )
        assert not self.has_ended, self.process.communicate()
        return int(self._of(gpu)[-1].split()[1])

    @property
    def has_ended(self) -> bool:
        """Whether the program has ended."""
        return self.process.poll() is not None

    def interrupt(self) -> None:
        """Send what Ctrl-C at a terminal sends: to the program and to all that it started."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """The exit code and what was printed."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.returncode, out, err

    def _of(self, gpu: int) -> list[str]:
        return [line for line in measured(self._folder) if line.startswith(f"{gpu} ")]


def measured(folder: Path) -> list[str]:
    """Each config that was begun: GPU, process, problem, config."""
    log = folder / "measured.log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder: Path) -> Counter[int]:
    """How many trials each problem has, by M."""
    asked = (
        "SELECT p.m FROM run_trials t JOIN runs r ON r.id = t.run_id "
        "JOIN problems p ON p.id = r.problem_id"
    )
    with closing(sqlite3.connect(folder / "t.db")) as connection:
        return Counter(m for (m,) in connection.execute(asked))


def times_begun(folder: Path) -> Counter[str]:
    """How many times each kernel of a problem was begun."""
    return Counter(" ".join(line.split()[2:]) for line in measured(folder))


def test_kill_9_of_a_worker_costs_the_candidate_on_its_gpu(tmp_path: Path) -> None:
    (tmp_path / "hold-0").write_text("9")
    run = Run(tmp_path, 2, "--gpu", "all", "--json")
    worker = run.wait_for(0, 9)
    os.kill(worker, signal.SIGKILL)
    (tmp_path / "go").touch()
    code, out, err = run.end()
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    assert [one["size"] for one in found["problems"]] == [f"{m}x512x256" for m in SIZES]
    assert all(one["ratio"] for one in found["problems"])
    assert stored(tmp_path) == dict.fromkeys(SIZES, NUM_LEGAL)
    assert sum(times_begun(tmp_path).values()) - len(times_begun(tmp_path)) <= 1
    assert err.count("tuning ") == len(SIZES)
    assert "Traceback" not in err
    assert not (tmp_path / "t.db.parts").exists()


def test_kill_9_of_one_of_four_workers_that_write_to_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:
    (tmp_path / "hold-0").write_text("9")
    words = ("--gpu", "all", "--json", "--fix", "ECHO=0", "--size", "1024x512x256")
    run = Run(tmp_path, 4, *words, "--db", postgres_url)
    worker = run.wait_for(0, 9)
    # A kernel that is measured and not stored would be measured again, too.
    problem = int(next(one for one in measured(tmp_path) if one.startswith("0 ")).split()[2])

    def trials() -> dict[int, int]:
        with open_store(postgres_url) as store:
            return {row.spec.problem.m: row.num_trials for row in store.runs()}

    wait_until(lambda: trials().get(problem, 0) >= 8, "what was measured is stored")
    os.kill(worker, signal.SIGKILL)
    (tmp_path / "go").touch()
    code, out, err = run.end()
    assert code == 0, err
    assert "Traceback" not in err
    sizes = {*SIZES, 1024}
    found = json.loads(out)["problems"]
    assert {one["size"] for one in found} == {f"{m}x512x256" for m in sizes}
    assert all(one["ratio"] for one in found)
    with open_store(postgres_url) as store:
        rows = store.runs()
    # A run for each problem: another worker went on with that of the one that was killed.
    assert {row.spec.problem.m: row.num_trials for row in rows} == dict.fromkeys(sizes, NUM_KERNELS)
    assert {row.state for row in rows} == {RunState.FINISHED}
    assert len(rows) == len(sizes)
    begun = times_begun(tmp_path)
    assert len(begun) == len(sizes) * NUM_KERNELS
    assert begun.total() <= len(begun) + 1
    assert len({line.split()[1] for line in measured(tmp_path)}) >= 4


def test_ctrl_c_ends_all_and_one_gpu_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hold-0").write_text("5")
    run = Run(tmp_path, 1, "--gpu", "all")
    worker = run.wait_for(0, 5)
    run.interrupt()
    wait_until(lambda: run.has_ended or (tmp_path / "pressed").exists(), "the worker is told")
    (tmp_path / "go").touch()
    code, _, err = run.end()
    assert "Traceback" not in err
    assert (code, err.strip().splitlines()[-1]) == (130, "interrupted; the same command resumes")
    assert has_ended(worker)
    begun, kept = times_begun(tmp_path), stored(tmp_path)
    assert set(kept) == {max(SIZES)}, "the longest is the first"
    assert 5 <= kept[max(SIZES)] < NUM_LEGAL

    # With one GPU, in this process.
    (tmp_path / "hold-0").unlink()
    monkeypatch.setattr(choose, "GPU_TARGETS", {})
    monkeypatch.setenv(fake_cluster.FOLDER, str(tmp_path))
    monkeypatch.setenv(fake_cluster.GPUS, "1")
    fake_cluster.attach()
    words = ["--no-certify", "--family", str(tmp_path / "tiny"), "--db", str(tmp_path / "t.db")]
    again = CliRunner().invoke(main, ["tune", *words, *ASKED, "--json"])
    assert again.exit_code == 0, again.output
    assert stored(tmp_path) == dict.fromkeys(SIZES, NUM_LEGAL)
    assert max(times_begun(tmp_path).values()) == 1, "what was stored was measured again"
    assert begun.keys() < times_begun(tmp_path).keys()


@contextmanager
def started_by_hand(folder: Path, threads: int) -> Iterator[tuple[Popen[bytes], Popen[bytes], str]]:
    """A scheduler, a worker with one fake GPU, and the file that says where they are."""
    file = folder / "scheduler.json"
    shared = os.environ | environment(folder, 1)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    command += ["--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(file)]
    scheduler = Popen(command, env=shared, **quiet)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard"]
    command += ["--nthreads", str(threads), "--scheduler-file", str(file), "--local-directory"]
    command += [str(folder / "worker")]
    worker = Popen(command, env=shared, **quiet)
    try:
        wait_until(file.exists, "the scheduler says where it is")
        yield scheduler, worker, str(file)
    finally:
        for process in (scheduler, worker):
            process.kill()
            process.wait()


def test_a_scheduler_that_dies_ends_it_in_one_line(tmp_path: Path) -> None:
    # In its second problem.
    hold = NUM_KERNELS + 8
    (tmp_path / "hold-0").write_text(str(hold))
    with started_by_hand(tmp_path, 1) as (scheduler, worker, file):
        run = Run(tmp_path, 1, "--scheduler-file", file)
        assert run.wait_for(0, hold) == worker.pid
        wait_until(lambda: stored(tmp_path), "the first problem is stored")
        scheduler.kill()
        code, _, err = run.end()
    assert code == 1
    assert "the scheduler of the workers is gone; problems left: 2 of 3" in err.splitlines()[-1]
    assert stored(tmp_path) == {max(SIZES): NUM_LEGAL}
    assert "Traceback" not in err


def test_a_worker_does_not_begin_with_the_next_problem_of_a_program_that_died(
    tmp_path: Path,
) -> None:
    (tmp_path / "hold-0").write_text("8")
    with started_by_hand(tmp_path, 2) as (_, _, file):
        run = Run(tmp_path, 1, "--scheduler-file", file)
        run.wait_for(0, 8)
        run.process.kill()
        run.end()
        # The scheduler notices it by the connection that ends.
        time.sleep(1.0)
        (tmp_path / "go").touch()
        code, _, err = Run(tmp_path, 1, "--scheduler-file", file).end()
    assert (code, "Traceback" in err) == (0, False)
    assert stored(tmp_path) == dict.fromkeys(SIZES, NUM_LEGAL)
    begun = {line: count for line, count in times_begun(tmp_path).items() if "2048 " not in line}
    assert len(begun) == NUM_KERNELS * 2
    assert max(begun.values()) == 1
