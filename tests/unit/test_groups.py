"""Groups of rows: their text, how rows are spread, and what they make of a problem."""

from dataclasses import replace

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.codegen import render
from autogemm.model.batch import Batch
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.groups import NONE, Groups
from autogemm.model.problem import Layout, Problem
from autogemm.model.signature import gemm_signature
from autogemm.space import broken_constraints, launch_plan, load_family
from autogemm.store import BestQuery
from autogemm.support.errors import UsageError


@pytest.mark.parametrize(
    "text",
    [
        *("", "8 uniform", "128 zipf=1.1 seed=3", "128 zipf=0.5", "4,0,17,128"),
        *("8 uniform masked", "8 zipf=1 seed=2 masked=99", "4,0,17 masked"),
        *("128 uniform used=8 seed=5", "128 zipf=2 used=8 masked=64"),
    ],
)
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    assert str(Groups.parse(text)) == text


def test_other_spellings_have_one_canonical_text() -> None:
    assert str(Groups.parse(" 8 ")) == str(Groups.parse("8 zipf=0 seed=7")) == "8 uniform"
    assert str(Groups.parse("9 zipf=1.10  seed=0")) == "9 zipf=1.1"
    assert str(Groups.parse("9 masked=0")) == "9 uniform masked"


@pytest.mark.parametrize(
    "text", ["0", "-3", "8 even", "8 zipf", "8 uniform seed=3", "4,,5", "4,-1", "1,2 seed=3"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="groups are a number and how rows are spread"):
        Groups.parse(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("70000", "must be from 0 to 65535"),
        ("8 zipf=9", "exponent of zipf must be from 0 to 8"),
        ("0,0", "have 1 to 2147483647 rows in all"),
        (",".join(["1234567"] * 26), "at most 200 characters, got 207: take uniform or zipf"),
    ],
)
def test_numbers_out_of_range_are_refused(text: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Groups.parse(text)


def test_rows_are_spread_evenly_by_zipf_or_as_listed() -> None:
    assert Groups(4).rows(10) == (3, 3, 2, 2)
    assert Groups(4).given(10) == (0, 3, 6, 8, 10)
    assert Groups(5).rows(2) == (1, 1, 0, 0, 0)
    assert Groups.parse("4,0,17").rows(100) == (4, 0, 17)
    zipf = Groups.parse("4 zipf=1")
    # 1, 1/2, 1/3 and 1/4 of 25 in all, to groups in an order that the seed draws.
    assert sorted(zipf.rows(25)) == [3, 4, 6, 12]
    orders = {Groups.parse(f"4 zipf=1 seed={seed}").rows(25) for seed in range(9)}
    assert len(orders) > 3 and all(sum(rows) == 25 for rows in orders)
    # The same in every version of Python: it is what was tuned.
    assert Groups.parse("8 zipf=1.1 seed=3").rows(1000) == ZIPF_SEED_3


ZIPF_SEED_3 = (47, 55, 398, 119, 186, 87, 68, 40)


def test_no_group_is_the_plain_problem() -> None:
    plain = Problem(64, 32, 16)
    assert plain.groups == NONE and "groups" not in plain.label
    assert gemm_signature().names == gemm_signature(grouped=False).names
    assert gemm_signature(grouped=True).names[-2:] == ("groups", "offsets")


def test_a_problem_counts_the_rows_that_belong_to_a_group() -> None:
    problem = Problem(64, 32, 16, groups=Groups.parse("0,40,0,10"))
    assert problem.label == "64x32x16 nn f32 groups=0,40,0,10"
    assert (problem.used_rows, problem.num_matrices) == (50, (1, 4, 1))
    assert problem.stacked_rows == (64, 4 * 16, 64)
    assert problem.flops == 2 * 50 * 32 * 16
    # Two of the four B are read.
    assert problem.moved_bytes == 4 * (50 * 16 + 2 * 16 * 32 + 50 * 32)
    assert Problem(64, 32, 16, groups=Groups(8)).flops == Problem(64, 32, 16).flops


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"layout": Layout.TT}, "groups are rows of A as it is stored: layout tt"),
        ({"batch": Batch(2)}, "groups or a batch: leave out --batch 2"),
        ({"groups": Groups.parse("60,5")}, "60,5 have 65 rows, which is more than M = 64"),
    ],
)
def test_a_problem_that_cannot_have_groups_is_refused(changes: dict, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Problem(64, 32, 16, **{"groups": Groups(4), **changes})


def test_fewer_rows_keep_the_first_groups() -> None:
    assert Groups.parse("4,0,17").within(9) == Groups.parse("4,0,5")
    assert Groups.parse("4,0,17").within(21) == Groups.parse("4,0,17")
    assert Groups(8).within(1) == Groups(8)


def test_a_family_without_groups_is_refused_in_one_line() -> None:
    device, problem = find_device("h100"), Problem(64, 64, 64, groups=Groups(4))
    family = load_family("tiled")
    (broken,) = broken_constraints(family, family.seeds[0], problem, device)
    assert broken == "groups 4 uniform: tiled has one B for all rows"


@pytest.mark.parametrize("name", ["naive", "gemm_mma", "gemm_wgmma"])
def test_one_launch_has_room_for_every_way_to_spread_rows(name: str) -> None:
    """A grid that depended on offsets could not be captured once and replayed with others."""
    family = load_family(name)
    dtype = DType.F32 if name == "naive" else DType.BF16
    config = family.seeds[0]
    problem = Problem(300, 512, 512, Layout.NT, dtype, groups=Groups(40))
    plan = launch_plan(family, config, problem)
    for text in ("40 zipf=2", ",".join(["0"] * 39 + ["300"]), ",".join(["1"] * 40)):
        other = Problem(300, 512, 512, Layout.NT, dtype, groups=Groups.parse(text))
        assert launch_plan(family, config, other) == plan
        assert render(family, config, other).text == render(family, config, problem).text
    # A tile for each group, and for each BM rows beside.
    bm = int(config.as_dict()["BM"])
    least = sum(-(-rows // bm) for rows in (*[1] * 39, 261))
    columns = 512 // int(config.as_dict()["BN"])
    blocks = plan.launches[0].grid[0]
    assert blocks >= min(least * columns, 132)


def test_a_filter_by_the_number_finds_every_spread() -> None:
    query = BestQuery(groups="8")
    assert query.is_of_groups("8 uniform") and query.is_of_groups("8 zipf=1.1")
    assert not query.is_of_groups("") and not query.is_of_groups("80 uniform")
    assert BestQuery(groups="none").is_of_groups("")
    assert not BestQuery(groups="none").is_of_groups("8 uniform")
    assert BestQuery(groups="8 zipf=1.10").is_of_groups("8 zipf=1.1")
    with pytest.raises(UsageError):
        BestQuery(groups="many")


def test_masked_groups_have_a_capacity() -> None:
    groups = Groups.parse("4 zipf=1 masked=25")
    # Of 12, 6, 4 and 3 what exceeds the capacity is left out.
    assert sorted(groups.rows(20)) == [3, 4, 5, 5] and groups.given(20) == groups.rows(20)
    starts = [first for first, _ in groups.ranges(20)]
    assert starts == [0, 5, 10, 15]
    assert Groups.parse("4,0,9 masked").within(15).listed == (4, 0, 5)
    problem = Problem(24, 32, 16, groups=Groups.parse("8,0,3 masked"))
    assert problem.used_rows == 11 and problem.flops == 2 * 11 * 32 * 16
    for changes, rule in (
        ({"m": 25}, "3 masked groups must have equally many rows: M = 25 is no multiple of 3"),
        ({"m": 21}, "have room for 7 rows each"),
    ):
        with pytest.raises(UsageError, match=rule):
            replace(problem, **changes)
    with pytest.raises(UsageError, match="leave out =9"):
        Groups.parse("4,0,9 masked=9")


def test_rows_are_spread_over_some_of_the_groups() -> None:
    groups = Groups.parse("128 uniform used=8")
    assert sorted(groups.rows(64))[-9:] == [0, *[8] * 8] and groups.num_used(64) == 8
    assert groups.rows(64) != Groups.parse("128 uniform used=8 seed=1").rows(64)
    with pytest.raises(UsageError, match="groups that have rows must be from 0 to 4"):
        Groups.parse("4 uniform used=5")


def test_groups_divide_k_in_layout_tn() -> None:
    problem = Problem(32, 16, 64, Layout.TN, groups=Groups.parse("0,40,0,10"))
    assert problem.divides_k and (problem.used_rows, problem.used_k) == (32, 50)
    assert problem.num_matrices == (1, 1, 4) and problem.stacked_rows == (64, 64, 4 * 32)
    assert problem.flops == 2 * 32 * 16 * 50
    assert problem.moved_bytes == 4 * (50 * (32 + 16) + 4 * 32 * 16)
    device = find_device("h100")
    for name, refused in (("gemm_mma", False), ("gemm_wgmma", False), ("naive", True)):
        family = load_family(name)
        own = replace(problem, dtype=DType.BF16 if name != "naive" else DType.F32)
        broken = broken_constraints(family, family.seeds[0], own, device)
        assert (f"{name} has no groups that divide K" in " ".join(broken)) is refused
    with pytest.raises(UsageError, match="41,40 have 81 rows, which is more than K = 64"):
        replace(problem, groups=Groups.parse("41,40"))
    for epilogue in ("acc + bias[g, n]", "silu(acc[n]) * acc[n + N]"):
        with pytest.raises(UsageError):
            problem.with_epilogue(Epilogue(epilogue))


def test_inputs_of_groups_need_groups() -> None:
    with pytest.raises(UsageError, match="has the group of a row as its index"):
        Problem(64, 32, 16, epilogue=Epilogue("acc + bias[g, n]"))
