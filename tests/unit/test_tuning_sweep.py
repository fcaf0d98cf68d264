"""Many problems in one run of the program: each once, resumed, crossed with the others' winners."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sized_target import BusyTarget, NotingCompiler, SizedTarget, requests_for, swept

from autogemm.catalogue.gpus import find_device
from autogemm.dispatch import NearestLegal, common_table, learn, tuned_sizes
from autogemm.model.config import Config
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout
from autogemm.model.results.outcome import Disqualified, Finals, Provenance, Status
from autogemm.store import Store, open_store
from autogemm.support.errors import UsageError
from autogemm.tuning.sweep import spread_winners

SIZES = (64, 100, 500, 800, 3000, 4000)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "sweep.db")) as opened:
        yield opened


def test_each_problem_is_tuned_once(tmp_path: Path, store: Store) -> None:
    requests = requests_for(tmp_path, (64, 500, 2000))
    sweep, told = swept(requests, SizedTarget(), store)
    assert told == ["64 tuned", "500 tuned", "2000 tuned"]
    bests = [one.finals.winner.config for one in sweep.problems if one.finals is not None]
    assert [config["BM"] for config in bests if config is not None] == [16, 32, 64]
    again = SizedTarget()
    resumed, told = swept([*requests, *requests_for(tmp_path, (96,))], again, store)
    assert told == ["64 known", "500 known", "2000 known", "96 tuned"]
    assert [one.run_id for one in resumed.problems[:3]] == [one.run_id for one in sweep.problems]
    anew, told = swept([replace(requests[0], fresh=True)], SizedTarget(), store)
    assert told == ["64 tuned"]
    assert anew.problems[0].run_id not in {one.run_id for one in sweep.problems}


@pytest.mark.parametrize(
    "change",
    [{"seed": 7}, {"sampler": "random"}, {"fix": {"U": (1, 4)}}, {"max_error": "0.001"}],
)
def test_another_request_is_not_known(
    tmp_path: Path, store: Store, change: dict[str, object]
) -> None:
    requests = requests_for(tmp_path, (64,))
    swept(requests, SizedTarget(), store)
    _, told = swept([replace(requests[0], **change)], SizedTarget(), store)  # type: ignore[arg-type]
    assert told == ["64 tuned"]
    _, told = swept(requests, SizedTarget(driver="2"), store)
    assert told == ["64 tuned"]


def test_a_problem_that_cannot_be_tuned_is_told_and_left(tmp_path: Path, store: Store) -> None:
    requests = requests_for(tmp_path, (64, 500))
    unfit = replace(requests[0], problem=replace(requests[0].problem, m=77, layout=Layout.TT))

    class Picky(SizedTarget):
        def prepare(self, problem: object, options: object) -> None:
            super().prepare(problem, options)  # type: ignore[arg-type]
            if self.problem.m == 77:
                raise UsageError("does not fit the GPU")

    sweep, told = swept([unfit, *requests], Picky(), store)
    assert told == ["77 tuned does not fit the GPU", "64 tuned", "500 tuned"]
    assert sweep.problems[0].finals is None


def test_ctrl_c_ends_the_sweep_with_what_there_is(tmp_path: Path, store: Store) -> None:
    def interrupt(config: Config) -> Status | None:
        if target.problem.m == 500 and len(target.measured) == 9:
            signal.raise_signal(signal.SIGINT)
        return None

    target = SizedTarget(interrupt)
    sweep, told = swept(requests_for(tmp_path, (64, 500, 2000)), target, store)
    assert sweep.interrupted
    assert told == ["64 tuned"]
    _, told = swept(requests_for(tmp_path, (64, 500, 2000)), SizedTarget(), store)
    assert told == ["64 known", "500 tuned", "2000 tuned"]


def test_crossing_times_the_others_winners_at_each_size(tmp_path: Path, store: Store) -> None:
    requests = requests_for(tmp_path, SIZES)
    sweep, _ = swept(requests, SizedTarget(), store, cross=True)
    assert not sweep.interrupted
    # The largest problem's winner, then that of the one farthest from it.
    chosen = spread_winners(sweep.problems, find_device("h100"), 2)
    assert [config["BM"] for config in chosen] == [64, 16]
    sizes = tuned_sizes(store.decided(), find_device("h100"))
    table = common_table(sizes, NearestLegal(requests[0].families, find_device("h100")))
    assert [size.problem.m for size in table.sizes] == list(SIZES)
    assert {config["BM"] for config in table.kernels} == {16, 32, 64}
    assert table.is_complete
    for row, size in enumerate(table.sizes):
        # The tile that is two steps off, or one where the middle one is best.
        is_middle = 200 < size.problem.m <= 1000
        assert max(table.losses[row]) == pytest.approx(0.2 if is_middle else 0.44)
    learned = learn(table, 132)
    assert learned.regret is not None
    assert learned.regret.worst == pytest.approx(0.0)
    for m, bm in ((70, 16), (180, 16), (400, 32), (3500, 64)):
        assert table.kernels[learned.rule.ranked((m, 512, 256))[0]]["BM"] == bm
    # Crossing again finds all of it there.
    target = SizedTarget()
    swept(requests, target, store, cross=True)
    assert target.finalists == []


def test_who_is_wrong_at_another_size_wins_no_more(tmp_path: Path, store: Store) -> None:
    """The winner of the small sizes, found wrong when it is timed at a large one."""

    class Suspicious(SizedTarget):
        def finals(self, candidates: Sequence[Candidate], rounds: int, seed: int) -> Finals:
            finals = super().finals(candidates, rounds, seed)
            is_crossed = self.problem.m > 1000 and len(candidates) > 2
            lost = [one for one in finals.entries if is_crossed and one.config["BM"] == 16]
            return replace(
                finals,
                entries=tuple(one for one in finals.entries if one not in lost),
                disqualified=tuple(
                    Disqualified(one.config, one.kernel_sha256, "1 of 9 is wrong")
                    for one in lost
                    if one.config is not None
                ),
            )

    swept(requests_for(tmp_path, (64, 500, 3000)), SizedTarget(), store)
    first = {row.problem.m: row.config for row in store.best()}
    assert first[64]["BM"] == 16
    swept(requests_for(tmp_path, (64, 500, 3000)), Suspicious(), store, cross=True)
    assert {row.problem.m for row in store.best() if row.config == first[row.problem.m]} == {
        500,
        3000,
    }
    dispatched = tuned_sizes(store.decided(), find_device("h100"))
    assert [size.winner["BM"] for size in dispatched] == [32, 32, 64]


def test_recordings_are_not_crossed(tmp_path: Path, store: Store) -> None:
    target = SizedTarget()
    target.provenance = Provenance.RECORDED
    with pytest.raises(UsageError, match="use a GPU"):
        swept(requests_for(tmp_path, (64,)), target, store, cross=True)


def test_seeds_are_compiled_while_the_gpu_is_made_ready_and_holds_finals(
    tmp_path: Path, store: Store
) -> None:
    compiler = NotingCompiler()
    requests = requests_for(tmp_path, (64, 500, 2000))
    target = BusyTarget(compiler, num_followed=2)
    _, told = swept(requests, target, store, compiler=compiler)
    assert told == ["64 tuned", "500 tuned", "2000 tuned"]
    # Each has one seed, once.
    assert compiler.num_ahead == 3


def test_nothing_begins_ahead_for_a_problem_that_is_known(tmp_path: Path, store: Store) -> None:
    requests = requests_for(tmp_path, (64, 500, 2000))
    swept(requests[1:2], SizedTarget(), store)
    compiler = NotingCompiler()
    target = BusyTarget(compiler, num_followed=0)
    _, told = swept(requests, target, store, compiler=compiler)
    assert told == ["64 tuned", "500 known", "2000 tuned"]
    assert compiler.num_ahead == 2


def test_the_next_problem_that_cannot_be_tuned_is_told_in_its_turn(
    tmp_path: Path, store: Store
) -> None:
    good, bad, last = requests_for(tmp_path, (64, 500, 2000))
    bad = replace(bad, fix={**bad.fix, "BM": (64,), "BN": (64,)})
    _, told = swept([good, bad, last], SizedTarget(), store)
    assert [one.split(" ")[0] for one in told] == ["64", "500", "2000"]
    assert "no config" in told[1]
