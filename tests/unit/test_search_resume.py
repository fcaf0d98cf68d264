"""A search that is told what earlier processes found goes on where they stopped."""

import subprocess
import sys

import pytest
from fake_search_space import GridSpace, failed, ok, tiles, tiles_time_us

from autogemm.model.outcome import Outcome
from autogemm.search import Search


def outcome_of(index: int, space: GridSpace) -> Outcome:
    config = space.config(index)
    return failed(config) if index % 7 == 0 else ok(config, tiles_time_us(config))


def run(search: Search, space: GridSpace, num_trials: int) -> list[int]:
    indices = []
    for _ in range(num_trials):
        proposal = search.ask()
        assert proposal is not None
        indices.append(proposal.index)
        search.tell(proposal, outcome_of(proposal.index, space))
    return indices


def resumed(space: GridSpace, sampler: str, before: list[int]) -> Search:
    search = Search(space, sampler, 5)
    for index in before:
        search.remember(outcome_of(index, space))
    return search


@pytest.mark.parametrize("sampler", ["surrogate", "random", "exhaustive"])
def test_interrupted_run_proposes_what_an_uninterrupted_one_does(sampler: str) -> None:
    space = tiles()
    whole = run(Search(space, sampler, 5), space, 24)
    before = run(Search(space, sampler, 5), space, 13)
    after = resumed(space, sampler, before)
    assert after.num_told == 13
    assert before + run(after, space, 11) == whole


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsga2"])
def test_resumed_stock_samplers_repeat_nothing(sampler: str) -> None:
    space = tiles()
    before = run(Search(space, sampler, 5), space, 8)
    after = run(resumed(space, sampler, before), space, 8)
    assert len({*before, *after}) == 16


def test_best_and_failures_survive() -> None:
    space = tiles()
    first = Search(space, "random", 0)
    before = run(first, space, 12)
    assert resumed(space, "random", before).best == first.best


def test_what_is_remembered_twice_counts_once() -> None:
    space = tiles()
    search = resumed(space, "surrogate", [60, 61, 62, 61, 63, 63])
    assert search.num_told == 4
    assert run(search, space, 5) == run(resumed(space, "surrogate", [60, 61, 62, 63]), space, 5)


def test_what_is_not_legal_any_more_is_passed_over() -> None:
    space = GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)})
    fewer = GridSpace({"A": (1, 2, 4, 8), "B": (1, 2)}, lambda c: c["A"] != 8)
    search = Search(fewer, "random", 0)
    for index in range(len(space)):
        search.remember(ok(space.config(index), 1.0))
    assert search.num_told == len(fewer) == 6
    assert search.ask() is None


def test_importing_the_names_does_not_import_optuna() -> None:
    code = "import sys, autogemm.search as s; print(s.SAMPLERS[0], 'optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["surrogate", "False"]
