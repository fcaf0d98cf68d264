"""Consequences of one config: derived quantities, broken constraints, launch plan, tile."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

import numpy as np

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Device
from autogemm.model.kernel import Extra, Launch, LaunchPlan, TensorMap
from autogemm.model.problem import Layout, Problem
from autogemm.space.expressions.evaluation import Operand
from autogemm.space.expressions.expression import Expression
from autogemm.space.family import (
    EXPECTED_TIME,
    Constraint,
    Family,
    LaunchRule,
    TensorMapRule,
    device_values,
    problem_values,
)
from autogemm.space.inputs import PREFIX, arguments_of
from autogemm.support.errors import FamilyError


def derive_values(family: Family, config: Config, problem: Problem) -> dict[str, Value]:
    """Every derived quantity of the family, as Python integers and texts.

    Raises UsageError for a config that is none of the family's, FamilyError where a quantity
    cannot be computed.
    """
    given = given_values(family, config, problem)
    values: dict[str, Value] = {}
    for name, expression in family.derive.items():
        value = family.value_of(expression, given)
        assert isinstance(value, int | str)
        values[name] = value
    return values


def expected_time(
    family: Family,
    config: Config,
    problem: Problem,
    device: Device,
    derived: Mapping[str, Value] | None = None,
) -> int | None:
    """The family's ``expected_time`` of a config, in units of its own; None where it has none.

    ``derived`` are the `derive_values` of that config, where the caller has them.

    Raises UsageError for a config that is none of the family's, FamilyError where it cannot be
    computed.
    """
    if not family.expected:
        return None
    given = given_values(family, config, problem) | device_values(device) | dict(derived or {})
    for name, expression in family.expected.items():
        given[name] = family.value_of(expression, given)
    value = given[EXPECTED_TIME]
    assert isinstance(value, int)
    return value


def derived_columns(
    family: Family, pairs: Sequence[tuple[Config, Problem]], device: Device
) -> dict[str, Operand]:
    """The values that the family's expressions read and derive of configs, by name: a
    column with one value for each pair, or the one value of all. With the expected time and what
    that reads, where the family expects times.

    Raises as `derive_values` and `expected_time`, which give the same of one pair.
    """
    rows = [given_values(family, config, problem) for config, problem in pairs]
    given: dict[str, Operand] = dict(device_values(device))
    for name, first in rows[0].items():
        values = [row[name] for row in rows]
        given[name] = first if values.count(first) == len(values) else np.array(values)
    for name, expression in (*family.derive.items(), *family.expected.items()):
        given[name] = expression.evaluate(given)
    return given


def broken_constraints(
    family: Family, config: Config, problem: Problem, device: Device
) -> list[str]:
    """``rule: reason`` for every constraint that the config breaks; empty for a legal one.

    A rule that cannot be evaluated counts as broken beside others (a division by a tile that does
    not fit); alone it raises FamilyError. Raises UsageError for a config that is none of the
    family's.
    """
    return list(_broken(family, config, problem, device))


def is_legal(family: Family, config: Config, problem: Problem, device: Device) -> bool:
    """Whether the config breaks no constraint. Raises as `broken_constraints`."""
    return next(_broken(family, config, problem, device), None) is None


def _broken(family: Family, config: Config, problem: Problem, device: Device) -> Iterator[str]:
    given = given_values(family, config, problem) | device_values(device)
    if not family.fits(problem.dtype):
        known = ", ".join(dtype.label for dtype in DType if family.fits(dtype))
        yield f"dtype {problem.dtype}: {family.name} has kernels for {known}"
        return
    if not (problem.batch.is_one or family.takes_batches):
        yield f"batch {problem.batch}: a launch of {family.name} makes one product"
        return
    if reason := family.refuses_groups(problem):
        yield f"groups {problem.groups}: {reason}"
        return
    is_broken = False
    failure: FamilyError | None = None
    for constraint in family.constraints:
        try:
            holds = family.value_of(constraint.require, given)
        except FamilyError as error:
            failure = error
            continue
        if not holds:
            is_broken = True
            yield str(constraint)
    if failure is not None and not is_broken:
        raise failure


def broken_rules(
    family: Family, config: Config, problem: Problem, device: Device
) -> tuple[Constraint, ...]:
    """The rules of ``worth_trying`` that the config breaks: it is right, and seldom fast.

    A rule that cannot be evaluated is none that it breaks.
    """
    given = given_values(family, config, problem) | device_values(device)
    broken = []
    for rule in family.worth_trying:
        with suppress(FamilyError):
            if not family.value_of(rule.require, given):
                broken.append(rule)
    return tuple(broken)


def launch_plan(
    family: Family, config: Config, problem: Problem, *, few_blocks: bool = False
) -> LaunchPlan:
    """The launches of one config on one problem, and what their arguments are made of.

    With ``few_blocks`` those that may walk over more tiles do: for small problems, of which each
    block would have one tile, or none.

    Raises FamilyError for a grid or block below 1 or a negative number of bytes, UsageError for a
    config that is none of the family's.
    """
    given = given_values(family, config, problem)

    def number(expression: Expression, least: int) -> int:
        value = family.value_of(expression, given)
        assert isinstance(value, int)
        if value < least:
            raise expression.error(f"must be at least {least}, is {value} for {config}")
        return value

    def extents(expressions: tuple[Expression, ...]) -> tuple[int, int, int]:
        x, y, z = ([number(expression, 1) for expression in expressions] + [1, 1])[:3]
        return (x, y, z)

    def grid(rule: LaunchRule) -> tuple[int, int, int]:
        x, y, z = extents(rule.grid)
        if few_blocks and rule.fewest is not None:
            fewest = number(rule.fewest, 1)
            # Two clusters at once, or one where that is all they would have.
            x = 2 * fewest if x > 2 * fewest else fewest
        return (x, y, z)

    launches = tuple(
        Launch(
            rule.kernel,
            grid(rule),
            extents(rule.threads),
            number(rule.smem_bytes, 0),
            overlaps=number(rule.overlaps, 0) != 0,
        )
        for rule in family.launch
        if number(rule.when, 0)
    )

    def pair(expressions: tuple[Expression, Expression]) -> tuple[int, int]:
        columns, rows = (number(expression, 1) for expression in expressions)
        return (columns, rows)

    tensor_maps = tuple(
        TensorMap(
            name=rule.name,
            matrix=matrix_of(rule, problem),
            element=rule.element_for(problem.dtype),
            extent=pair(rule.extent),
            ld=number(rule.ld, 1),
            box=pair(rule.box),
            swizzle_bytes=number(rule.swizzle, 0),
            offset_bytes=number(rule.offset_bytes, 0),
            **_stacked(rule, problem, rows=number(rule.extent[1], 1) * number(rule.ld, 1)),
            divided=rule.is_divided(problem),
        )
        for rule in family.tensor_maps
        if number(rule.when, 0)
    )
    names = [one.name for one in tensor_maps]
    if len(set(names)) < len(names):
        twice = max(names, key=names.count)
        raise FamilyError(f"{family.yaml_path}: tensor_maps: two are named {twice} for {config}")
    extras = tuple(
        Extra(
            rule.argument,
            None if rule.extent is None else number(rule.extent, 1),
            rule.neutral,
            rule.is_input,
            rule.is_output,
        )
        for rule in arguments_of(family, problem)
    )
    workspace_bytes = number(family.workspace_bytes, 0)
    stacks = {"batched": not problem.batch.is_one, "grouped": not problem.groups.is_none}
    stacks["masked"] = problem.groups.masked
    every = number(family.fp32_every, 0)
    return LaunchPlan(launches, workspace_bytes, tensor_maps, extras, fp32_every=every, **stacks)


def matrix_of(rule: TensorMapRule, problem: Problem) -> str:
    """The name of the matrix that a map describes; for an epilogue's input that of its argument."""
    if rule.matrix != "input":
        return rule.matrix
    tiled = problem.epilogue.tiled_input(problem.dtype)
    assert tiled is not None, "the map is there where the input is"
    return PREFIX + tiled.name


def _stacked(rule: TensorMapRule, problem: Problem, *, rows: int) -> dict[str, int]:
    """A map's dimension of matrices in a batch or in groups: their number, and elements from one to
    the next.

    Those in a workspace follow each other without a gap, ``rows`` elements each.
    """
    if (problem.batch.is_one and problem.groups.is_none) or rule.is_divided(problem):
        return {}
    if rule.matrix == "workspace":
        return {"matrices": problem.batch.count, "matrix_ld": rows}
    which = "ABC".index(rule.matrix)
    ld = (problem.lda, problem.ldb, problem.ldc)[which]
    between = problem.batch_rows[which] * ld
    return {"matrices": problem.num_matrices[which], "matrix_ld": between or rows}


def given_values(family: Family, config: Config, problem: Problem) -> dict[str, Operand]:
    """The names that a family's expressions read beside derived ones, and their values."""
    return {**problem_values(problem), **family.completed(config).as_dict()}


Tile = tuple[int, int, int]

TILE_NAMES = ("BM", "BN", "BK")
# Used where the tile of a config is not known.
DEFAULT_TILE: Tile = (32, 32, 8)
# Blocks that share a tile's K may need a k_tile each.
LEAST_K_TILES = (1, 2, 4, 8)


def tile_of(family: Family, config: Config, device: Device, dtype: DType) -> Tile:
    """BM, BN and the depth of a k_tile: BK, or the derived ``depth`` of a family without BK.

    The depth of as many k_tiles as the config needs at least, where several blocks share a tile's
    K. A default for families that name their tiles otherwise.
    """
    derived = derive_values(family, config, Problem(1, 1, 1, dtype=dtype))
    values = {"BK": derived.get("depth"), **family.completed(config).as_dict()}
    bm, bn, bk = (
        value if isinstance(value := values.get(name), int) else default
        for name, default in zip(TILE_NAMES, DEFAULT_TILE, strict=True)
    )
    # Layout nn tells for all of them, unless the element type is not legal there.
    for layout, count in product(Layout, LEAST_K_TILES):
        problem = Problem(bm, bn, count * bk, layout, dtype)
        if is_legal(family, config, problem, device):
            return bm, bn, problem.k
    return bm, bn, bk


def stages_of(family: Family, config: Config) -> int:
    """The number of k_tiles that a block holds at once: STAGES, or 1 without such a name."""
    stages = family.completed(config).as_dict().get("STAGES")
    return stages if isinstance(stages, int) else 1
