"""The problem on which compute-sanitizer watches a winner."""

from collections.abc import Sequence
from typing import Any

import pytest
from unit.fake_target import FakeTarget

from autogemm.codegen import render
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.kernel import Candidate
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.certificate import Check, Verdict
from autogemm.space import broken_constraints, load_family
from autogemm.verify.certify import Certifier, watched
from autogemm.verify.schedule import Schedule, schedule_of

SIMT = load_family("sgemm_simt")
SEEDS = [SIMT.completed(seed) for seed in SIMT.seeds]
# A seed of each way to divide K.
SLICED = {
    (config["SLICE_K"], config["SPLIT_K"]): config
    for config in SEEDS
    if config["SLICES"] == "separate"
}


class Watching(FakeTarget):
    """Says on which problem it would watch a kernel."""

    can_sanitize = True
    problem: Problem | None = None

    def sanitize(
        self, candidate: Candidate, problem: Problem, deadline_s: float
    ) -> Sequence[Check]:
        self.problem = problem
        return (Check("racecheck", Verdict.PASSED, "nothing found"),)


def k_tiles_of_slices(config: Config, problem: Problem) -> list[int]:
    """As the kernel divides them: among the blocks that share a tile, then among the slices."""
    bk, parts, slices = (int(config[name]) for name in ("BK", "SPLIT_K", "SLICE_K"))
    k_tiles = -(-problem.k // bk)
    found = []
    for part in range(parts):
        of_part = k_tiles * (part + 1) // parts - k_tiles * part // parts
        found += [of_part * (one + 1) // slices - of_part * one // slices for one in range(slices)]
    return found


@pytest.mark.parametrize("k", [1024, 1020])
@pytest.mark.parametrize("config", SLICED.values(), ids=map(str, SLICED))
def test_all_slices_have_the_same_number_of_k_tiles(
    config: Config, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(4096, 4096, k, Layout.NN)
    target = Watching()
    if broken_constraints(SIMT, config, problem, target.device):
        pytest.skip("not legal there")
    nothing: Any = lambda *_: ()  # noqa: E731
    monkeypatch.setattr(Certifier, "_matrix", nothing)
    source = render(SIMT, config, problem)
    Certifier(SIMT, target, None).certify(Candidate(source, None, None), problem)  # type: ignore[arg-type]
    assert target.problem is not None
    assert render(SIMT, config, target.problem).code == source.code, "the very kernel"
    assert len(set(k_tiles_of_slices(config, target.problem))) == 1
    assert k_tiles_of_slices(config, target.problem)[0] > int(config["STAGES"]), "rings go round"


def test_where_none_divides_equally_the_first_is_taken() -> None:
    problems = [Problem(64, 64, 24), Problem(64, 64, 40)]
    in_4 = Schedule((64, 64, 8), k_ranges=4, slices=4)
    assert watched(problems, in_4) is problems[0]
    equal, filled = Problem(64, 64, 31), Problem(64, 64, 59)
    assert watched([*problems, equal], in_4) is equal
    assert watched([*problems, equal, filled], in_4) is filled
    assert watched(problems, Schedule((64, 64, 8))) is problems[0]
    assert watched([], in_4) is None


def test_only_slices_with_barriers_of_their_own_count() -> None:
    together = next(one for one in SEEDS if one["SLICES"] == "shared" and one["SLICE_K"] != 1)
    device = FakeTarget().device
    for config, equally in ((together, 1), (SLICED[4, 1], 4), (SLICED[4, 4], 16)):
        assert schedule_of(SIMT, config, device, DType.F32).k_tiles_multiple == equally
