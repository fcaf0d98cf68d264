"""Shows what one PostgreSQL server takes of many workers whose GPUs are simulated.

    python benchmarks/scale_postgres.py --workers 4,16,64 --seconds 20

A worker is a thread with a store of its own, of few processes: it does with the database what a
worker of `autogemm tune --db postgresql://...` does, and sleeps where that would search and
measure. Each problem has ``--trials`` trials of kernels of their own, ``--delay`` seconds apart,
and ends with finals. The server is one of its own, with the settings that it ships with.
`many_workers.py` has real workers, and the parent's part.
"""

import argparse
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autogemm.model.kernel import KernelSource
from autogemm.model.problem import Layout, Problem
from autogemm.store import RunState, open_store

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "unit")]
samples: Any = import_module("store_samples")

PROCESSES = 4
SOURCE_LINES = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", default="4,16,64")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--trials", type=int, default=20, help="for each problem")
    parser.add_argument("--delay", type=float, default=0.1, help="seconds between two trials")
    asked = parser.parse_args()
    server: Any = import_module("postgres_server")
    print(
        f"{'workers':>8}{'trials/s':>10}{'of ideal':>10}{'store ms':>10}{'problems/min':>14}"
        f"{'commits/s':>11}{'server CPU':>12}",
        flush=True,
    )
    with server.running_server("fsync=off") as running:
        for count in map(int, asked.workers.split(",")):
            print(measured(running, count, asked), flush=True)


def measured(server: Any, count: int, asked: argparse.Namespace) -> str:
    """A row: so many workers at work for the time asked for."""
    url = server.new_database()
    open_store(url).close()
    before = commits(server, url)
    cpu_s, begin = server_cpu_s(server), time.monotonic()
    share = [len(range(first, count, PROCESSES)) for first in range(min(PROCESSES, count))]
    with ProcessPoolExecutor(len(share)) as pool:
        jobs = [pool.submit(work, url, first, own, asked) for first, own in enumerate(share)]
        done = [job.result() for job in jobs]
    wall_s = time.monotonic() - begin
    trials, problems, store_s = (sum(one[part] for one in done) for part in range(3))
    ideal = count * asked.seconds / asked.delay
    return (
        f"{count:>8}{trials / asked.seconds:>10.1f}{100 * trials / ideal:>8.0f} %"
        f"{1000 * store_s / max(1, trials):>10.1f}{60 * problems / asked.seconds:>14.1f}"
        f"{(commits(server, url) - before) / wall_s:>11.1f}"
        f"{100 * (server_cpu_s(server) - cpu_s) / wall_s:>10.0f} %"
    )


def work(url: str, first: int, count: int, asked: argparse.Namespace) -> tuple[int, int, float]:
    """Trials and problems that the workers of this process stored, and seconds of storing."""
    found: list[tuple[int, int, float]] = []
    ends_at = time.monotonic() + asked.seconds

    def one(number: int) -> None:
        stored = problems = 0
        store_s = 0.0
        with open_store(url) as store:
            while time.monotonic() < ends_at:
                size = 64 + 8 * (number * 1000 + problems)
                spec = replace(samples.SPEC, problem=Problem(size, 512, 256))
                run = store.begin_run(spec)
                for trial in range(asked.trials):
                    time.sleep(asked.delay)
                    source = kernel(f"{number} {problems} {trial}", trial)
                    timed = samples.ok(64, 100.0 + trial)
                    outcome = replace(timed, config=source.config, kernel_sha256=source.sha256)
                    began = time.monotonic()
                    store.record_trial(run, trial, outcome, source)
                    store_s += time.monotonic() - began
                    stored += time.monotonic() < ends_at
                entry = samples.entry(64, 100.0, 101.0, 102.0, ratio=1.1)
                store.record_finals(run, samples.finals(entry), {})
                store.finish_run(run, RunState.FINISHED)
                problems += time.monotonic() < ends_at
        found.append((stored, problems, store_s))

    threads = [threading.Thread(target=one, args=(first + PROCESSES * n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored, problems, store_s = zip(*found, strict=True)
    return sum(stored), sum(problems), sum(store_s)


def kernel(name: str, trial: int) -> KernelSource:
    """A source about as long as a real one."""
    text = f"// {name}\n" + "    accum[m][n] += a[m] * b[n];\n" * SOURCE_LINES
    return KernelSource("sgemm_simt", "t", samples.config(64 + trial), Layout.NN, text)


def commits(server: Any, url: str) -> int:
    """Transactions of the database so far, as the server counts them."""
    import psycopg

    name = urlsplit(url).path.strip("/")
    with psycopg.connect(host=str(server.folder), user="autogemm", dbname=name) as connection:
        row = connection.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return int(row[0]) if row else 0


def server_cpu_s(server: Any) -> float:
    """Processor time of the server and its children so far, those that have ended included."""
    pid = server._running[-1].pid
    parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = sum(map(int, parent[11:15]))
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if words[1] == str(pid):
            ticks += sum(map(int, words[11:13]))
    return ticks / 100


if __name__ == "__main__":
    main()
