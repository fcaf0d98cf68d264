"""What LAST_WAVE of gemm_wgmma launches, what it asks for, and where it is not to be had."""

import pytest

from autogemm.codegen import render
from autogemm.config import Config, Value
from autogemm.device_catalogue import find_device
from autogemm.dtypes import DType
from autogemm.problem import Problem
from autogemm.space import broken_constraints, build_space, derive_values, launch_plan, load_family

FAMILY = load_family("gemm_wgmma")
SIZE_4096 = Problem(4096, 4096, 4096, dtype=DType.BF16)
FEW_TILES = Problem(512, 512, 4096, dtype=DType.BF16)


def config(**changes: Value) -> Config:
    return Config.of(FAMILY.name, FAMILY.seeds[0].as_dict() | changes)


@pytest.mark.parametrize("problem", [SIZE_4096, FEW_TILES], ids=lambda problem: problem.label)
def test_all_blocks_come_and_have_a_place_for_their_part(problem: Problem) -> None:
    plan = launch_plan(FAMILY, config(LAST_WAVE="helped"), problem)
    assert plan.launches[0].grid == (132, 1, 1)
    # 128 x 256 sums, and a flag of each of eight warps.
    assert plan.workspace_bytes == 132 * (128 * 256 * 4 + 8 * 4)
    assert launch_plan(FAMILY, config(LAST_WAVE="alone"), problem).workspace_bytes == 0


@pytest.mark.parametrize(
    ("cluster", "tiles", "of_helper"),
    # 512 tiles for 132 blocks; of clusters 256 for 66.
    [(1, 116, 8), (2, 58, 8)],
)
def test_the_tiles_behind_whole_waves_have_helpers(
    cluster: int, tiles: int, of_helper: int
) -> None:
    values = derive_values(FAMILY, config(LAST_WAVE="helped", CLUSTER_M=cluster), SIZE_4096)
    assert (values["last_tiles"], values["tiles_of_helper"]) == (tiles, of_helper)


def test_a_config_from_before_renders_as_ever() -> None:
    today = config(LAST_WAVE="alone")
    before = {name: value for name, value in today.as_dict().items() if name != "LAST_WAVE"}
    old = Config.of(FAMILY.name, before)
    assert render(FAMILY, old, SIZE_4096).text == render(FAMILY, today, SIZE_4096).text
    assert launch_plan(FAMILY, old, SIZE_4096) == launch_plan(FAMILY, today, SIZE_4096)


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"BLOCKS": 0}, "blocks that stay"),
        ({"SPLIT_K": 2, "BLOCKS": 0, "C_BUFFERS": 1, "EPILOGUE": "behind"}, "in one way"),
        (
            {"BN": 128, "WM": 128, "WN": 128, "SCHEDULE": "turns", "EPILOGUE": "behind"},
            "warpgroups that take turns",
        ),
    ],
)
def test_where_tiles_cannot_be_shared(changes: dict[str, Value], because: str) -> None:
    refused = config(LAST_WAVE="helped", **changes)
    broken = broken_constraints(FAMILY, refused, SIZE_4096, find_device("h100"))
    assert any(because in reason for reason in broken)


def test_the_search_asks_for_help_where_a_wave_is_not_full() -> None:
    fix: dict[str, tuple[Value, ...]] = {"BM": (128,), "BN": (256,), "CLUSTER_M": (1,)}
    h100 = find_device("h100")
    fits = Problem(128 * 33, 256 * 12, 4096, dtype=DType.BF16)
    for problem, values in ((SIZE_4096, {"alone", "helped"}), (fits, {"alone"})):
        space = build_space(FAMILY, problem, h100, fix)
        assert {space.config(index)["LAST_WAVE"] for index in range(len(space))} == values
