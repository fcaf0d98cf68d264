"""The tile of a config and how many slabs of it a block holds, by the names that families use."""

from autogemm.model.config import Config
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space.derived import broken_constraints, derive_values
from autogemm.space.family import Family

Tile = tuple[int, int, int]

TILE_NAMES = ("BM", "BN", "BK")
# Used where the tile of a config is not known.
DEFAULT_TILE: Tile = (32, 32, 8)
# Blocks that share a tile's k may need a slab each.
SLABS_AT_LEAST = (1, 2, 4, 8)


def tile_of(family: Family, config: Config, device: Device, dtype: DType) -> Tile:
    """BM, BN and the depth of a slab: BK, or the derived ``depth`` of a family that has no BK.

    As many slabs as the config needs at least, where several blocks share a tile's k. A default for
    families that name their tiles otherwise.
    """
    derived = derive_values(family, config, Problem(1, 1, 1, dtype=dtype))
    values = {"BK": derived.get("depth"), **family.completed(config).as_dict()}
    bm, bn, bk = (
        value if isinstance(value := values.get(name), int) else default
        for name, default in zip(TILE_NAMES, DEFAULT_TILE, strict=True)
    )
    for slabs in SLABS_AT_LEAST:
        problem = Problem(bm, bn, slabs * bk, dtype=dtype)
        if not broken_constraints(family, config, problem, device):
            return bm, bn, slabs * bk
    return bm, bn, bk


def stages_of(family: Family, config: Config) -> int:
    """Slabs of K that a block holds at once, by the name STAGES; 1 where there is no such name."""
    stages = family.completed(config).as_dict().get("STAGES")
    return stages if isinstance(stages, int) else 1
