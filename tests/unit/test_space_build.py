"""The legal space: what it holds, against brute force; what it costs; how it is asked."""

import itertools
import tempfile
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from space_families import SMALL, write_family

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.search.enumerated import neighbours
from autogemm.space import (
    Family,
    Space,
    broken_constraints,
    build,
    build_space,
    list_families,
    load_family,
)
from autogemm.support.errors import EmptySpaceError, FamilyError, UsageError

H100 = find_device("h100")
PROBLEM = Problem.of_size("100x200x300")


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return load_family(write_family(tmp_path / "mine"))


def configs(space: Space) -> list[tuple[Value, ...]]:
    return [tuple(value for _, value in space.config(i)) for i in range(len(space))]


def by_brute_force(family: Family, problem: Problem) -> list[tuple[Value, ...]]:
    names = [parameter.name for parameter in family.parameters]
    return [
        values
        for values in itertools.product(*(parameter.values for parameter in family.parameters))
        if not broken_constraints(
            family, Config.of(family.name, dict(zip(names, values, strict=True))), problem, H100
        )
    ]


def test_legal_configs_in_order_and_what_each_rule_removed(family: Family) -> None:
    space = build_space(family, PROBLEM, H100)
    assert configs(space) == by_brute_force(family, PROBLEM)
    assert space.raw_count == 4 * 3 * 3 * 2
    assert {str(rule.require): count for rule, count in space.removed} == {
        "device.arch >= 70": 0,
        # 16/32, 16/64, 32/64 do not divide, each with 3 stages and 2 orders.
        "BM % WM == 0": 3 * 3 * 2,
        "smem_bytes <= device.max_smem_per_block_bytes": 0,
        # 9 pairs divide; 16/16, 32/32, 64/64 of them are one warp.
        "ORDER == 'rows' or warps > 1": 3 * 3,
    }


def test_codes_point_into_the_values(family: Family) -> None:
    space = build_space(family, PROBLEM, H100, {"BM": (128, 32)})
    assert space.codes.dtype == np.uint8
    assert space.parameters[0].values == (32, 128)
    for i in range(len(space)):
        named = zip(space.parameters, space.codes[i], strict=True)
        assert tuple(p.values[code] for p, code in named) == configs(space)[i]


def test_fix_narrows_to_the_same_configs(family: Family) -> None:
    everything = configs(build_space(family, PROBLEM, H100))
    space = build_space(family, PROBLEM, H100, {"STAGES": (3,), "BM": (64, 128)})
    assert space.fix == {"BM": (64, 128), "STAGES": (3,)}
    assert configs(space) == [c for c in everything if c[2] == 3 and c[0] in (64, 128)]
    assert space.raw_count == 2 * 3 * 1 * 2
    assert space.raw_count == len(space) + sum(count for _, count in space.removed)


@pytest.mark.parametrize(
    ("fix", "message"),
    [
        ({"XM": (1,)}, "no parameter 'XM'"),
        ({"BM": (5,)}, "no value 5"),
        ({"BM": ()}, "at least one"),
    ],
)
def test_fix_refuses(family: Family, fix: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_space(family, PROBLEM, H100, fix)


def test_index_finds_legal_configs_only(family: Family) -> None:
    space = build_space(family, PROBLEM, H100, {"STAGES": (1, 3)})
    assert [space.index(space.config(i)) for i in range(len(space))] == list(range(len(space)))
    legal = space.config(0).as_dict()
    assert space.index(Config.of("mine", dict(reversed(legal.items())))) == 0
    for change in ({"BM": 16, "WM": 64}, {"STAGES": 2}, {"BM": 17}, {"BM": "16"}, {"MORE": 1}):
        assert space.index(Config.of("mine", legal | change)) is None
    assert space.index(Config.of("other", legal)) is None


def test_nearest_takes_the_fewest_steps(family: Family) -> None:
    space = build_space(family, PROBLEM, H100)

    def near(**values: Value) -> dict[str, Value]:
        return space.config(space.nearest(Config.of("mine", values))).as_dict()

    legal = {"BM": 128, "WM": 32, "STAGES": 2, "ORDER": "snake"}
    assert near(**legal) == legal
    # One step each: BM up to 32, or WM down to 16; the lower index has BM=16.
    assert near(BM=16, WM=32, STAGES=1, ORDER="rows") == {
        "BM": 16, "WM": 16, "STAGES": 1, "ORDER": "rows",
    }  # fmt: skip
    # Another order is one step; another block or warp tile is one step too, and lies earlier.
    assert near(BM=64, WM=64, STAGES=1, ORDER="snake")["STAGES"] == 1


@settings(max_examples=25)
@given(st.data())
def test_nearest_is_the_brute_force_minimum(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        family = load_family(write_family(Path(folder) / "mine"))
    fix = {"BM": data.draw(st.lists(st.sampled_from([16, 32, 64, 128]), min_size=1, unique=True))}
    try:
        space = build_space(family, PROBLEM, H100, fix)
    except EmptySpaceError:
        return
    wanted = {p.name: data.draw(st.sampled_from(p.values)) for p in family.parameters}

    def distance(values: tuple[Value, ...]) -> int:
        total = 0
        for parameter, value in zip(family.parameters, values, strict=True):
            ranks = parameter.values.index(value), parameter.values.index(wanted[parameter.name])
            total += abs(ranks[0] - ranks[1])
        return total

    distances = [distance(values) for values in configs(space)]
    assert space.nearest(Config.of("mine", wanted)) == distances.index(min(distances))


def test_seeds_are_snapped_and_distinct(family: Family) -> None:
    space = build_space(family, PROBLEM, H100)
    first, second = (space.config(i).as_dict() for i in space.seeds)
    assert first == family.seeds[0].as_dict()
    # BM=16 WM=64 is not legal; two steps away are BM=16 WM=16, BM=32 WM=32 and BM=64 WM=64.
    assert second == {"BM": 16, "WM": 16, "STAGES": 1, "ORDER": "rows"}
    narrow = build_space(family, PROBLEM, H100, {"BM": (64,), "WM": (64,), "STAGES": (1,)})
    assert narrow.seeds == [0]


def test_features_tell_configs_apart_and_do_not_depend_on_the_rows(family: Family) -> None:
    space = build_space(family, PROBLEM, H100)
    names, matrix = space.features()
    # blocks is ceil_div(100, BM); wide is the same for all, and so left out.
    assert names == [
        "BM", "WM", "STAGES", "ORDER=rows", "ORDER=snake", "warps", "smem_bytes",
        "blocks", "threads",
    ]  # fmt: skip
    assert matrix.shape == (len(space), len(names))
    assert matrix.dtype == np.float64
    assert np.isfinite(matrix).all()
    assert len(np.unique(matrix, axis=0)) == len(space)
    assert matrix[:, 0].tolist() == [np.log2(values[0]) for values in configs(space)]
    some_names, some = space.features([5, 2])
    assert some_names == names
    assert (some == matrix[[5, 2]]).all()


@pytest.mark.parametrize("name", list_families())
def test_features_of_one_row_are_those_of_the_row_among_others(name: str) -> None:
    # Few configs are legal where nothing is aligned, and none where TMA moves the rows.
    family = load_family(name)
    size = "32x48x64" if family.tensor_maps else "31x41x59"
    problem = Problem.of_size(size, dtype=next(filter(family.fits, DType)))
    space = build_space(family, problem, H100)
    rows = np.random.default_rng(3).choice(len(space), min(40, len(space)), replace=False)
    matrix = space.features(rows)[1]
    for row, together in zip(rows, matrix, strict=True):
        # Memory that is freed right before does not stand in for a column that is not written.
        np.full((1, matrix.shape[1]), np.nan)
        assert space.features([row])[1][0].tolist() == together.tolist()


def test_features_of_a_single_config(family: Family) -> None:
    space = build_space(
        family, PROBLEM, H100, {"BM": (64,), "WM": (32,), "STAGES": (1,), "ORDER": ("rows",)}
    )
    names, matrix = space.features()
    assert names == []
    assert matrix.shape == (1, 0)


def test_empty_space_names_the_rule_that_is_in_the_way(family: Family) -> None:
    with pytest.raises(EmptySpaceError, match=r"all other rules break 'BM % WM == 0: a block tile"):
        build_space(family, PROBLEM, H100, {"BM": (16,), "WM": (64,)})


def test_a_rule_that_removes_many_is_not_named_for_it() -> None:
    """Half of all configs of a small problem are for what L2 does not hold; that is not why."""
    problem = Problem(512, 512, 512, Layout.NT, DType.BF16)
    fix = {"BM": (64,), "BN": (256,), "SPLIT_K": (1,)}
    with pytest.raises(EmptySpaceError, match=r"all other rules break .*leave half of the GPU"):
        build_space(load_family("gemm_wgmma"), problem, find_device("h200"), fix)


def test_without_one_rule_in_the_way_it_names_the_one_that_removed_most(family: Family) -> None:
    fix = {"BM": (16,), "WM": (64,)}
    with pytest.raises(EmptySpaceError, match=r"of 6 configs 6 break 'device.arch >= 70"):
        build_space(family, PROBLEM, replace(H100, arch=61), fix)


def test_architectures_are_a_constraint(family: Family) -> None:
    with pytest.raises(EmptySpaceError, match=r"all other rules break 'device.arch >= 70"):
        build_space(family, PROBLEM, replace(H100, arch=61))


def test_constraints_see_problem_and_device(tmp_path: Path) -> None:
    text = SMALL.replace(
        "launch:",
        "  - {require: BM <= M and (trans_a == 0 or lda % BM == 0), because: x}\n"
        "  - {require: STAGES < 3 or device.arch >= 80, because: x}\nlaunch:",
    )
    family = load_family(write_family(tmp_path / "mine", text))
    turing = find_device("t4")
    assert {c[0] for c in configs(build_space(family, PROBLEM, H100))} == {16, 32, 64}
    transposed = Problem(100, 200, 300, layout=Layout.TN, lda=160)
    assert {c[0] for c in configs(build_space(family, transposed, H100))} == {16, 32}
    assert {c[2] for c in configs(build_space(family, PROBLEM, turing))} == {1, 2}


def test_division_by_zero_is_one_clear_error(tmp_path: Path) -> None:
    text = SMALL.replace("require: BM % WM == 0", "require: BM % (STAGES - 2) == 0")
    family = load_family(write_family(tmp_path / "mine", text))
    with pytest.raises(
        FamilyError, match=r"constraints.1: 'BM % \(STAGES - 2\) == 0': division by"
    ):
        build_space(family, PROBLEM, H100)


def test_too_many_configs_are_refused(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MAX_LEGAL", 10)
    with pytest.raises(UsageError, match="more than 10 legal configs"):
        build_space(family, PROBLEM, H100)
    monkeypatch.setattr(build, "MAX_VISITED", 5)
    with pytest.raises(UsageError, match="too large to enumerate"):
        build_space(family, PROBLEM, H100)
    monkeypatch.setattr(build, "MAX_RAW", 5)
    with pytest.raises(UsageError, match="72 raw configs"):
        build_space(family, PROBLEM, H100)


HEAD = """
family: mine
summary: drawn
dtypes: {a: f32, b: f32, c: f32, accumulate: f32}
architectures: ">=70"
launch: [{kernel: gemm_kernel, threads: 1, grid: 1}]
"""

NUMBERS = ("P", "Q", "R", "M", "D")
TERMS = st.sampled_from(NUMBERS) | st.integers(0, 6).map(str)
RULES = st.one_of(
    st.tuples(TERMS, st.sampled_from(["<", "<=", "==", "!=", ">"]), TERMS).map(" ".join),
    st.tuples(TERMS, TERMS).map(lambda t: f"{t[0]} > 0 and {t[1]} % {t[0]} == 0"),
    st.tuples(TERMS, TERMS, TERMS).map(lambda t: f"{t[0]} * {t[1]} + 1 > {t[2]}"),
    st.tuples(TERMS, TERMS).map(lambda t: f"S == 'x' or {t[0]} < {t[1]}"),
    st.tuples(TERMS, TERMS).map(lambda t: f"{t[0]} in (1, 2, {t[1]})"),
    st.just("device.arch > 80"),
)


@st.composite
def families(draw: st.DrawFn) -> str:
    values = st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True)
    lines = [f"  {name}: {{values: {draw(values)}, doc: d}}" for name in ("P", "Q", "R")]
    texts = draw(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True))
    lines.insert(draw(st.integers(0, 3)), f"  S: {{values: [{', '.join(texts)}], doc: d}}")
    derived = draw(st.tuples(TERMS.filter(lambda t: t != "D"), st.sampled_from(["P", "Q", "7"])))
    rules = draw(st.lists(RULES, max_size=4))
    constraints = [f'  - {{require: "{rule}", because: b}}' for rule in rules]
    return "\n".join(
        [
            HEAD, "parameters:", *lines, "derive:", f"  D: {' * '.join(derived)}",
            "constraints:" if constraints else "", *constraints,
        ]
    )  # fmt: skip


@settings(max_examples=80)
@given(families(), st.sampled_from([1, 2, 5, 2**17]))
def test_equals_brute_force(text: str, block_rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        family = load_family(write_family(Path(folder) / "mine", text))
    legal = by_brute_force(family, PROBLEM)
    original = build.BLOCK_ROWS
    build.BLOCK_ROWS = block_rows
    try:
        space = build_space(family, PROBLEM, H100)
    except EmptySpaceError:
        assert legal == []
        return
    finally:
        build.BLOCK_ROWS = original
    assert configs(space) == legal
    assert space.raw_count == np.prod([len(p.values) for p in family.parameters])
    assert space.raw_count == len(space) + sum(count for _, count in space.removed)
    assert all(count >= 0 for _, count in space.removed)


def large(num_free: int) -> str:
    """Ten values for each of six parameters that rules tie together, and for ``num_free`` more."""
    values = "{values: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], doc: d}"
    names = [f"P{i}" for i in range(6)] + [f"F{i}" for i in range(num_free)]
    rules = ["P0 % P1 == 0", "P2 * P3 <= 20 and P3 > 1", "P4 + P5 < P0 * P2"]
    return "\n".join(
        [
            HEAD, "parameters:", *(f"  {name}: {values}" for name in names), "constraints:",
            *(f"  - {{require: {rule}, because: b}}" for rule in rules),
        ]
    )  # fmt: skip


def test_a_million_raw_configs_take_about_a_second(tmp_path: Path) -> None:
    family = load_family(write_family(tmp_path / "mine", large(0)))
    # The time of this thread on a core, whatever else runs.
    start = time.thread_time()
    space = build_space(family, PROBLEM, H100)
    assert time.thread_time() - start < 1
    assert space.raw_count == 10**6
    expected = sum(
        sum(1 for p4 in range(1, 11) for p5 in range(1, 11) if p4 + p5 < p0 * p2)
        for p0 in range(1, 11)
        for p1 in range(1, 11)
        for p2 in range(1, 11)
        for p3 in range(2, 11)
        if p0 % p1 == 0 and p2 * p3 <= 20
    )
    assert len(space) == expected


def test_what_an_early_rule_excludes_is_never_built(tmp_path: Path) -> None:
    text = large(4) + "\n  - {require: F0 == 1 and F1 == 2 and F2 == F3, because: b}\n"
    family = load_family(write_family(tmp_path / "mine", text))
    tracemalloc.start()
    start = time.thread_time()
    space = build_space(family, PROBLEM, H100)
    seconds = time.thread_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert space.raw_count == 10**10
    assert space.raw_count == len(space) + sum(count for _, count in space.removed)
    assert seconds < 10
    # 10^10 rows of one byte would be 10 GB; the legal keys are 8 bytes each.
    assert peak < 64 * 2**20 + 24 * len(space)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "most"),
    [
        # 126,609; 5,390,564 where shares were those of all configs.
        ("gemm_wgmma", "193x1182x624", DType.BF16, 500_000),
        # 5,395,115; 12,641,009 where groups of any number of combinations came at once.
        ("sgemm_simt", "40x32x47", DType.F32, 8_000_000),
    ],
)
def test_few_partial_configs_are_looked_at(
    name: str, shape: str, dtype: DType, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "MAX_VISITED", most)
    problem = Problem.of_size(shape, dtype=dtype)
    assert len(build_space(load_family(name), problem, find_device("h200"))) > 1000


@pytest.mark.parametrize("moves", [1, 2])
@pytest.mark.parametrize("name", ["gemm_mma", "gemm_wgmma"])
def test_neighbours_are_those_that_asking_for_each_combination_finds(name: str, moves: int) -> None:
    problem = Problem(1024, 1024, 1024, dtype=DType.BF16)
    space = build_space(load_family(name), problem, H100, {})
    for place in (0, len(space) // 3, len(space) - 1):
        here = space.config(place).as_dict()
        found = []
        for moved in itertools.combinations(space.parameters, moves):
            names = [one.name for one in moved]
            others = [[v for v in one.values if v != here[one.name]] for one in moved]
            for values in itertools.product(*others):
                there = Config.of(name, here | dict(zip(names, values, strict=True)))
                found.append(space.index(there))
        assert space.neighbours(place, moves) == [one for one in found if one is not None]
        assert neighbours(space, place, moves) == space.neighbours(place, moves)
