"""Which config a problem gets: its own result, the rule's, another GPU's, or a guess."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from store_samples import SPEC

from autogemm.catalogue.gpus import find_device
from autogemm.dispatch import Chooser
from autogemm.dispatch.chooser import guessed, waves_cost
from autogemm.dispatch.legal import NearestLegal
from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.model.results.outcome import Finals, FinalsEntry, Provenance
from autogemm.space import (
    broken_constraints,
    default_families,
    expected_time,
    load_family,
)
from autogemm.store import DecidedRow
from autogemm.support.errors import EmptySpaceError

H100 = find_device("h100")
FAMILIES = default_families()
SIMT = load_family("sgemm_simt")
SKINNY = load_family("sgemm_skinny")


def row(
    run_id: int,
    problem: Problem,
    *times: tuple[Config, float],
    device: Device = H100,
    provenance: Provenance = Provenance.MEASURED,
) -> DecidedRow:
    def entry(config: Config | None, own_us: float) -> FinalsEntry:
        ratio = 10.0 / own_us
        return FinalsEntry(
            "", config, "", (own_us,), ratio, ratio, ratio, tied=False, verification=None
        )

    entries = sorted((entry(*pair) for pair in times), key=lambda one: one.time_us)
    finals = Finals(tuple(entries), entry(None, 10.0), 1, provenance)
    spec = replace(SPEC, problem=problem, device=device, provenance=provenance)
    return DecidedRow(run_id, spec, finals, datetime(2026, 11, run_id, tzinfo=UTC))


def chooser(*rows: DecidedRow, device: Device = H100) -> Chooser:
    return Chooser(rows, FAMILIES, device)


FIRST, SECOND, THIRD = SIMT.seeds[:3]


def test_a_tuned_problem_gets_its_own_winner_whatever_the_factors() -> None:
    known = chooser(row(1, Problem(512, 512, 512), (SECOND, 5.0), (FIRST, 6.0)))
    choice = known.choose(Problem(512, 512, 512, alpha=2.0, beta=1.0))
    assert (choice.config, choice.why) == (SECOND, "tuned in run 1")
    assert known.is_tuned(Problem(512, 512, 512, beta=3.0))
    assert not known.is_tuned(Problem(512, 512, 513))
    assert not known.is_tuned(Problem(512, 512, 512, Layout.NT))
    assert not known.is_tuned(Problem(512, 512, 512, lda=513))
    assert known.is_tuned(Problem(512, 512, 512, lda=516))


def test_of_several_results_the_one_with_most_kernels_then_the_newest_counts() -> None:
    problem = Problem(512, 512, 512)
    crossed = row(1, problem, (FIRST, 5.0), (SECOND, 6.0), (THIRD, 7.0))
    known = chooser(crossed, row(2, problem, (SECOND, 4.0)))
    assert known.choose(problem).config == FIRST
    known = chooser(row(1, problem, (FIRST, 5.0)), row(2, problem, (SECOND, 6.0)))
    assert known.choose(problem).config == SECOND


def test_measured_results_go_before_recorded_ones() -> None:
    problem = Problem(512, 512, 512)
    recorded = row(2, problem, (SECOND, 4.0), provenance=Provenance.RECORDED)
    assert chooser(recorded).choose(problem).config == SECOND
    assert chooser(row(1, problem, (FIRST, 5.0)), recorded).choose(problem).config == FIRST


def test_other_sizes_get_what_the_rule_chooses() -> None:
    rows = [
        row(number, Problem(m, 512, 512), (FIRST, 5.0 if m > 300 else 9.0), (SECOND, 6.0))
        for number, m in enumerate((64, 128, 256, 512, 1024, 2048), 1)
    ]
    known = chooser(*rows)
    assert known.choose(Problem(64, 512, 768)).config == SECOND
    assert known.choose(Problem(1536, 512, 512)).config == FIRST
    # No tile divides 1500 rows: the same kernel, its edges as they are fastest.
    inward = Config.of(SIMT.name, {**FIRST.as_dict(), "EDGES": "inward"})
    assert FIRST["EDGES"] == "guarded"
    assert known.choose(Problem(1500, 512, 512)).config == inward
    # But not where the slower way was tuned itself.
    tuned = row(9, Problem(1500, 512, 512), (FIRST, 4.0))
    assert chooser(*rows, tuned).choose(Problem(1500, 512, 512)).config == FIRST
    assert "run" not in known.choose(Problem(1500, 512, 512)).why
    # The same in a layout that nobody tuned, moved to where it is legal.
    turned = Problem(1500, 512, 512, Layout.TN)
    choice = known.choose(turned)
    assert broken_constraints(SIMT, choice.config, turned, H100) == []
    assert choice.config["BM"] == FIRST["BM"]


@pytest.mark.parametrize(
    ("num_own", "rule"), [(4, "nearest of 4 tuned sizes"), (3, "least of 1 predicted times")]
)
def test_other_layouts_are_asked_where_a_layout_has_few_results(num_own: int, rule: str) -> None:
    """Three results are few; with three of another layout they are enough for a model."""
    nearest_legal = NearestLegal(FAMILIES, H100)
    layouts = (Layout.NN, Layout.NT)
    in_both = next(
        seed
        for seed in SIMT.seeds
        if all(nearest_legal(seed, Problem(512, 512, 512, one)) == seed for one in layouts)
    )
    own, other = ([Problem(m, 512, 512, one) for m in (64, 128, 256, 512)] for one in layouts)
    problems = [*own[:num_own], *other[:3]]
    rows = [row(number, one, (in_both, 5.0)) for number, one in enumerate(problems, 1)]
    assert chooser(*rows).choose(Problem(640, 512, 512)).why == rule


def test_without_common_times_the_least_expected_time_wins_over_the_nearest_size() -> None:
    """Nearest is a size whose winner makes 96 k_tiles wait; the other one's expects less time."""
    rows, expected = unseen()
    choice = chooser(*rows).choose(UNSEEN)
    assert choice.why == "least of 2 expected times"
    assert choice.config == expected


def test_what_a_kernel_was_better_than_expected_elsewhere_counts() -> None:
    """The same sizes, but the kernel that loses above took a tenth of what is expected of it."""
    rows, expected = unseen()
    others = [entry.config for one in rows for entry in one.finals.entries]
    (other,) = {one for one in others if one not in (None, expected)}
    assert other is not None
    better = [
        row(
            number,
            one,
            (other, 0.1 * us(other, one)),
            (expected, us(expected, one)),
        )
        for number, one in enumerate((Problem(1536, n, 1536) for n in (1024, 2048)), 10)
    ]
    assert chooser(*rows, *better).choose(UNSEEN).config == other


UNSEEN = Problem(1536, 1536, 1536)


def us(config: Config, problem: Problem) -> float:
    found = expected_time(SIMT, config, problem, H100)
    assert found
    return found / 2000


def unseen() -> tuple[list[DecidedRow], Config]:
    """Two sizes, each with a winner of its own: the nearer one's is the worse at UNSEEN."""
    nearest_legal = NearestLegal(FAMILIES, H100)
    near, far = Problem(1536, 1536, 1600), Problem(4096, 4096, 4096)
    seeds = [one for one in SIMT.seeds if nearest_legal(one, UNSEEN) == one]
    best, worst = (pick(seeds, key=lambda one: us(one, UNSEEN)) for pick in (min, max))
    rows = [row(1, near, (worst, us(worst, near))), row(2, far, (best, us(best, far)))]
    return rows, best


def test_a_choice_is_remembered() -> None:
    known = chooser(row(1, Problem(512, 512, 512), (FIRST, 5.0)))
    assert known.choose(Problem(640, 512, 512)) is known.choose(Problem(640, 512, 512))


def test_what_is_not_legal_gives_way() -> None:
    """The family for few rows wins the only size tuned; at 4096 rows it has no kernel."""
    few = Problem(16, 4096, 4096)
    skinny = SKINNY.seeds[0]
    known = chooser(row(1, few, (skinny, 5.0)), row(2, Problem(8, 4096, 4096), (skinny, 5.0)))
    assert known.choose(few).family.name == "sgemm_skinny"
    assert known.choose(Problem(4096, 4096, 4096)).family.name == "sgemm_simt"


def test_without_results_here_another_gpu_helps() -> None:
    a100 = find_device("a100")
    known = chooser(row(1, Problem(512, 512, 512), (SECOND, 5.0)), device=a100)
    choice = known.choose(Problem(640, 512, 512))
    assert choice.config["BM"] == SECOND["BM"]
    assert choice.why == "nearest tuned size 512 nn f32 on NVIDIA H100 80GB HBM3"


def test_results_of_another_version_of_a_family_are_left_out() -> None:
    odd = Config("sgemm_simt", (("BM", 128), ("OLD", 1)))
    gone = Config("long_gone", (("BM", 128),))
    rows = [row(1, Problem(512, 512, 512), (odd, 5.0)), row(2, Problem(64, 64, 64), (gone, 5.0))]
    assert "seed" in chooser(*rows).choose(Problem(512, 512, 512)).why


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize(
    "size",
    [
        *((1, 1, 1), (33, 7, 5), (100, 100, 100), (16, 4096, 512), (4096, 16, 512)),
        (4096, 4096, 4096),
    ],
)
def test_a_guess_is_always_legal(size: tuple[int, int, int], layout: Layout) -> None:
    problem = Problem(*size, layout)
    choice = chooser().choose(problem)
    assert choice.why == "nothing tuned: a seed of the family"
    assert broken_constraints(choice.family, choice.config, problem, H100) == []


def test_guesses_fill_the_gpu() -> None:
    """A tile of 128 x 256 leaves most SMs idle where C has 512 x 512 elements."""
    nearest_legal = NearestLegal(FAMILIES, H100)
    small = guessed(FAMILIES, Problem(512, 512, 512), H100, nearest_legal)[0]
    large = guessed(FAMILIES, Problem(4096, 4096, 4096), H100, nearest_legal)[0]
    assert int(small["BM"]) * int(small["BN"]) <= 64 * 64 < int(large["BM"]) * int(large["BN"])
    # 66 blocks of 128 x 256, then 72: both fit the GPU at once. 144 do not.
    assert FIRST["BM"] == 128
    costs = [waves_cost(SIMT, FIRST, Problem(m, 1536, 4096), H100) for m in (1408, 1536, 2 * 1536)]
    assert costs[0] == costs[1] < costs[2]


def test_a_dtype_without_kernels_is_said() -> None:
    with pytest.raises(EmptySpaceError, match="no kernel for 64 nn"):
        Chooser((), (SIMT,), H100).choose(Problem(64, 64, 64, dtype=DType.F16))
