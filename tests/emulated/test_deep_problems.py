"""Edge cases are as deep as a config's k_tiles and stages: what goes wrong when a ring goes round
shows, and kernels whose blocks share a tile's k are checked at all.
"""

from pathlib import Path

import pytest
from sampling import one_in

from autogemm.catalogue.gpus import find_device
from autogemm.emulator import Emulator, Mode
from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.problem import Layout, Problem
from autogemm.space import Family, broken_constraints, launch_plan, load_family, stages_of, tile_of
from autogemm.verify.cases import Case, cases_of, on_cpu
from autogemm.verify.certify import few_tiles
from autogemm.verify.edge_cases import edge_cases
from autogemm.verify.schedule import Schedule, schedule_of

pytestmark = pytest.mark.emulated

DEVICE = find_device("h100")
WGMMA = load_family("gemm_wgmma")
SMALL: dict[str, Value] = {
    **{"BM": 64, "BN": 64, "WM": 64, "WN": 64, "STAGES": 2, "C_BUFFERS": 1, "GROUP_M": 1},
    **{"BLOCKS": 0, "EPILOGUE": "after"},
}
CONFIG = Config.of("gemm_wgmma", WGMMA.seeds[0].as_dict() | SMALL)


def depths(family: Family, config: Config, dtype: DType) -> set[int]:
    """K of all edge cases that are legal, and of those of a few tiles."""
    cases = cases_of(family, config, DEVICE, adapt=False, dtype=dtype).cases
    schedule = schedule_of(family, config, DEVICE, dtype)
    few = few_tiles(Problem(4096, 4096, 4096, dtype=dtype), schedule)
    return {case.problem.k for case in cases} | {problem.k for problem in few}


@pytest.mark.parametrize("dtype", [DType.BF16, DType.TF32, DType.E4M3])
@pytest.mark.parametrize("config", one_in(3, WGMMA.seeds), ids=lambda config: config.label)
def test_some_problems_fill_every_slot_of_a_ring_three_times(config: Config, dtype: DType) -> None:
    large = Problem(4096, 4096, 4096, Layout.NT, dtype)
    if broken_constraints(WGMMA, config, large, DEVICE):
        values = config.as_dict().items()
        of_16_bits = {("EPILOGUE", "overlapped"), ("SWAP_AB", 1)} & values
        of_batches = {("EVICT", "inputs_first"), ("LOAD_WARPS", 1)} & values
        assert of_16_bits or of_batches or config["PROMOTE"] != 0
        pytest.skip("for elements of 16 bits, or of 8, or for batches")
    k_tile = 128 // dtype.size_bytes * int(config["SPLIT_K"])
    stages = stages_of(WGMMA, config)
    assert tile_of(WGMMA, config, DEVICE, dtype)[2] == k_tile
    ks = depths(WGMMA, config, dtype)
    assert any(k > 2 * stages * k_tile and k % k_tile for k in ks), "ragged"
    assert any(k > 2 * stages * k_tile and k % k_tile == 0 for k in ks), "whole"
    assert any(k <= k_tile for k in ks), "short ones are there as well"


def test_families_that_name_their_k_tiles_keep_them() -> None:
    family = load_family("sgemm_simt")
    config = family.seeds[0]
    tile = tuple(config[name] for name in ("BM", "BN", "BK"))
    assert tile_of(family, config, DEVICE, DType.F32) == tile
    naive = load_family("naive")
    assert tile_of(naive, naive.seeds[0], DEVICE, DType.F32)[2] == 8


def planted(folder: Path, template: str, old: str, new: str) -> Family:
    """The family with one slip in one of its templates."""
    assert WGMMA.template_path is not None
    text = (WGMMA.template_path.parent / template).read_text()
    assert text.count(old) == 1
    (folder / "gemm_wgmma.yaml").write_bytes(WGMMA.yaml_path.read_bytes())
    (folder / "gemm_wgmma.cu.jinja").write_bytes(WGMMA.template_path.read_bytes())
    (folder / template).parent.mkdir(parents=True)
    (folder / template).write_text(text.replace(old, new))
    return load_family(folder)


def flat(turns: tuple[tuple[Problem, ...], ...]) -> tuple[Problem, ...]:
    return tuple(problem for turn in turns for problem in turn)


def all_right(
    emulator: Emulator, family: Family, problems: tuple[Problem, ...], config: Config = CONFIG
) -> bool:
    legal = [one for one in problems if not broken_constraints(family, config, one, DEVICE)]
    assert len(legal) > 3
    check = on_cpu(family, emulator, Mode.CHECK)
    return all(check(Case(config, problem)).ok for problem in legal)


def test_a_parity_that_stays_when_the_ring_goes_round_is_found(
    emulator: Emulator, tmp_path: Path
) -> None:
    family = planted(tmp_path, "parts/pipeline/tma_pipeline.cu.jinja", "parity ^= 1;", "")
    layouts = (Layout.NT,)
    # Problems of one k_tile or less, whatever their K: the ring does not go round.
    assert all_right(emulator, family, flat(edge_cases(Schedule((64, 64, 8)), layouts, DType.BF16)))
    tile, stages = tile_of(WGMMA, CONFIG, DEVICE, DType.BF16), stages_of(WGMMA, CONFIG)
    deep = flat(edge_cases(Schedule(tile, stages), layouts, DType.BF16))
    assert not all_right(emulator, family, deep)
    assert all_right(emulator, WGMMA, deep)


def test_what_only_a_blocks_second_tile_shows_is_found(emulator: Emulator, tmp_path: Path) -> None:
    family = planted(
        tmp_path,
        "parts/pipeline/wgmma_producer.cu.jinja",
        "num_k_tiles - 1 - k_tile",
        "num_k_tiles - k_tile",
    )
    serpentine = {"K_ORDER": "serpentine"}
    stays = Config.of("gemm_wgmma", CONFIG.as_dict() | serpentine | {"BLOCKS": 132})
    schedule = Schedule(tile_of(WGMMA, stays, DEVICE, DType.BF16))
    problems = flat(edge_cases(schedule, (Layout.NT,), DType.BF16))
    legal = [one for one in problems if not broken_constraints(WGMMA, stays, one, DEVICE)]
    grids = [launch_plan(WGMMA, stays, one).main.grid[0] for one in legal]
    few = [launch_plan(WGMMA, stays, one, few_blocks=True).main.grid[0] for one in legal]
    assert max(grids) >= 4
    assert few == [2 if blocks > 2 else 1 for blocks in grids]
    assert not all_right(emulator, family, problems, stays)
    assert all_right(emulator, WGMMA, problems, stays)
