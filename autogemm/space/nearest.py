"""A config that was good elsewhere, moved to the nearest one that is legal, or good, here."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from autogemm.model.config import Config
from autogemm.model.groups import Groups
from autogemm.model.hardware.device import Device
from autogemm.model.problem import Problem
from autogemm.space.build import nearest_config
from autogemm.space.derived import broken_rules, is_legal
from autogemm.space.family import Constraint, Family
from autogemm.support.errors import EmptySpaceError

# Parameters that characterise a kernel; the others (widths, padding, parts of K) may change.
KEPT_NAMES = ("BM", "BN", "BK", "WM", "WN", "TM", "TN", "STAGES")
# Those of them that count columns of C, of which a gated problem multiplies two for each.
COLUMN_NAMES = ("BN", "WN", "TN")


def same_tiles(one: Config, other: Config) -> bool:
    """Whether `nearest_legal` and `fitted` may make one of the other."""
    values, others = one.as_dict(), other.as_dict()
    return one.family == other.family and all(
        values.get(name) == others.get(name) for name in KEPT_NAMES
    )


def nearest_legal(
    family: Family, config: Config, problem: Problem, device: Device
) -> Config | None:
    """The config itself where it is legal, else the nearest legal one with the same tiles.

    It is one that the search would take if it took the tiles: rules of ``worth_trying`` that speak
    of tiles alone do not count. Where a gated problem leaves no room for the tiles, they have half
    of the columns: as many of the product. None where there is none. Raises UsageError for a config
    that is none of the family's.
    """
    config = family.completed(config)
    if is_legal(family, config, problem, device):
        return config
    found = _with_its_tiles(family, config, problem, device)
    if found is None and problem.epilogue.num_columns > 1:
        narrower = _half_as_wide(family, config)
        return narrower and _with_its_tiles(family, narrower, problem, device)
    return found


def _half_as_wide(family: Family, config: Config) -> Config | None:
    """The config with half of the columns in each tile; None where the family has no such tiles."""
    halved = {
        name: value // 2
        for name, value in config
        if name in COLUMN_NAMES and isinstance(value, int)
    }
    if not all(one.allows(halved.get(one.name, one.values[0])) for one in family.parameters):
        return None
    return replace(config, values=tuple((config.as_dict() | halved).items()))


def _with_its_tiles(
    family: Family, config: Config, problem: Problem, device: Device
) -> Config | None:
    """The nearest legal config with the tiles of this one, which itself may be illegal."""
    kept = {name: (value,) for name, value in config if name in KEPT_NAMES}
    rules = tuple(
        rule
        for rule in family.worth_trying
        if not family.parameters_below(rule.require.names) <= frozenset(KEPT_NAMES)
    )
    with suppress(EmptySpaceError):
        return nearest_config(replace(family, worth_trying=rules), problem, device, kept, config)
    return None


def fitted(family: Family, config: Config, problem: Problem, device: Device) -> Config | None:
    """Like `nearest_legal`; where tiles leave edges, the config that the search would take.

    A kernel that was tuned without edges may treat them in the slower of two ways. The rules of
    ``worth_trying`` that it breaks here and keeps where its tiles fit show this; one other
    parameter that such a rule reads may mend it.
    """
    legal = nearest_legal(family, config, problem, device)
    if legal is None:
        return None
    whole = _without_edges(legal, problem)
    broken = broken_rules(family, legal, problem, device) if whole != problem else ()
    usual = broken_rules(family, legal, whole, device) if broken else ()
    spoiled = [rule for rule in broken if rule not in usual]
    if not spoiled:
        return legal
    for other in _neighbours(family.on(device), legal, spoiled):
        if is_legal(family, other, problem, device) and all(
            rule in usual for rule in broken_rules(family, other, problem, device)
        ):
            return other
    return legal


def _without_edges(config: Config, problem: Problem) -> Problem:
    """The problem with extents that are multiples of the tile's."""
    sizes = (problem.m, problem.n, problem.k)
    tiles = [config.as_dict().get(name) for name in ("BM", "BN", "BK")]
    m, n, k = (
        math.ceil(size / tile) * tile if isinstance(tile, int) else size
        for size, tile in zip(sizes, tiles, strict=True)
    )
    if (m, n, k) == sizes:
        return problem
    # Rules count groups, however rows are spread.
    groups = Groups(problem.groups.count)
    whole = Problem(m, n, k, problem.layout, problem.dtype, groups=groups)
    return whole.with_epilogue(problem.epilogue)


def _neighbours(family: Family, config: Config, rules: list[Constraint]) -> Iterator[Config]:
    """Configs with one other value of what these rules read, tiles apart."""
    read = family.parameters_below(name for rule in rules for name in rule.require.names)
    for parameter in family.parameters:
        if parameter.name in read.difference(KEPT_NAMES):
            for value in parameter.values:
                if value != config[parameter.name]:
                    yield Config.of(family.name, {**config.as_dict(), parameter.name: value})
