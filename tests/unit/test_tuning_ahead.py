"""What is made for a search while its GPU is busy: how much at once, and when it ends."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_target import PROBLEM, FakeCompiler, FakeTarget, tiny_family, tiny_recording
from waiting import wait_until

from autogemm.formats import write_recording
from autogemm.model.config import Config
from autogemm.model.kernel import CompiledKernel, KernelSource
from autogemm.support.errors import EmptySpaceError
from autogemm.targets.recorded import RecordedTarget
from autogemm.tuning import TuneRequest
from autogemm.tuning.task.ahead import Ahead
from autogemm.tuning.tuner import in_flight_for

MORE_SEEDS = "".join(
    f"  - {{BM: {bm}, BN: 16, U: {u}, ECHO: 0}}\n" for bm in (16, 64) for u in (1, 4)
)
NUM_SEEDS = 5


class HeldCompiler(FakeCompiler):
    """Compiles nothing before it is told to."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = threads
        self.asked: list[Config] = []
        self.held: list[Future[CompiledKernel]] = []

    def submit(self, source: KernelSource, arch: str) -> "Future[CompiledKernel]":
        self.asked.append(source.config)
        future: Future[CompiledKernel] = Future()
        self.held.append(future)
        return future

    def finish(self, number: int) -> None:
        made: Any = None
        self.held[number].set_result(made)


@pytest.fixture
def request_of_five(tmp_path: Path) -> TuneRequest:
    family = tiny_family(tmp_path / "tiny")
    path = family.yaml_path
    path.write_text(path.read_text() + MORE_SEEDS)
    return TuneRequest(PROBLEM, (tiny_family(tmp_path / "tiny"),))


def test_half_of_the_cores_compile_seeds_in_the_order_of_the_search(
    request_of_five: TuneRequest,
) -> None:
    """The other half is for the thread that queues launches of what is timed meanwhile."""
    compiler: Any = HeldCompiler(threads=4)
    ahead = Ahead(request_of_five, FakeTarget(), compiler)
    (space,) = ahead.spaces().spaces
    seeds = [space.config(index) for index in space.seeds]
    assert len(seeds) == NUM_SEEDS
    for done in range(NUM_SEEDS):
        begun = min(done + 2, NUM_SEEDS)
        wait_until(lambda begun=begun: len(compiler.asked) >= begun, f"{begun} have begun")
        assert compiler.asked == seeds[:begun]
        compiler.finish(done)
    ahead.close()


def test_no_more_is_compiled_than_there_are_trials(request_of_five: TuneRequest) -> None:
    compiler: Any = FakeCompiler()
    ahead = Ahead(replace(request_of_five, trials=3), FakeTarget(), compiler)
    wait_until(lambda: compiler.num_compiled >= 3, "three are compiled")
    ahead.close()
    assert compiler.num_compiled == 3


def test_what_has_not_begun_is_dropped_at_the_end(request_of_five: TuneRequest) -> None:
    compiler: Any = HeldCompiler(threads=2)
    ahead = Ahead(request_of_five, FakeTarget(), compiler)
    wait_until(lambda: compiler.held, "one has begun")
    ahead.close()
    assert compiler.held[0].cancelled()
    assert len(compiler.asked) == 1
    ahead.close()


def test_a_kernel_that_does_not_compile_stops_nothing(request_of_five: TuneRequest) -> None:
    compiler: Any = FakeCompiler(broken=lambda config: True)
    ahead = Ahead(request_of_five, FakeTarget(), compiler)
    wait_until(lambda: compiler.num_compiled >= NUM_SEEDS, "all have been tried")
    ahead.close()


def test_a_problem_without_a_legal_config_says_so_where_it_is_asked(
    request_of_five: TuneRequest,
) -> None:
    request = replace(request_of_five, fix={"BM": (64,), "BN": (64,)})
    compiler: Any = FakeCompiler()
    ahead = Ahead(request, FakeTarget(), compiler)
    with pytest.raises(EmptySpaceError):
        ahead.spaces()
    ahead.close()
    assert compiler.num_compiled == 0


def test_nothing_is_compiled_for_a_recording(tmp_path: Path, request_of_five: TuneRequest) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    (family,) = request_of_five.families
    write_recording(tiny_recording(family), folder / "tiny.json.gz")
    target = RecordedTarget(folder)
    compiler: Any = FakeCompiler()
    ahead = Ahead(request_of_five, target, compiler)
    target.prepare(PROBLEM, request_of_five.measure)
    assert len(ahead.spaces().spaces) == 1
    ahead.close()
    assert compiler.num_compiled == 0


def test_few_more_are_in_flight_than_compile_at_a_time() -> None:
    """Each that waits was asked for without the results of those before it."""
    assert [in_flight_for(threads) for threads in (1, 2, 16, 64)] == [2, 4, 24, 72]
