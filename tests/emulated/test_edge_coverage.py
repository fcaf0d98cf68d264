"""The first edge cases of a config reach all that its kernel does: slips that show with a second
group of rows, shared tiles, a finished chain, a second level of additions, or extreme numbers.
"""

from dataclasses import replace

import pytest
from mutations import TILE, Mutation

from autogemm.catalogue.gpus import find_device
from autogemm.cli.kernels.run.verify import SMALL_FLOPS
from autogemm.codegen import render
from autogemm.emulator import Data, Emulator, RunOptions
from autogemm.emulator.emulator import EXTREME_RUNS
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, broken_constraints, is_legal, launch_plan, load_family
from autogemm.verify.cases import Case, CaseSet, planned_cases
from autogemm.verify.edge_cases import (
    EDGE_SHAPES,
    SCALARS,
    Batches,
    edge_cases,
    edge_shapes,
    has_far_rows,
    with_near_rows,
)
from autogemm.verify.order import FIRST as FIRST_RUN
from autogemm.verify.order import coverage_order, covering_cases
from autogemm.verify.schedule import Schedule, schedule_of, verified_by_default

pytestmark = pytest.mark.emulated

DEVICE = find_device("h100")
# Cases of a config within which each slip is found; of splitting by lines, which is slow.
FIRST, FIRST_BY_LINES = 4, 1
PIPELINE: dict[str, Value] = {
    "HANDOVER": 5,
    "STAGES": 3,
    "REG_STAGES": 2,
    "VEC_LOAD": 4,
    "VEC_STORE": 4,
}
TENSOR: dict[str, Value] = {
    **{"SPLIT": "tf32x3", "CHUNK": 8, "BM": 32, "BN": 32, "BK": 32, "WM": 32, "WN": 16},
    **{"STAGES": 2, "REG_STAGES": 1, "SWIZZLE": 1, "GROUP_M": 1, "MIN_BLOCKS": 1},
}
CONFIGS: dict[str, tuple[str, dict[str, Value]]] = {
    "groups": ("sgemm_simt", TILE | PIPELINE | {"GROUP_M": 8}),
    "shared": ("sgemm_simt", TILE | PIPELINE | {"GROUP_M": 1, "STREAM_BLOCKS": 132}),
    "chains": ("sgemm_simt", TILE | PIPELINE | {"GROUP_M": 1, "CHAIN_K": 768}),
    "levels": (
        "sgemm_skinny",
        {"BM": 16, "BN": 16, "BK": 16, "TM": 4, "TN": 4, "SLICE_K": 2, "STAGES": 2, "CHAIN_K": 0}
        | {"SPLIT_K": 24, "FAN_IN": 8, "MIN_BLOCKS": 1},
    ),
    "split": ("sgemm_emulated", TENSOR),
    "lines": (
        "sgemm_emulated_wgmma",
        {"SPLIT": "f16x3", "CHUNK": 32, "BM": 128, "BN": 64, "BK": 32, "CLUSTER": 1, "STAGES": 3}
        | {"GROUP_M": 1, "BLOCKS": 0},
    ),
}
G, S, C, L, T, W = CONFIGS
DECIDES = "if (__syncthreads_or(hazard.is_there() || !are_finite(accum)))"
SLIPS = (
    Mutation(G, "alpha forgotten where beta = 0", "? with.alpha * accum :", "? accum :"),
    Mutation(G, "one group", "index / (GROUP_M * blocks_n) * GROUP_M;", "0;"),
    Mutation(
        S, "tiles counted from the first", "stream_tile = index - whole", "stream_tile = index"
    ),
    Mutation(S, "partial sums overlap", "(owner + stream_tile) * PARTIAL", "owner * PARTIAL"),
    Mutation(
        S,
        "added in the order of arrival",
        "partials + (long long)from * PARTIAL",
        "partials + (long long)((from + partial) % num_partials) * PARTIAL",
    ),
    Mutation(C, "a chain lost", "THREADS] += accum", "THREADS] = accum"),
    Mutation(L, "one level", "stride < SPLIT_K; stride *= ", "stride < FAN_IN; stride *= "),
    Mutation(L, "one counter", "counters + first + stride;", "counters + first + 1;"),
    Mutation(T, "hazards not seen", DECIDES, "if (__syncthreads_or(!are_finite(accum)))"),
    Mutation(T, "each thread for itself", DECIDES, DECIDES.replace("__syncthreads_or", "")),
    Mutation(T, "sums not looked at", DECIDES, "if (__syncthreads_or(hazard.is_there()))"),
    Mutation(
        T, "plain FP32 with K - 1", "k < K; ++k) {\n            sum", "k < K - 1; ++k) {\n sum"
    ),
    Mutation(W, "lines not looked at", "if (is_exact(space, place, K)) {", "if (true) {"),
)


def planned(name: str) -> tuple[Family, Config, Device]:
    family_name, values = CONFIGS[name]
    family = load_family(family_name)
    names = {parameter.name: parameter.values[0] for parameter in family.parameters}
    return family, Config.of(family_name, names | values), DEVICE


def first_cases(name: str) -> list[Case]:
    family, config, _ = planned(name)
    cases = planned_cases(family, config, DEVICE)
    legal = [case for case in cases if not broken_constraints(family, config, case.problem, DEVICE)]
    return legal[: FIRST_BY_LINES if name == W else FIRST]


def verified(emulator: Emulator, case: Case, slip: Mutation | None) -> bool:
    family = load_family(case.config.family)
    source = render(family, case.config, case.problem)
    if slip is not None:
        if slip.old not in source.text:
            return True
        source = slip.apply(source)
    plan = launch_plan(family, case.config, case.problem, few_blocks=True)
    return emulator.verify(source, plan, case.problem, extremes=case.extremes).ok


@pytest.mark.parametrize("name", CONFIGS)
def test_first_cases_pass(emulator: Emulator, name: str) -> None:
    cases = first_cases(name)
    assert cases
    for case in cases:
        assert verified(emulator, case, None), case.problem.label


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: f"{slip.base}: {slip.name}")
def test_the_first_cases_show_a_slip(emulator: Emulator, slip: Mutation) -> None:
    assert not all(verified(emulator, case, slip) for case in first_cases(slip.base))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("most * gain", "most * gain"),
        ("most * gain + blocks - 1) / blocks", "most * gain) / blocks"),
        ("(unsigned)(missing + LESS - 1) / LESS", "(unsigned)missing / LESS"),
        ("below.first_m = still_tall * BM;", ""),
    ],
)
def test_the_first_case_shows_a_slip_of_two_heights(emulator: Emulator, old: str, new: str) -> None:
    family = load_family("gemm_wgmma")
    config = verified_by_default(family, DEVICE)[-1]
    case = planned_cases(family, config, DEVICE, DType.BF16)[0]
    slip = Mutation("two heights", new, old, new) if new != old else None
    assert verified(emulator, case, slip) is (slip is None)


def test_a_barrier_with_one_arrival_too_few_is_seen_on_a_short_tile(emulator: Emulator) -> None:
    """In the first rounds of the pipeline the other warps' arrivals are enough."""
    family = load_family("gemm_wgmma")
    config = next(seed for seed in family.seeds if seed["SPLIT_K"] == 1 == seed["CLUSTER_M"])
    cases = planned_cases(family, config, DEVICE, DType.BF16)
    case = next(case for case in cases if case.problem.m < 4 and case.problem.k > 5 * 64 * 4)
    slip = Mutation("pipeline", "one less", "4 * CONSUMERS);", "4 * CONSUMERS - 1);")
    assert case.problem.flops < SMALL_FLOPS / 10
    assert verified(emulator, case, None)
    assert not verified(emulator, case, slip)


@pytest.mark.parametrize(("k", "one"), [(65, "a"), (64, "b")])
def test_zeros_that_count_as_products_are_seen(emulator: Emulator, k: int, one: str) -> None:
    family, config, _ = planned(W)
    problem = Problem(67, 72, k)
    right = render(family, config, problem)
    slip = Mutation(W, "zeros count", f"- {one}.zeros", f"+ {one}.zeros")
    plan = launch_plan(family, config, problem)
    sparse = RunOptions(data=Data.SPARSE, late_copies=False)
    assert sparse.data in {run.data for run in EXTREME_RUNS}
    assert emulator.run(right, plan, problem, sparse).ok
    assert not emulator.run(slip.apply(right), plan, problem, sparse).ok


def test_scalars_come_in_all_kinds_at_once() -> None:
    first, *others = edge_cases(Schedule((64, 64, 16), stages=3))
    kinds = {
        (one.alpha if one.alpha in (0.0, 1.0) else 2.0, one.beta if one.beta in (0.0, 1.0) else 2.0)
        for one in first
    }
    assert kinds >= {(a, b) for a in (1.0, 2.0) for b in (0.0, 1.0, 2.0)}
    assert any(alpha == 0.0 for alpha, _ in kinds)
    assert first[0].alpha not in (0.0, 1.0) and first[0].beta == 0.0
    assert all(len(turn) == len(first) for turn in others)
    assert all(4 * value == int(4 * value) for pair in SCALARS for value in pair)


def test_shapes_follow_the_schedule() -> None:
    schedule = Schedule((64, 32, 16), 4, 8, chain_k=768, k_ranges=3, sharing_blocks=132)
    problems = edge_cases(schedule)[0]
    assert len(edge_shapes(schedule)) == len(set(edge_shapes(schedule))) == len(problems)
    assert any(one.m > 8 * 64 for one in problems), "a second group of rows"
    assert any(768 < one.k <= 768 + 2 * 16 for one in problems), "a second chain, no longer"
    tiles = [-(-one.m // 64) * -(-one.n // 32) for one in problems]
    assert any(count > 132 for count in tiles), "whole tiles before the shared ones"
    near = {3 * 3 * 16, (3 * 4 + 1) * 16 - 1}
    assert near <= {one.k for one in problems}, "about as many k_tiles in a range as stages"
    assert any(one.k > 3 * 8 * 16 for one in problems), "a range in which the pipeline goes round"
    # A schedule with nothing of its own has no more than the fixed ones, two, and two far ones.
    assert len(edge_shapes(Schedule())) <= len(EDGE_SHAPES) + 4


def test_far_rows_fit_in_the_addresses_of_a_process() -> None:
    family = load_family("sgemm_skinny")
    values = family.seeds[0].as_dict() | {"BK": 64, "SLICE_K": 4, "SPLIT_K": 24, "STAGES": 4}
    schedule = schedule_of(family, Config.of("sgemm_skinny", values), DEVICE, DType.F32)
    problems = [one for turn in edge_cases(schedule) for one in turn]
    assert max(one.k for one in problems) > 2**14
    far = [one for one in problems if has_far_rows(one)]
    assert far
    for one in far:
        assert sum(one.stacked_rows) * one.lda * 4 <= 2**46


def test_unaligned_rows_are_far_too() -> None:
    turns = edge_cases(Schedule((64, 64, 16), stages=3))
    far = {one.lda % 4 for turn in turns for one in turn if has_far_rows(one)}
    assert far == {0, 1, 2}


@pytest.mark.parametrize("layout", list(Layout))
def test_no_matrix_has_rows_as_long_as_anothers(layout: Layout) -> None:
    turns = edge_cases(Schedule((64, 64, 16), stages=3), batches=Batches.SOME_AND_DIVIDED)
    problems = [one for turn in turns for one in turn if one.layout is layout]
    padded = [one for one in problems if one.lda > one.a_shape[1]]
    assert len(padded) > len(problems) / 2
    for one in (*padded, *map(with_near_rows, padded)):
        assert one.a_shape[1] != one.b_shape[1] or one.lda != one.ldb
        assert one.b_shape[1] != one.n or one.ldb != one.ldc


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("divides_k", [False, True])
def test_groups_of_each_kind_have_far_rows(masked: bool, divides_k: bool) -> None:
    turns = edge_cases(Schedule((64, 64, 16), stages=3), batches=Batches.SOME_AND_DIVIDED)
    with_groups = [one for turn in turns for one in turn if not one.groups.is_none]
    alike = [one for one in with_groups if one.groups.masked is masked]
    alike = [one for one in alike if one.divides_k is divides_k]
    assert any(has_far_rows(one) for one in alike)


def test_far_rows_have_all_edges_each_or_none_and_read_c() -> None:
    def edges(problem: Problem) -> tuple[bool, bool, bool]:
        return problem.m % 64 > 0, problem.n % 64 > 0, problem.k % 16 > 0

    kinds = {(True,) * 3, (False,) * 3, (True, False, False), (False, True, False)}
    kinds.add((False, False, True))
    turns = edge_cases(Schedule((64, 64, 16), stages=3), batches=Batches.SOME)
    for turn in turns:
        far = [one for one in turn if has_far_rows(one)]
        assert {edges(one) for one in far} == kinds
        # The first two before the shapes of each edge alone, which most lines do without.
        first = next(one for one in far if one.batch.is_one)
        assert all(edges(first)) and turn.index(first) < len(turn) - len(EDGE_SHAPES)
        assert sum(not one.batch.is_one for one in far) == 1
    with_c = [one for turn in turns for one in turn if has_far_rows(one) and one.beta]
    assert {edges(one) for one in with_c} == kinds
    assert any(not one.batch.is_one for one in with_c)


@pytest.mark.parametrize("layout", [Layout.NN, Layout.NT])
def test_each_layout_of_groups_has_more_groups_than_a_warp_has_lanes(layout: Layout) -> None:
    turns = edge_cases(Schedule((64, 64, 16), stages=3), batches=Batches.SOME_AND_GROUPS)
    rows = [
        one.groups.rows(one.m)
        for turn in turns
        for one in turn
        if one.layout is layout and one.groups.count > 32
    ]
    assert rows
    if layout is Layout.NT:
        # A lane looks through two groups, of which both have rows, and the first fills a tile.
        assert all(each[0] == 63 and each[1] == 1 for each in rows)
        assert any(each[32] == 64 and each[33] > 0 for each in rows)


def test_a_gpu_has_the_cases_of_far_rows_with_near_ones() -> None:
    cases = planned_cases(*planned(G))
    on_gpu = CaseSet(cases[0].config, DType.F32, cases).on_gpu.cases
    assert len(on_gpu) == len(set(on_gpu)) == len(cases)
    for case, near in zip(cases, on_gpu, strict=True):
        assert (near == case) is not has_far_rows(case.problem)
        assert near.problem.lda <= near.problem.a_shape[1] + 4 + 2
        assert near.problem.lda % 4 == case.problem.lda % 4
        assert replace(near, problem=case.problem) == case
        extents = (case.problem.m, case.problem.n, case.problem.k)
        assert (near.problem.m, near.problem.n, near.problem.k) == extents


def test_edges_and_whole_tiles_begin_as_garbage_in_all_layouts() -> None:
    """With edges, each way to store A and B comes with aligned rows and with rows that are not."""
    for name in (G, T):
        unset = [case.problem for case in planned_cases(*planned(name)) if case.unset]
        assert [one.batch.is_one for one in unset].count(False) == 1
        problems = [one for one in unset if one.batch.is_one]
        assert len(problems) == 8
        assert {one.layout for one in problems} == set(Layout)
        bm, bn = (planned(name)[1][side] for side in ("BM", "BN"))
        whole = [one for one in problems if one.m % bm == one.n % bn == 0]
        edges = [one for one in problems if one.m % bm and one.n % bn]
        assert len(whole) == len(edges) == 4
        for aligned in (True, False):
            kind = [one.layout for one in edges if (one.lda % 4 == 0) is aligned]
            assert {one.trans_a for one in kind} == {one.trans_b for one in kind} == {0, 1}


@pytest.mark.parametrize(
    ("bm", "less"), [(256, 24), (256, 8), (200, 8), (128, 32), (128, 24), (64, 8), (72, 32)]
)
def test_two_heights_stand_in_one_column(bm: int, less: int) -> None:
    first, second = edge_cases(Schedule((bm, 128, 64), short_by=less))[0][:2]
    assert first.m == second.m
    rows = -(-first.m // bm)
    # A column with one tile more has a single tall one.
    assert -(-(first.m - (rows + 1) * (bm - less)) // less) == 1
    assert rows > 1
    # One of two blocks is idle in the last wave: of one column all, of three some are cut anew.
    assert rows % 2
    assert (-(-first.n // 128), -(-second.n // 128)) == (1, 3)


def test_some_config_has_small_tiles_of_two_heights() -> None:
    family = load_family("gemm_wgmma")
    *seeds, last = verified_by_default(family, DEVICE)
    assert tuple(seeds) == family.seeds
    values = last.as_dict()
    assert values["SHORT_BY"] > 0
    case = planned_cases(family, last, DEVICE, DType.BF16)[0]
    assert case.problem.flops < SMALL_FLOPS / 2
    smallest = min(
        planned_cases(family, seed, DEVICE, DType.BF16)[0].problem.flops
        for seed in seeds
        if seed["SHORT_BY"]
    )
    assert case.problem.flops < smallest / 2
    assert is_legal(family, last, case.problem, DEVICE)


def test_some_config_has_small_tiles_that_blocks_share() -> None:
    family = load_family("sgemm_simt")
    *seeds, last = verified_by_default(family, DEVICE)
    assert tuple(seeds) == family.seeds
    assert last["STREAM_BLOCKS"] == DEVICE.num_sms
    first, second, third = planned_cases(family, last, DEVICE)[:3]
    assert max(first.problem.flops, second.problem.flops) < SMALL_FLOPS / 2
    assert third.problem.flops < SMALL_FLOPS
    assert all(is_legal(family, last, one.problem, DEVICE) for one in (first, second, third))


def test_tiles_that_two_blocks_share_are_as_deep_as_two_pipelines() -> None:
    """Two ranges of K, however many blocks may share a tile; of all tiles there are eight."""
    family = load_family("gemm_wgmma")
    base = family.completed(family.seeds[0]).as_dict()
    split = base | {"SPLIT_K": 8, "EPILOGUE": "after", "C_BUFFERS": 2}
    deep = {}
    for partials in ("workspace", "last_wave"):
        config = Config.of("gemm_wgmma", split | {"PARTIALS": partials})
        schedule = schedule_of(family, config, DEVICE, DType.BF16)
        deep[partials] = schedule.deep * schedule.tile[2]
    # The pipeline of four stages goes round twice by nine k_tiles, whoever has them.
    assert base["STAGES"] == 4
    assert deep["workspace"] == 8 * 9 * 64
    assert deep["last_wave"] == (2 * 8 + 1) * 64


def test_some_config_adds_partial_sums_level_by_level() -> None:
    *seeds, last = verified_by_default(load_family("sgemm_skinny"), DEVICE)
    assert tuple(seeds) == load_family("sgemm_skinny").seeds
    values = last.as_dict()
    assert (values["SPLIT_K"], values["FAN_IN"]) == (6, 4)
    assert not broken_constraints(load_family("sgemm_skinny"), last, Problem(67, 72, 641), DEVICE)
    for name in ("tiled", "naive", "gemm_mma"):
        assert verified_by_default(load_family(name), DEVICE) == load_family(name).seeds


def test_what_has_new_lines_comes_first() -> None:
    family = load_family("sgemm_simt")
    grouped, plain, shared = (
        Config.of("sgemm_simt", first_cases(G)[0].config.as_dict() | changes)
        for changes in ({}, {"GROUP_M": 1}, {"STREAM_BLOCKS": 132})
    )
    sets = [planned_cases(family, each, DEVICE) for each in (grouped, plain, shared)]
    order = list(coverage_order(family, sets))
    # Shared tiles have most lines; with groups all but what is written for one row of tiles.
    assert [index for index, _ in order[:4]] == [2, 1, 2, 1]
    assert {index for index, _ in order[:20]} == {2, 1}
    assert sorted(map(id, (case for _, case in order))) == sorted(
        id(case) for each in sets for case in each
    )


@pytest.mark.parametrize("name", [T, W])
def test_a_splitting_needs_some_products(emulator: Emulator, name: str) -> None:
    """Splitting loses more than FP32 rounds where products are few; from K = 9 on it does not."""
    family_name, values = CONFIGS[name]
    few = {"SPLIT": "bf16x6", "CHUNK": 16} if name == T else {}
    config, family = Config.of(family_name, values | few), load_family(family_name)
    rules = {
        k: broken_constraints(family, config, Problem(129, 65, k), DEVICE) for k in range(1, 10)
    }
    assert all(len(rules[k]) == 1 and "few products" in rules[k][0] for k in range(1, 9))
    assert rules[9] == []
    for k, is_right in ((1, False), (9, True)):
        assert verified(emulator, Case(config, Problem(129, 65, k)), None) is is_right
    if name == T:
        exact = Config.of(family_name, values | {"SPLIT": "bf16x9", "CHUNK": 16})
        assert not broken_constraints(family, exact, Problem(129, 65, 1), DEVICE)
        assert verified(emulator, Case(exact, Problem(129, 65, 1)), None)


def test_a_result_beyond_the_type_is_infinite(emulator: Emulator) -> None:
    family = load_family("gemm_mma")
    problem = Problem(64, 64, 64, dtype=DType.parse("f16"), alpha=300_000.0)
    config = next(
        seed for seed in family.seeds if not broken_constraints(family, seed, problem, DEVICE)
    )
    assert verified(emulator, Case(config, problem), None)
    largest = Mutation(
        "", "stays finite", "? with.alpha * accum :", "? fminf(with.alpha * accum, 65504.0f) :"
    )
    assert not verified(emulator, Case(config, problem), largest)


def test_a_problem_beyond_a_group_of_rows_is_among_the_small_ones() -> None:
    """Those that `autogemm verify` runs first; a wrong second group would survive its 40 s else."""
    family, device = load_family("gemm_wgmma"), find_device("h100")
    problem = Problem(4096, 4096, 4096, dtype=DType.BF16)
    leading = covering_cases(family, [Case(seed, problem) for seed in family.seeds])
    beyond = [
        case
        for one in leading
        if (schedule := schedule_of(family, one.config, device, DType.BF16)).group_rows > 1
        for case in planned_cases(family, one.config, device, DType.BF16)[:FIRST_RUN]
        if case.problem.m > schedule.group_rows * schedule.tile[0]
        and case.problem.flops <= SMALL_FLOPS
    ]
    assert any(case.config["GROUP_M"] != 1 for case in beyond)
