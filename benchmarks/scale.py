"""Shows what handing problems out costs, with workers whose GPUs are simulated.

    python benchmarks/scale.py --workers 1,2,4 | tee benchmarks/results/scale.txt

Each row is a call of `autogemm tune` with as many fake GPUs (`tests/unit/fake_cluster.py`), which
take the same time for each config and so leave the machine's cores to the rest; the first one is a
single GPU without workers. Between two problems a GPU waits for what belongs to the last one (it is
stored) and to the next (its space is built): what it waits longer than the single GPU is the cost
of handing out. The last lines are what the coordinator does for each problem with as many trials as
`autogemm tune` makes by default: it bounds how many workers one process can serve.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from autogemm.catalogue.gpus import find_device
from autogemm.cluster.files import copy_blank, take_run
from autogemm.cluster.history import history_of
from autogemm.cluster.messages import Work
from autogemm.codegen import render
from autogemm.model.problem import Problem
from autogemm.space import build_space, load_family
from autogemm.store import RunState, Store, open_store
from autogemm.tuning import TuneOptions, TuneRequest, request_for

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "unit")]
store_samples: Any = import_module("store_samples")
sized_target: Any = import_module("sized_target")

DEFAULT_TRIALS = 300


@dataclass(frozen=True, slots=True)
class Row:
    """``wait_s`` is the median time of a GPU from the end of finals to the next problem."""

    workers: int
    problems: int
    seconds: float
    search_s: float
    wait_s: float

    @property
    def per_minute(self) -> float:
        return 60 * self.problems / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--problems", type=int, default=6, help="for each worker")
    parser.add_argument("--trials", type=int, default=12, help="for each problem")
    parser.add_argument("--delay", type=float, default=0.5, help="seconds that a config takes")
    asked = parser.parse_args()
    counts = [int(text) for text in asked.workers.split(",")]
    alone = measured("0", 1, asked)
    print(
        f"{'workers':>18}{'problems':>10}{'seconds':>9}{'a minute':>10}{'times':>7}"
        f"{'wait ms':>9}{'handing out':>13}"
    )
    shown("one GPU, in turn", alone, alone)
    for count in counts:
        shown(str(count), measured("all", count, asked), alone)
    for line in of_the_coordinator():
        print(line)


def measured(gpu: str, count: int, asked: argparse.Namespace) -> Row:
    """One call of the program."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "delay").write_text(str(asked.delay))
        (folder / "times.log").touch()
        problems = [f"{512 + 8 * number}x512x256" for number in range(asked.problems * count)]
        (folder / "sizes.txt").write_text("\n".join(problems))
        command = [sys.executable, str(ROOT / "tests/unit/fake_cluster.py"), str(folder)]
        command += [str(count), "--gpu", gpu, "--problems", str(folder / "sizes.txt"), "--json"]
        command += ["--db", str(folder / "t.db"), "--trials", str(asked.trials), "--budget", "none"]
        command += ["--rounds", "2", "--quiet"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path[:3])}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        found = json.loads(done.stdout)["problems"]
        assert all(one["ratio"] for one in found)
        return row_of(count, found, (folder / "times.log").read_text())


def row_of(count: int, found: list[dict[str, Any]], log: str) -> Row:
    """From the first problem that was begun to the last that had its finals."""
    times: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for line in log.splitlines():
        gpu, at, which = line.split()
        times[gpu].append((float(at), which))
    every = [at for own in times.values() for at, _ in own]
    waits = [
        later - at
        for own in times.values()
        for (at, which), (later, _) in pairwise(sorted(own))
        if which == "end"
    ]
    search_s = median(one["seconds"] for one in found)
    return Row(count, len(found), max(every) - min(every), search_s, median(waits))


def shown(name: str, row: Row, alone: Row) -> None:
    cost = (row.wait_s - alone.wait_s) / (row.search_s + row.wait_s)
    print(
        f"{name:>18}{row.problems:>10}{row.seconds:>9.1f}{row.per_minute:>10.1f}"
        f"{row.per_minute / alone.per_minute:>7.2f}{1000 * row.wait_s:>9.0f}{100 * cost:>11.2f} %"
    )


def of_the_coordinator() -> Iterator[str]:
    """Seconds for a problem of DEFAULT_TRIALS trials, step by step; GPUs play no part."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with open_store(str(folder / "own.db")) as own, open_store(str(folder / "t.db")) as store:
            run_id = filled(own)
            begin = time.perf_counter()
            take_run(store, folder / "own.db", run_id)
            stored_s, begin = time.perf_counter() - begin, time.perf_counter()
            history_of(store, request(), store.decided_runs(), [find_device("h100")])
            history_s = time.perf_counter() - begin
        size_mib = (folder / "own.db").stat().st_size / 2**20
    yield (
        f"a problem of {DEFAULT_TRIALS} trials, {size_mib:.1f} MiB: the coordinator stores it in "
        f"{1000 * stored_s:.0f} ms, or {60 / stored_s:.0f} a minute"
    )
    yield from of_a_worker()
    yield f"its history, where a worker goes on with it: {1000 * history_s:.0f} ms"


def of_a_worker() -> Iterator[str]:
    """Processor time of a worker for each problem before its search begins, after the first one."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with open_store(str(folder / "t.db")) as store:
            asked = sized_target.requests_for(folder, range(100, 1100, 100))
            sized_target.swept(asked, sized_target.SizedTarget(), store)
            decided = store.decided_runs()
            history = history_of(store, request(), decided, [find_device("h100")])
        every = request_for(Problem(4096, 4096, 4096), TuneOptions(), (), "autogemm tune")
        packed = pickle.dumps(Work("session", 0, every, None, None, history))
        pickle.loads(packed)
        copy_blank(folder / "first.db")
        begin = time.process_time()
        work = pickle.loads(packed)
        copy_blank(folder / "own.db")
        with open_store(str(folder / "own.db")) as own:
            own.import_copies(lambda: work.history)
            ready_s = time.process_time() - begin
    yield (
        f"a worker takes {1000 * ready_s:.0f} ms of processor time to begin with a problem "
        f"({len(packed) / 2**10:.0f} KiB, {len(history)} values of results like it)"
    )


def request() -> TuneRequest:
    return TuneRequest(Problem(4096, 4096, 4096), (load_family("sgemm_simt"),))


def filled(store: Store) -> int:
    """A run with DEFAULT_TRIALS kernels as the tuner emits and times them."""
    asked = request()
    family, problem = asked.families[0], asked.problem
    space = build_space(family, problem, find_device("h100"))
    spec = replace(store_samples.SPEC, problem=problem, fix=())
    run_id = store.begin_run(spec)
    for number in range(DEFAULT_TRIALS):
        config = space.config(number * (len(space) // DEFAULT_TRIALS))
        source = render(family, config, problem)
        timed = store_samples.ok(128, 900.0 + number)
        outcome = replace(timed, config=config, kernel_sha256=source.sha256)
        store.record_trial(run_id, number, outcome, source)
    store.finish_run(run_id, RunState.FINISHED)
    return run_id


if __name__ == "__main__":
    main()
