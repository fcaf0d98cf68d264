"""The schedule of a config: the sizes that decide which problems reach all of its code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space import (
    DEFAULT_TILE,
    Family,
    Tile,
    derive_values,
    is_legal,
    stages_of,
    tile_of,
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The sizes from which a config's kernel does something else than for smaller problems.

    ``tile`` is BM, BN and the depth of a k_tile. ``group_rows`` of tiles are walked together
    (GROUP_M). A chain of additions ends after ``chain_k`` of K, 0 where there are none (CHAIN_K).
    K is split over ``k_ranges``: over SPLIT_K blocks, and in each over ``slices``, groups of warps
    with `pipelines` of their own.
    ``sharing_blocks`` share the tiles of the last wave (STREAM_BLOCKS). Short tiles have
    ``short_by`` rows less (SHORT_BY). ``stages`` counts k_tiles of that depth. The tiles of a
    ``cluster`` lie side by side, so many below each other and so many in a row.
    """

    tile: Tile = DEFAULT_TILE
    stages: int = 1
    group_rows: int = 1
    chain_k: int = 0
    k_ranges: int = 1
    slices: int = 1
    sharing_blocks: int = 0
    short_by: int = 0
    cluster: tuple[int, int] = (1, 1)

    @property
    def rounds(self) -> int:
        """The k_tiles by which the pipeline goes round twice.

        Each slot is then filled again with the parity that it began with.
        """
        return rounds_of(self.stages)

    @property
    def filled(self) -> int:
        """The k_tiles by which some range of K fills the pipeline and goes on."""
        return self.k_ranges * self.stages + 1

    @property
    def k_tiles_multiple(self) -> int:
        """All slices of a block get the same number of k_tiles if there is a multiple of these."""
        return self.k_ranges if self.slices > 1 else 1

    @property
    def filled_equally(self) -> int:
        """The k_tiles by which each slice of a block fills its pipeline and goes on."""
        return self.k_tiles_multiple * (self.stages + 1)

    @property
    def deep(self) -> int:
        """The k_tiles that end a chain, and by which in some range the pipeline goes round."""
        depth = self.tile[2]
        chain = -(-self.chain_k // depth) + 1 if self.chain_k else 0
        return max(self.k_ranges * (self.rounds - 1) + 1, chain)


def rounds_of(stages: int) -> int:
    """Return the k_tiles by which a pipeline of ``stages`` goes round twice."""
    return 2 * stages + 1


def schedule_of(family: Family, config: Config, device: Device, dtype: DType) -> Schedule:
    """Return the schedule of a config, from the names of parameters that all families share.

    A family that names them otherwise gets the default of each.
    """
    values = derive_values(family, config, Problem(1, 1, 1, dtype=dtype))
    values |= family.completed(config).as_dict()
    tile = tile_of(family, config, device, dtype)
    # A cluster's tile has so many blocks below each other, and so has a group.
    cluster_rows = max(_number(values, "CLUSTER_M", 1), _number(values, "CLUSTER", 1))
    # The slices of a block, and the groups of lanes of a warp, have chains of their own.
    chains = _number(values, "SLICE_K", 1) * _number(values, "lanes_k", 1)
    splits = _number(values, "SPLIT_K", 1)
    if values.get("PARTIALS") == "last_wave":
        # A certificate runs two blocks, and they share the tile that is left.
        splits = min(splits, 2)
    slices = _number(values, "pipelines", 1)
    own_depth = _number(values, "BK", _number(values, "depth", tile[2]))
    return Schedule(
        tile,
        stages_of(family, config),
        _number(values, "GROUP_M", 1) * cluster_rows,
        _number(values, "CHAIN_K", 0) * chains * splits,
        # tile_of() counts the ranges where no less is legal.
        max(1, splits * slices * own_depth // tile[2]),
        slices,
        _number(values, "STREAM_BLOCKS", 0),
        _number(values, "SHORT_BY", 0),
        (cluster_rows, _number(values, "CLUSTER_N", 1)),
    )


def verified_by_default(family: Family, device: Device) -> tuple[Config, ...]:
    """Return the family's seeds, and configs that are there for their schedule.

    One adds partial sums level by level, if no seed does so: there are two levels of FAN_IN where K
    is split over more ranges than it says. Others have small tiles of two heights, or that blocks
    share, if seeds have large ones: all waves of these take the emulator too long.
    """
    small = (_with_two_heights(family, device), _with_shared_tiles(family, device))
    return (*family.seeds, *_with_two_levels(family), *chain.from_iterable(small))


def _with_two_levels(family: Family) -> list[Config]:
    def num_levels(config: Config) -> int:
        values = config.as_dict()
        return 1 + (_number(values, "SPLIT_K", 1) > _number(values, "FAN_IN", 1))

    fan_ins = _declared(family, "FAN_IN")
    if not fan_ins or any(num_levels(seed) > 1 for seed in family.seeds):
        return []
    split = next(value for value in _declared(family, "SPLIT_K") if value > fan_ins[0])
    base = max(family.seeds, key=lambda seed: _number(seed.as_dict(), "SPLIT_K", 1))
    levels = base.as_dict() | {"SPLIT_K": split, "FAN_IN": fan_ins[0]}
    return [Config.of(family.name, levels)]


def _with_two_heights(family: Family, device: Device) -> list[Config]:
    seeds = [seed for seed in family.seeds if _number(seed.as_dict(), "SHORT_BY", 0)]
    if not seeds:
        return []
    dtypes = [dtype for dtype in DType if family.fits(dtype)]
    # Each with a problem of as many tiles as an edge case has.
    sized: dict[Config, Problem] = {}
    for seed in seeds:
        _, columns, depth = tile_of(family, seed, device, dtypes[0])
        for rows, less in product(_declared(family, "BM"), _declared(family, "SHORT_BY")):
            if 0 < less < rows:
                heights = {"BM": rows, "WM": rows, "SHORT_BY": less}
                config = _with(seed, heights)
                sized[config] = Problem(rows_of_tiles(rows, less) * rows, columns, depth)
    return _smallest_legal(family, device, sized, dtypes)


def _with_shared_tiles(family: Family, device: Device) -> list[Config]:
    shared = [_number(seed.as_dict(), "STREAM_BLOCKS", 0) for seed in family.seeds]
    if not any(shared):
        return []
    blocks = min(filter(None, shared))
    dtypes = [dtype for dtype in DType if family.fits(dtype)]
    sized = {}
    for seed in family.seeds:
        rows, columns, depth = tile_of(family, seed, device, dtypes[0])
        config = _with(seed, {"SPLIT_K": 1, "STREAM_BLOCKS": blocks})
        # About as many tiles, and k_tiles, as an edge case has.
        sized[config] = Problem(2 * rows, 5 * columns, blocks // 6 * depth)
    return _smallest_legal(family, device, sized, dtypes)


def _with(seed: Config, values: Mapping[str, Value]) -> Config:
    """Return the seed with those of the values that its family has a parameter for."""
    own = seed.as_dict()
    known = {name: value for name, value in values.items() if name in own}
    return Config.of(seed.family, own | known)


def _smallest_legal(
    family: Family, device: Device, sized: Mapping[Config, Problem], dtypes: Sequence[DType]
) -> list[Config]:
    """Return the config with the smallest problem that is legal for it, if it is no seed."""
    by_size = sorted(sized, key=lambda config: (sized[config].flops, config.label))
    for dtype, config in product(dtypes, by_size):
        if is_legal(family, config, replace(sized[config], dtype=dtype), device):
            return [] if config in family.seeds else [config]
    return []


def rows_of_tiles(rows: int, less: int) -> int:
    """Return an odd number of tiles, ``rows`` high, whose rows one tile more covers if all but one
    are ``less`` rows shorter.
    """
    return -(-rows // less) | 1


def _declared(family: Family, name: str) -> list[int]:
    """Return the numbers that a parameter may be, the smallest first; none where there is none."""
    named = (parameter for parameter in family.parameters if parameter.name == name)
    return sorted(value for one in named for value in one.values if isinstance(value, int))


def _number(values: dict[str, Value], name: str, default: int) -> int:
    value = values.get(name)
    return value if isinstance(value, int) else default
