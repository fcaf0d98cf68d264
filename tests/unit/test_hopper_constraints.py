"""Configs of gemm_wgmma that were wrong on a GPU, or did not compile, are not legal."""

import pytest

from autogemm.catalogue.gpus import find_device
from autogemm.model.batch import Batch
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.epilogue import Epilogue
from autogemm.model.problem import Layout, Problem
from autogemm.space import broken_constraints, build_space, expected_time, load_family

PROBLEM = Problem(1024, 1024, 1024, dtype=DType.BF16)
BASE: dict[str, Value] = {
    **{"BM": 192, "BN": 64, "WM": 192, "WN": 64, "STAGES": 2, "SCHEDULE": "cooperative"},
    **{"CLUSTER_M": 1, "CLUSTER_N": 1, "SPLIT_K": 1, "BOX_M": 64, "C_BUFFERS": 1},
    **{"GROUP_M": 1, "BLOCKS": 0, "EPILOGUE": "after", "K_ORDER": "forward"},
    **{"SWAP_AB": 0, "SHORT_BY": 0},
}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        # Half of three row tiles: sums of one row tile would go to two blocks.
        ({"SPLIT_K": 2}, "whole row tiles"),
        # 512 threads start with 128 registers each, and an instruction has 128 sums.
        ({"BN": 256, "WM": 64, "WN": 256}, "that a thread starts with"),
        # Rows that no instruction makes, unless C^T is made.
        ({"BM": 200, "BN": 128, "WM": 200, "WN": 128, "BOX_M": 40}, "64 rows"),
        ({"SWAP_AB": 1}, "two side by side"),
    ],
)
def test_illegal(values: dict[str, Value], reason: str) -> None:
    family, device = load_family("gemm_wgmma"), find_device("h100")
    assert broken_constraints(family, Config.of("gemm_wgmma", BASE), PROBLEM, device) == []
    broken = broken_constraints(family, Config.of("gemm_wgmma", BASE | values), PROBLEM, device)
    assert any(reason in one for one in broken), broken


SIDE_BY_SIDE: dict[str, Value] = {"BM": 64, "WM": 64, "BN": 192, "WN": 96}
BELOW: dict[str, Value] = {
    **{"BM": 192, "WM": 96, "BN": 128, "WN": 128},
    **{"SWAP_AB": 1, "BOX_M": 8, "C_BUFFERS": 2},
}


@pytest.mark.parametrize(
    ("layout", "values", "reason"),
    [(Layout.NN, SIDE_BY_SIDE, "B's columns"), (Layout.TN, BELOW, "A's rows")],
)
def test_warpgroups_begin_with_stripes_of_what_lies_across_k(
    layout: Layout, values: dict[str, Value], reason: str
) -> None:
    """Found on a GPU, and in the emulator: the second of them had the wrong k."""
    family, device = load_family("gemm_wgmma"), find_device("h100")
    config = Config.of("gemm_wgmma", BASE | values)
    along = Problem(1024, 1024, 1024, Layout.NT, DType.BF16)
    assert broken_constraints(family, config, along, device) == []
    across = Problem(1024, 1024, 1024, layout, DType.BF16)
    (broken,) = broken_constraints(family, config, across, device)
    assert f"{reason} come by 64" in broken


@pytest.mark.parametrize("layout", [Layout.NN, Layout.TN, Layout.TT])
def test_no_legal_warpgroup_begins_within_a_stripe(layout: Layout) -> None:
    problem = Problem(1024, 1536, 1024, layout, DType.BF16)
    space = build_space(load_family("gemm_wgmma"), problem, find_device("h200"))
    names = [parameter.name for parameter in space.parameters]
    columns = [names.index(name) for name in ("BM", "WM", "BN", "WN")]
    rows = {tuple(row) for row in space.codes[:, columns].tolist()}
    values = [space.parameters[column].values for column in columns]
    tiles = {tuple(all_[code] for all_, code in zip(values, row, strict=True)) for row in rows}
    assert len(tiles) > 20
    for bm, wm, bn, wn in tiles:
        assert not layout.trans_a or wm == bm or int(wm) % 64 == 0, (bm, wm)
        assert layout.trans_b or wn == bn or int(wn) % 64 == 0, (bn, wn)


@pytest.mark.parametrize(
    ("problem", "packed", "stored"),
    [
        (Problem(1024, 1024, 1024, dtype=DType.BF16), {"none"}, {"tma"}),
        (Problem(1024, 1024, 1020, dtype=DType.BF16), {"a"}, {"tma"}),
        (Problem(1020, 1024, 1020, Layout.TN, DType.BF16), {"a"}, {"tma"}),
        # Parts of K are added up without boxes.
        (Problem(1500, 1500, 1500, dtype=DType.BF16), {"both"}, {"threads", "tma"}),
        (Problem(1024, 1023, 1024, Layout.NT, DType.BF16), {"none"}, {"threads", "tma"}),
        # Where both TF32 operands are stored across k, one is transposed.
        (Problem(1024, 1024, 1024, Layout.TN, DType.TF32), {"a", "b"}, {"tma"}),
        (Problem(1024, 1024, 1024, Layout.NN, DType.TF32), {"none"}, {"tma"}),
    ],
)
def test_what_is_packed_is_what_must_be(
    problem: Problem, packed: set[str], stored: set[str]
) -> None:
    space = build_space(load_family("gemm_wgmma"), problem, find_device("h200"))
    configs = [space.config(i) for i in range(0, len(space), 7)]
    assert {config["PACK"] for config in configs} == packed
    assert {config["STORE_C"] for config in configs} == stored
    for config in configs:
        assert problem.n % 8 == 0 or config["STORE_C"] == "threads" or config["SPLIT_K"] != 1


BLOCKS = "acc * sa[k / 128, m] * sb[n / 128, k / 128]"
GATED = "silu(acc[n]) * acc[n + N]"


@pytest.mark.parametrize("size", [(64, 64, 64), (16, 512, 512), (256, 256, 256), (512, 384, 640)])
@pytest.mark.parametrize(
    ("dtype", "epilogue"),
    [
        *((dtype, "") for dtype in DType if dtype.ab.size_bytes < 4),
        *((dtype, BLOCKS) for dtype in (DType.E4M3, DType.E5M2_F32, DType.E4M3_E4M3)),
        *((dtype, GATED) for dtype in (DType.BF16, DType.E4M3, DType.E4M3_E4M3, DType.BF16_E4M3)),
    ],
    ids=str,
)
def test_a_small_problem_has_configs_to_try(
    size: tuple[int, int, int], dtype: DType, epilogue: str
) -> None:
    problem = Problem(*size, Layout.NT, dtype, epilogue=Epilogue(epilogue))
    assert len(build_space(load_family("gemm_wgmma"), problem, find_device("h200"))) >= 100


def test_tiles_that_fill_the_waves_are_expected_to_be_faster() -> None:
    """At 5056 tiles of 128x256 are 6.06 waves on 132 SMs, those of 200x256 3.94."""
    problem = Problem(5056, 5056, 5056, dtype=DType.BF16)
    family, device = load_family("gemm_wgmma"), find_device("h200")

    def least_expected(height: int, width: int) -> float:
        space = build_space(family, problem, device, {"BM": (height,), "BN": (width,)})
        names, columns = space.features()
        # Logarithms to the base of two.
        return float(2 ** columns[:, names.index("expected_time")].min())

    assert least_expected(128, 256) > 1.08 * least_expected(200, 256)


@pytest.mark.parametrize(("k", "gain"), [(3000, 1.3), (3008, 1.0)])
def test_sharing_loads_is_expected_to_pay_where_rows_are_off_lines(k: int, gain: float) -> None:
    """Rows of 3008 elements are 47 lines of L2, those of 3000 begin between lines."""
    family, device = load_family("gemm_wgmma"), find_device("h100")
    tile: dict[str, Value] = {"BM": 128, "BN": 256, "WM": 64, "WN": 256, "BLOCKS": 0}
    problem = Problem(3072, 3072, k, Layout.NT, DType.BF16)

    def expected(below: int) -> int:
        config = Config.of("gemm_wgmma", BASE | tile | {"CLUSTER_M": below})
        time = expected_time(family, family.completed(config), problem, device)
        assert time is not None
        return time

    assert expected(1) >= gain * expected(2)
    assert gain > 1.0 or expected(1) == expected(2)


def test_functions_of_an_epilogue_are_expected_to_hide_behind_products() -> None:
    """At 4096 an SM has four tiles of 128x256, or eight of 128x128, of which one is left to end."""
    family, device = load_family("gemm_wgmma"), find_device("h200")
    plain = Problem(4096, 4096, 4096, Layout.NT, DType.BF16)
    cooperative: dict[str, Value] = {"BM": 128, "BN": 256, "WM": 64, "WN": 256}
    pingpong: dict[str, Value] = {
        "BM": 128,
        "BN": 128,
        "WM": 128,
        "WN": 128,
        "SCHEDULE": "pingpong",
    }

    def taken(changes: dict[str, Value], text: str) -> int:
        config = family.completed(Config.of("gemm_wgmma", BASE | {"BLOCKS": 132} | changes))
        times = [
            expected_time(family, config, one, device)
            for one in (plain.with_epilogue(Epilogue(text)), plain)
        ]
        assert times[0] is not None and times[1] is not None
        return times[0] - times[1]

    assert taken(cooperative, "relu(acc)") == taken(pingpong, "relu(acc)") == 0
    assert taken(cooperative, "gelu_tanh(acc)") == 4 * 128 * 256 * 2 // 16
    assert taken(pingpong, "gelu_tanh(acc)") == 128 * 128 * 2 // 16


def test_no_tile_writes_faster_than_the_memory() -> None:
    """256 MiB of C at 3.35 TB/s are 80 us, whatever the tile: 140 thousand cycles and more."""
    problem = Problem(8192, 16384, 64, dtype=DType.BF16)
    space = build_space(load_family("gemm_wgmma"), problem, find_device("h100"))
    names, columns = space.features()
    assert 2 ** columns[:, names.index("expected_time")].min() > 140_000


def searched(side: int, products: int, *names: str) -> set[tuple[Value, ...]]:
    """The values that a search tries for so many products of squares."""
    problem = Problem(side, side, side, dtype=DType.BF16, batch=Batch(products))
    space = build_space(load_family("gemm_wgmma"), problem, find_device("h200"))
    configs = (space.config(i).as_dict() for i in range(len(space)))
    return {tuple(config[name] for name in names) for config in configs}


def test_stages_hold_k_tiles_of_a_blocks_next_products() -> None:
    """A product of 64 has one k tile; of 4096 a block has 31 or 32, of 256 two or one."""
    names = ("BM", "BN", "BLOCKS", "STAGES")
    many, few = searched(64, 4096, *names), searched(64, 256, *names)
    assert {(64, 64, 132, stages) for stages in (2, 3, 4, 5, 6, 7, 8, 10, 12)} <= many
    assert {stages for *_, blocks, stages in many if blocks == 0} == {2}
    assert {stages for *_, stages in few} == {2}


def test_tiles_fit_the_rows_of_small_products() -> None:
    odd = {height for (height,) in searched(200, 300, "BM")} - {64, 128, 192, 256}
    assert odd == {72, 80, 104, 112, 200, 208}
    assert {height for (height,) in searched(96, 1000, "BM")} >= {96, 128}


def test_blocks_of_one_tile_share_an_sm() -> None:
    """One warp loads for one warpgroup: there are registers for at least another such block."""
    found = searched(128, 512, "BLOCKS", "LOAD_WARPS", "SCHEDULE", "BM", "BN", "WM", "WN")
    assert {one[:2] for one in found} == {(0, 1), (132, 4), (120, 4)}
    for blocks, _, schedule, *tile in found:
        assert blocks > 0 or (schedule == "cooperative" and tile[:2] == tile[2:])
    # As many tiles as SMs at most: nothing to share.
    assert (64, 128, 0, 1) not in searched(128, 64, "BM", "BN", "BLOCKS", "LOAD_WARPS")


def test_a_single_warp_loads_for_a_tile_of_a_batch_alone() -> None:
    family, device = load_family("gemm_wgmma"), find_device("h100")
    alone = BASE | {"BM": 64, "WM": 64, "LOAD_WARPS": 1}
    batch = Problem(64, 64, 64, dtype=DType.BF16, batch=Batch(512))
    assert broken_constraints(family, Config.of("gemm_wgmma", alone), batch, device) == []
    for values, problem in (
        ({}, PROBLEM),
        ({"BLOCKS": 132}, batch),
        ({"SCHEDULE": "pingpong"}, batch),
    ):
        config = Config.of("gemm_wgmma", alone | values)
        broken = broken_constraints(family, config, problem, device)
        assert any("a single warp loads" in one for one in broken), broken


def test_tiles_of_a_small_product_are_walked_in_one_order() -> None:
    """Neither more rows together than it has, nor clusters of which a block has no tile."""
    names = ("BM", "BN", "GROUP_M", "CLUSTER_M", "CLUSTER_N")
    for height, width, together, below, beside in searched(128, 512, *names):
        assert together == 1 or height == 64
        assert below == 1 or height == 64
        assert beside == 1 or width == 64
