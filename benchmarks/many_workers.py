"""Shows what 64 workers and 10,000 problems cost, with one PostgreSQL server and SIMULATED GPUs.

    python benchmarks/many_workers.py --out OUT

Everything but the GPUs is real: `autogemm tune --scheduler-file` with Dask's scheduler, a process
for each worker, and a PostgreSQL server of its own with the settings that it ships with. A
simulated GPU (`tests/unit/fake_cluster.py`) takes ``--delay`` seconds for each config, 0 by
default, so that the processor is what limits; compilation is simulated, too. Each problem has
``--trials`` kernels and finals of 30 rounds. OUT/many_workers_simulated.json has the figures:

- problems a minute, of all and for each tenth of them: a database that grows may slow them down;
- seconds of processor time for each problem: of the parent, Dask's scheduler, the workers and the
  server, from which follows how many problems a second each of them could serve;
- transactions a second, connections, size and slowest statements of the database;
- memory of the parent, after each tenth.
"""

import argparse
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autogemm.model.problem import Problem
from autogemm.store import open_store

ROOT = Path(__file__).resolve().parents[1]
PATHS = (str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "unit"))
sys.path[:0] = PATHS

LOOK_EVERY_S = 1.0
TENTHS = 10
SETTINGS = ("shared_preload_libraries=pg_stat_statements", "track_io_timing=on")
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=16, help="for each problem, 16 at most")
    parser.add_argument("--seconds", type=float, default=7200.0, help="then it ends as by Ctrl-C")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that a config takes")
    parser.add_argument("--name", default="many_workers_simulated.json")
    parser.add_argument("--max-connections", type=int, default=200, help="of the server")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    server: Any = import_module("postgres_server")
    with (
        tempfile.TemporaryDirectory() as place,
        server.running_server(*SETTINGS, f"max_connections={asked.max_connections}") as running,
    ):
        report = measured(Path(place), running, asked)
    report["coordinator_alone"] = of_the_parent(10_000)
    (asked.out / asked.name).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: one for name, one in report.items() if name != "course"}, indent=1))


def measured(folder: Path, server: Any, asked: argparse.Namespace) -> dict[str, Any]:
    """One call of the program, and what was seen meanwhile."""
    url = server.new_database()
    (folder / "delay").write_text(str(asked.delay))
    (folder / "times.log").touch()
    sizes = [f"{512 + 8 * number}x512x256" for number in range(asked.problems)]
    (folder / "sizes.txt").write_text("\n".join(sizes))
    with workers_of(folder, asked.workers) as (environment, processes):
        command = [sys.executable, str(ROOT / "tests/unit/fake_cluster.py"), str(folder), "1"]
        command += ["--scheduler-file", str(folder / "scheduler.json"), "--json", "--db", url]
        command += ["--problems", str(folder / "sizes.txt"), "--sampler", "exhaustive"]
        command += ["--fix", "ECHO=0", "--budget", "none", "--rounds", "30"]
        command += ["--trials", str(asked.trials)]
        out = folder / "out.json"
        with out.open("w") as answer, (asked.out / "many_workers.err").open("w") as err:
            parent = subprocess.Popen(command, env=environment, stdout=answer, stderr=err)
            seen = Watch(server, url, {"parent": parent.pid, **processes}, folder / "times.log")
            course = list(seen.until(parent, asked.problems, asked.seconds))
        told = out.read_text()
        found = json.loads(told)["problems"] if told else []
    with_ratio = sum(one["ratio"] is not None for one in found)
    return {
        "simulated": "GPUs and compilation are simulated: no time here is of GPU work",
        **{name: getattr(asked, name) for name in ("workers", "problems", "trials", "delay")},
        "cores": len(os.sched_getaffinity(0)),
        "exit": parent.returncode,
        "with_a_winner": with_ratio,
        **seen.summary(course),
        "course": course,
    }


@contextmanager
def workers_of(folder: Path, count: int) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """Dask's scheduler and worker processes; the environment of the program, and their numbers.

    Workers are forked from one process that has imported everything, which saves their start.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(PATHS),
        "FAKE_CLUSTER_FOLDER": str(folder),
        "FAKE_CLUSTER_GPUS": "1",
    }
    file = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    command += ["--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(file)]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(command, env=environment, **quiet)
    forked = [sys.executable, "-c", "import many_workers; many_workers.fork_workers()"]
    forked += [str(file), str(count)]
    environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
    workers = subprocess.Popen(forked, env=environment, start_new_session=True, **quiet)
    try:
        yield environment, {"scheduler": scheduler.pid, "workers": workers.pid}
    finally:
        os.killpg(workers.pid, 9)
        for process in (scheduler, workers):
            process.kill()
            process.wait()


def fork_workers() -> None:
    """Be that process: fork as many workers as the command line says, and wait for their ends."""
    import asyncio

    file, count = Path(sys.argv[1]), int(sys.argv[2])
    fakes: Any = import_module("fake_cluster")
    import_module("autogemm.cluster.worker")
    # The modules that the first problem imports.
    import_module("autogemm.search.studies")
    import_module("psycopg")
    fakes.attach()
    import_module("waiting").wait_until(file.exists, "the scheduler is there")

    async def serve(name: str) -> None:
        from distributed import Worker

        options: dict[str, Any] = {
            "nthreads": 1,
            "name": name,
            "memory_limit": 0,
            "host": "127.0.0.1",
        }
        folder = str(file.with_name(f"worker-{name}"))
        async with Worker(
            scheduler_file=str(file), local_directory=folder, dashboard=False, **options
        ) as worker:
            await worker.finished()

    for number in range(count):
        if os.fork() == 0:
            asyncio.run(serve(f"w{number:02}"))
            os._exit(0)
    for _ in range(count):
        os.wait()


class Watch:
    """Looks at processes and at the server once a second."""

    def __init__(self, server: Any, url: str, roots: Mapping[str, int], log: Path) -> None:
        import psycopg

        self._server, self._log, self._num_done, self._read = server, log, 0, 0
        self._roots = {**roots, "server": server._running[-1].pid}
        name = urlsplit(url).path.strip("/")
        self._connection = psycopg.connect(
            host=str(server.folder), user="autogemm", dbname=name, autocommit=True
        )
        self._connection.execute("CREATE EXTENSION pg_stat_statements")

    def until(
        self, parent: "subprocess.Popen[bytes]", count: int, seconds: float
    ) -> Iterator[dict[str, Any]]:
        """A look when the first problem is done, after each tenth of them, and at the end."""
        marks = [1, *(count * part // TENTHS for part in range(1, TENTHS + 1))]
        self.most_connections, self.parent_mib = 0, 0.0
        began = time.monotonic()
        last: dict[str, Any] = {}
        while parent.poll() is None:
            time.sleep(LOOK_EVERY_S)
            if time.monotonic() - began > seconds:
                parent.send_signal(signal.SIGINT)
                seconds = math.inf
            number = self._asked("SELECT count(*) FROM pg_stat_activity WHERE backend_type = %s")
            self.most_connections = max(self.most_connections, number - 1)
            if not Path(f"/proc/{self._roots['parent']}/stat").exists():
                break
            last = self._look(began) or last
            if marks and last["done"] >= marks[0]:
                marks = [mark for mark in marks if mark > last["done"]]
                yield last
        if marks:
            yield last

    def _look(self, began: float) -> dict[str, Any]:
        with self._log.open() as log:
            log.seek(self._read)
            text = log.read()
            self._read = log.tell()
        self._num_done += text.count(" end\n")
        self.parent_mib = max(self.parent_mib, memory_mib(self._roots["parent"]))
        return {
            "seconds": round(time.monotonic() - began, 2),
            "done": self._num_done,
            "parent_mib": round(memory_mib(self._roots["parent"]), 1),
            "commits": self._asked(
                "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
            ),
            "database_mib": round(
                self._asked("SELECT pg_database_size(current_database())") / 2**20, 1
            ),
            "cpu_s": cpu_s(self._roots),
        }

    def _asked(self, query: str) -> int:
        given = ("client backend",) if "%s" in query else None
        row = self._connection.execute(query.encode(), given).fetchone()
        return int(row[0]) if row else 0

    def summary(self, course: list[dict[str, Any]]) -> dict[str, Any]:
        """Rates between the first problem and the last look, and the slowest statements."""
        first, last = course[0], course[-1]
        seconds, done = last["seconds"] - first["seconds"], last["done"] - first["done"]
        each = {name: (last["cpu_s"][name] - first["cpu_s"][name]) / done for name in self._roots}
        pairs = pairwise(course)
        return {
            "seconds": round(seconds, 1),
            "problems_per_minute": round(60 * done / seconds, 1),
            "problems_per_minute_by_tenth": [
                round(60 * (b["done"] - a["done"]) / (b["seconds"] - a["seconds"]), 1)
                for a, b in pairs
            ],
            "ms_of_processor_for_a_problem": {
                name: round(1000 * one, 2) for name, one in each.items()
            },
            "commits_per_second": round((last["commits"] - first["commits"]) / seconds, 1),
            "commits_for_a_problem": round((last["commits"] - first["commits"]) / done, 2),
            "most_connections": self.most_connections,
            "database_mib": last["database_mib"],
            "parent_mib_most": round(self.parent_mib, 1),
            "parent_mib_by_tenth": [one["parent_mib"] for one in course],
            "slowest_statements": self._slowest(last["done"]),
        }

    def _slowest(self, done: int) -> list[dict[str, Any]]:
        rows = self._connection.execute(
            "SELECT query, calls, total_exec_time, rows FROM pg_stat_statements "
            "ORDER BY total_exec_time DESC LIMIT 12"
        ).fetchall()
        return [
            {
                "ms_for_a_problem": round(total_ms / done, 3),
                "calls_for_a_problem": round(calls / done, 2),
                "rows_for_a_problem": round(count / done, 2),
                "statement": " ".join(query.split())[:160],
            }
            for query, calls, total_ms, count in rows
        ]


def of_the_parent(count: int) -> dict[str, Any]:
    """Processor time and memory of a coordinator with so many problems, each with finals of eight
    kernels and 30 rounds, and 64 workers that answer at once: all but Dask and the display.
    """
    tests: Any = import_module("test_cluster")
    coordinator: Any = import_module("autogemm.cluster.coordinator")
    samples: Any = import_module("store_samples")
    sized: Any = import_module("sized_target")
    kernels = [
        samples.entry(64 + place, *(100.0 + n / 7 for n in range(30)), ratio=1.1)
        for place in range(8)
    ]
    found = pickle.dumps(samples.finals(*kernels))

    class Crew(tests.FakeCrew):  # type: ignore[misc]
        def submit(self, work: Any, attempt: int, not_on: Any, on_done: Any) -> Any:
            future = super().submit(work, attempt, not_on, on_done)
            self._asked.pop()
            self._free.append(future.worker)
            on_done(future)
            return future

        def result(self, future: Any, number: int) -> Any:
            done = super().result(future, number)
            # Each answer is an object of its own, as one that came by the network.
            return replace(done, swept=replace(done.swept, run_id=1, finals=pickle.loads(found)))

    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/t.db") as store:
        (first,) = sized.requests_for(Path(folder), [128])
        crew = Crew([str(n) for n in range(64)], lambda worker, work: None)
        where = coordinator._Where("session", "postgresql://", None)
        listener = coordinator.Listener(*(lambda *_: None,) * 3)
        parts = coordinator._Parts(crew, store, where, listener, 5.0)
        before_mib, began = memory_mib(os.getpid()), time.process_time()
        requests = [replace(first, problem=Problem(8 * n, 512, 256)) for n in range(1, count + 1)]
        spread = coordinator._Coordinator(parts, requests).run()
        seconds = time.process_time() - began
        assert len(spread.sweep.problems) == count
        return {
            "problems": count,
            "ms_of_processor_for_a_problem": round(1000 * seconds / count, 2),
            "mib_before": round(before_mib, 1),
            "mib_after": round(memory_mib(os.getpid()), 1),
        }


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def cpu_s(roots: Mapping[str, int]) -> dict[str, float]:
    """Processor time of each of these processes with its children, ended ones included."""
    found = dict.fromkeys(roots, 0.0)
    names = {pid: name for name, pid in roots.items()}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        own = int(path.parent.name)
        name = names.get(own) or names.get(int(words[1]))
        if name is not None:
            found[name] += sum(map(int, words[11 : 15 if own in names else 13])) / TICKS
    return found


if __name__ == "__main__":
    main()
