"""Many problems over several workers: who gets what, and what happens when some fail.

The workers here answer at once, in this process; `test_cluster_faults` has real ones.
"""

import dataclasses
import importlib
import io
import json
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from fake_target import FakeCompiler, tiny_family, tiny_space
from rich.console import Console
from rich.progress import Progress, TextColumn
from sized_target import SizedTarget, interrupted_run, requests_for, swept
from waiting import PATIENCE_S

import autogemm.cluster.client
import autogemm.cluster.crew
from autogemm.catalogue.gpus import find_device
from autogemm.cli import main
from autogemm.cli.tune.gpus import GpuLines
from autogemm.cluster import ClusterRequest, Listener, Place, Spread, tune_over
from autogemm.cluster.crew import Crew, shared_cores
from autogemm.cluster.files import take_run
from autogemm.cluster.history import history_of, parts_folder, recovered
from autogemm.cluster.messages import Done, Work
from autogemm.model.hardware.device import Device
from autogemm.model.results.outcome import Environment, Measurement, Outcome, Provenance, Status
from autogemm.store import RunState, Store, open_store
from autogemm.support.errors import ClusterError, UsageError
from autogemm.support.installing import how_to_install
from autogemm.targets import choose
from autogemm.tuning import (
    Event,
    FinalsStarted,
    Notice,
    SearchStarted,
    Sweeper,
    Swept,
    TrialDone,
    TuneRequest,
)

SIZES = (300, 4096, 128, 2048)
PLACE = Place(find_device("h100"), Environment(driver="1"), Provenance.MEASURED)

# The work of a worker on a problem: its name and the work in, None for a result.
Fault = Callable[[str, Work], str | None]


class FakeCrew:
    """Workers that answer when the coordinator looks, in the order in which they were asked."""

    def __init__(self, names: Collection[str], fault: Fault) -> None:
        self.there = list(names)
        self._fault = fault
        self.given: list[tuple[str, int]] = []
        self.most_at_once = 0
        # Each holds one problem and the next.
        self._free = list(names) * 2
        self._asked: list[tuple[Any, Callable[[Any], None]]] = []
        self.pressed = False

    def listen(self, on_event: object) -> None:
        """Nothing is told."""

    def names(self) -> dict[str, str]:
        # The coordinator waits: the first answer comes.
        for place, (future, on_done) in enumerate(self._asked):
            if future.worker in self.there:
                del self._asked[place]
                self._free.append(future.worker)
                on_done(future)
                break
        return {f"tcp://{name}": name for name in self.there}

    def places(self) -> dict[str, Place | str]:
        return dict.fromkeys(self.there, PLACE)

    def submit(
        self, work: Work, attempt: int, not_on: Collection[str], on_done: Callable[[Any], None]
    ) -> Any:
        name = next((one for one in self._free if one not in not_on), self._free[0])
        self._free.remove(name)
        self.given.append((name, work.number))
        future = _Future(name, work)
        self._asked.append((future, on_done))
        self.most_at_once = max(self.most_at_once, len(self._asked))
        return future

    def result(self, future: Any, number: int) -> Done:
        error = self._fault(future.worker, future.work)
        if error is not None:
            return Done(number, future.worker, error=error)
        found = Swept(future.work.request.problem, num_trials=3, reason=f"by {future.worker}")
        return Done(number, future.worker, PLACE, found)

    def send_away(self, name: str) -> None:
        self.there.remove(name)
        self._free = [one for one in self._free if one != name]
        # As Dask does, another worker gets what this one holds.
        if self.there:
            for future, _ in self._asked:
                future.worker = self.there[0] if future.worker == name else future.worker

    def press_ctrl_c(self) -> None:
        self.pressed = True


@dataclasses.dataclass(eq=False)
class _Future:
    worker: str
    work: Work


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "t.db")) as opened:
        yield opened


def spread_over(
    monkeypatch: pytest.MonkeyPatch, store: Store, requests: list[TuneRequest], crew: FakeCrew
) -> tuple[Spread, list[str]]:
    """The result, and the notices."""

    @contextmanager
    def opened(request: ClusterRequest, session: str) -> Iterator[FakeCrew]:
        yield crew

    monkeypatch.setattr(autogemm.cluster.crew, "opened_crew", opened)
    notices: list[str] = []
    listener = Listener(lambda *_: None, lambda *_: None, notices.append)
    request = ClusterRequest("all", patience_s=0.0)
    return tune_over(requests, request, store, store.url.partition(":///")[2], listener), notices


def test_the_longest_is_first_and_results_are_in_the_order_asked_for(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("0", lambda *_: None)
    spread, notices = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    assert [SIZES[number] for _, number in crew.given] == sorted(SIZES, reverse=True)
    assert tuple(one.problem.m for one in spread.sweep.problems) == SIZES
    assert crew.most_at_once == 2, "a worker holds one problem and the next"
    assert (spread.failure, spread.gpus, notices) == ("", PLACE.device.name, [])


def test_a_worker_that_fails_always_is_given_up_and_its_problems_go_to_others(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("012", lambda name, _: "the GPU is lost" if name == "1" else None)
    sizes = range(100, 900, 100)
    spread, notices = spread_over(monkeypatch, store, requests_for(tmp_path, sizes), crew)
    assert [one.reason for one in spread.sweep.problems if "1" in one.reason] == []
    assert len(spread.sweep.problems) == len(sizes)
    assert notices == ["GPU 1 is given up: the GPU is lost"]
    # Two that it failed at, and one that it held meanwhile.
    assert [name for name, _ in crew.given].count("1") == 3


def test_a_problem_at_which_three_workers_fail_is_given_up(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    def fault(name: str, work: Work) -> str | None:
        return f"no room on {name}" if work.request.problem.m == 2048 else None

    crew = FakeCrew("0123", fault)
    spread, notices = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    tried = [name for name, number in crew.given if SIZES[number] == 2048]
    assert len(set(tried)) == len(tried) == 3
    reasons = {one.problem.m: one.reason for one in spread.sweep.problems}
    assert reasons.pop(2048) == f"no room on {tried[-1]}"
    assert len(reasons) == 3
    assert (spread.failure, notices) == ("", [])


def test_without_any_worker_it_ends_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("0", lambda *_: None)

    def fault(name: str, work: Work) -> str | None:
        if work.request.problem.m == 300:
            crew.there.clear()
        return None

    crew._fault = fault
    spread, _ = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    assert [one.problem.m for one in spread.sweep.problems] == [300, 4096, 2048]
    assert spread.failure.startswith("all workers are lost; problems left: 1 of 4,")


def test_the_last_worker_that_fails_ends_it(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("0", lambda *_: "the GPU is lost")
    spread, notices = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    assert spread.sweep.problems == ()
    assert (
        "no worker is left, the last one gave up: the GPU is lost; problems left: 4 of 4"
        in spread.failure
    )
    assert notices == ["GPU 0 is given up: the GPU is lost"]


def test_a_scheduler_that_goes_away_ends_it_in_one_line(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("01", lambda *_: None)
    answer = crew.result
    asked: list[int] = []

    def result(future: Any, number: int) -> Done:
        asked.append(number)
        if len(asked) == 2:
            raise ClusterError("the scheduler of the workers is gone")
        return answer(future, number)

    monkeypatch.setattr(crew, "result", result)
    spread, _ = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    assert spread.failure.startswith("the scheduler of the workers is gone; problems left: 3 of 4,")
    assert len(spread.sweep.problems) == 1


def test_workers_that_cannot_work_are_given_up_first(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    crew = FakeCrew("012", lambda *_: None)
    older = dataclasses.replace(PLACE, version="0.0.1")
    monkeypatch.setattr(crew, "places", lambda: {"0": "no driver", "1": older, "2": PLACE})
    _, notices = spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)
    assert {name for name, _ in crew.given} == {"2"}
    assert notices[0] == "GPU 0 is given up: no driver"
    assert "GPU 1 is given up: it has autogemm 0.0.1" in notices[1]
    monkeypatch.setattr(crew, "places", lambda: {"2": "no driver"})
    with pytest.raises(ClusterError, match="all workers fail: GPU 2: no driver"):
        spread_over(monkeypatch, store, requests_for(tmp_path, SIZES), crew)


def test_what_is_known_in_the_place_of_a_worker_is_not_tuned_again(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    requests = requests_for(tmp_path, SIZES)
    done, _ = swept(requests[:2], SizedTarget(), store)
    environment = dataclasses.replace(PLACE.environment, compiler=FakeCompiler().version)
    crew = FakeCrew("0", lambda *_: None)
    place = dataclasses.replace(PLACE, environment=environment)
    monkeypatch.setattr(crew, "places", lambda: {"0": place})
    spread, _ = spread_over(monkeypatch, store, requests, crew)
    assert sorted(SIZES[number] for _, number in crew.given) == [128, 2048]
    assert [one.is_known for one in spread.sweep.problems] == [True, True, False, False]
    assert spread.sweep.problems[0].run_id == done.problems[0].run_id
    fresh = [dataclasses.replace(request, fresh=True) for request in requests]
    again = FakeCrew("0", lambda *_: None)
    spread_over(monkeypatch, store, fresh, again)
    assert len(again.given) == len(SIZES)


def test_a_worker_goes_on_with_a_run_of_the_coordinators_database(
    store: Store, tmp_path: Path
) -> None:
    (request,) = requests_for(tmp_path, [512])
    others, _ = swept(requests_for(tmp_path, [300, 4096]), SizedTarget(), store)
    run_id = interrupted_run(store, request)
    kept = store.trials(run_id)
    history = history_of(store, request, store.decided_runs(), [PLACE.device])
    with open_store(str(tmp_path / "worker.db")) as own:
        own.import_copies(lambda: history)
        target: Any = SizedTarget()
        sweeper = Sweeper(target, FakeCompiler(), own, lambda step: lambda event: None, print)  # type: ignore[arg-type]
        (found,) = sweeper.run([request]).problems
        assert found.run_id is not None
        assert own.trials(found.run_id)[: len(kept)] == kept
        # Warm starts come from the results of other sizes, of which there are no trials.
        assert {row.spec.problem.m for row in own.decided()} == {300, 512, 4096}
    assert take_run(store, tmp_path / "worker.db", found.run_id) == run_id
    assert store.run(run_id).state is RunState.FINISHED
    assert len(store.trials(run_id)) == found.num_trials
    assert len(store.decided()) == len(others.problems) + 1


def test_what_workers_left_of_a_killed_program_is_kept(store: Store, tmp_path: Path) -> None:
    (request,) = requests_for(tmp_path, [512])
    database = tmp_path / "t.db"
    with parts_folder(database, "killed") as folder:
        with open_store(str(folder / "0-a.db")) as own:
            # A result of another size, for a warm start.
            near, _ = swept(requests_for(tmp_path, [4096]), SizedTarget(), store)
            own.import_copies(
                lambda: history_of(store, request, store.decided_runs(), [PLACE.device])
            )
            num_trials = len(own.trials(interrupted_run(own, request)))
        assert recovered(store, database) == 0, "its program still runs"
        assert len(store.runs()) == 1
    assert recovered(store, database) == 1
    line, other = store.runs()
    assert other.run_id == near.problems[0].run_id, "it is there once"
    assert len(store.trials(line.run_id)) == num_trials > 0
    assert not (tmp_path / "t.db.parts").exists()
    again, _ = swept([request], SizedTarget(), store)
    assert again.problems[0].run_id == line.run_id


def test_a_terminal_has_a_line_for_each_gpu(tmp_path: Path) -> None:
    requests = requests_for(tmp_path, (128, 4096))
    bars = Progress(TextColumn("{task.description}"), console=Console(file=io.StringIO()))
    lines = GpuLines(requests, False, bars)
    # As an event comes from Dask.
    client: Any = SimpleNamespace(subscribe_topic=lambda topic, heard: handlers.append(heard))
    handlers: list[Callable[[object], None]] = []
    Crew(client, "a session").listen(
        lambda name, number, event: lines.on_event(name, requests[number].problem, event)
    )

    def happens(worker: str, number: int, event: Event) -> list[str]:
        told = {"worker": "tcp://10.0.0.1:5", "name": worker, "number": number}
        handlers[0]((0.0, told | {"event": pickle.dumps(event)}))
        return [task.description for task in bars.tasks]

    config = tiny_space(requests[0].families[0]).config(0)
    best = Outcome(config, Status.OK, measurement=Measurement((50.0,), Provenance.MEASURED))
    happens("0", 1, SearchStarted(7, 0, (), (), 100.0, None))
    happens("1", 0, FinalsStarted(3, 30))
    first, second = happens("0", 1, TrialDone(4, best, best, True, False, 5, 2.0, 100.0))
    assert first.startswith("GPU 0: 4096x512x256 nn f32: 5 trials, 2.5/s, best 50 us")
    assert "2.000 x cuBLAS" in first
    assert second == "GPU 1: 128x512x256 nn f32: finals: 3 candidates and cuBLAS, 30 rounds"
    happens("1", 0, Notice("a caveat"))
    happens("0", 1, Notice("a caveat"))
    lines.on_swept(Swept(requests[0].problem, reason="no room"), "1", 1)
    assert [task.description for task in bars.tasks][1] == "GPU 1: waiting"
    printed = bars.console.file.getvalue()  # type: ignore[attr-defined]
    assert printed.splitlines() == [
        "a caveat",
        "tuning 1/2 128x512x256 nn f32 on GPU 1: no room",
    ]


def test_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5, 6})
    assert shared_cores(2) == [(0, 1), (2, 5, 6)]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert shared_cores(2) == [(3,), (3,)]


def run_cli(tmp_path: Path, *arguments: str) -> Any:
    tiny_family(tmp_path / "tiny")
    words = ["--family", str(tmp_path / "tiny"), "--db", str(tmp_path / "c.db"), *arguments]
    return CliRunner().invoke(main, ["tune", *words])


MANY = ("--size", "128", "--size", "256")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--gpu", "0,7", *MANY), 2, "no attached GPU has the number '7'; attached: 0 "),
        (("--gpu", ",", *MANY), 2, "does not name a GPU"),
        (("--gpu", "all", "--cross", *MANY), 2, "--cross compares kernels on one GPU"),
        (("--scheduler", "tcp://a:1", "--scheduler-file", "b", *MANY), 2, "exclude each other"),
        (("--scheduler", "tcp://a:1", "--gpu", "all", *MANY), 2, "does not go with a running"),
        (("--scheduler", "tcp://127.0.0.1:9", *MANY), 1, "no scheduler answers at tcp://127."),
        (("--scheduler", "tcp://a:1", "--compilers", "tcp://a:1", *MANY), 2, "of its own"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    attach_two(monkeypatch)
    monkeypatch.setattr(autogemm.cluster.client, "CONNECT_S", 0.5)
    result = run_cli(tmp_path, *arguments)
    assert (result.exit_code, "Traceback" in result.output) == (code, False)
    assert words in result.stderr.strip().splitlines()[-1]


def attach_gpus(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    def opened(number: int) -> SizedTarget:
        target = SizedTarget(delay_s=0.002)
        target.number = number
        return target

    fakes: Any = SimpleNamespace(
        attached_devices=lambda: list(devices),
        why_no_device=lambda: "none is attached",
        Target=opened,
    )
    monkeypatch.setitem(sys.modules, "fake_gpus_for_cluster", fakes)
    monkeypatch.setattr(choose, "GPU_TARGETS", {"fake": "fake_gpus_for_cluster:Target"})


def attach_two(monkeypatch: pytest.MonkeyPatch) -> None:
    attach_gpus(monkeypatch, PLACE.device, PLACE.device)


def test_a_worker_that_starts_again_at_the_end_is_ended_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))

    class SlowToClose:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            started.start()

        def close(self, timeout: float) -> None:
            raise TimeoutError(f"timed out after {timeout:g} s.")

    attach_two(monkeypatch)
    monkeypatch.setattr(autogemm.cluster.crew, "SpecCluster", SlowToClose)
    client = contextmanager(lambda *arguments, **options: iter([object()]))
    monkeypatch.setattr(autogemm.cluster.crew, "Client", client)
    with autogemm.cluster.crew.opened_crew(ClusterRequest("all"), "session"):
        assert started.is_alive()
    started.join(PATIENCE_S)
    assert started.exitcode == -signal.SIGKILL


def test_without_dask_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    attach_two(monkeypatch)
    for name in [name for name in sys.modules if name.startswith("autogemm.cluster")]:
        monkeypatch.delitem(sys.modules, name)
    for library in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, library, None)
    importlib.import_module("autogemm.cluster")
    result = run_cli(tmp_path, "--gpu", "all", *MANY)
    assert result.exit_code == 1
    assert f"needs Dask: {how_to_install('cluster')}" in result.stderr.splitlines()[-1]


def test_without_a_gpu_all_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    attach_gpus(monkeypatch)
    result = run_cli(tmp_path, "--gpu", "all", *MANY)
    assert (result.exit_code, result.stderr.strip()) == (1, "Error: no GPU: none is attached")


def test_one_problem_is_spread_over_gpus_of_one_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    h100 = PLACE.device
    attach_gpus(monkeypatch, h100, h100, dataclasses.replace(h100, name="another"))
    words = ("--size", "128", "--trials", "9", "--no-certify", "--rounds", "2", "--finalists", "1")
    result = run_cli(tmp_path, "--gpu", "1,0,2", *words, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[0] == (
        f"GPU 2 is left out: it is a another, and GPU 1 is a {h100.name}; times of one model "
        "compare"
    )
    found = json.loads(result.stdout)
    assert found["trials_by_gpu"].keys() == {"0", "1"}
    # On the GPU for 2 ms, and each other phase is there.
    phases = ("ask", "render", "compile", "hand over", "store", "tell", "idle")
    assert set(phases) <= found["ms_by_phase"].keys()
    # Clocks differ by microseconds; without its time on the GPU it would be far less.
    assert found["ms_by_phase"]["hand over"] >= 1.9
    assert 0.0 < found["gpu_busy"] <= 1.0
    assert "GPU 0: " in result.stderr

    frugal = run_cli(tmp_path, "--gpu", "all", *words, "--json", "--objective", "energy")
    assert "with --objective energy one problem is tuned by GPU 0" in frugal.stderr


def test_a_number_and_all_exclude_what_makes_no_sense() -> None:
    assert not ClusterRequest("0").is_wanted
    assert ClusterRequest("0,1").is_wanted
    assert ClusterRequest("auto", scheduler="tcp://a:1").is_wanted
    with pytest.raises(UsageError, match="does not go with a running scheduler"):
        ClusterRequest("0", scheduler="tcp://a:1")


def test_a_scheduler_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "scheduler.json"
    with pytest.raises(UsageError, match="there is no file"):
        ClusterRequest("auto", scheduler_file=str(missing))
    missing.write_text("{}")
    assert ClusterRequest("auto", scheduler_file=str(missing)).is_running
