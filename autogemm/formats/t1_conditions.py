"""Conditions of a T1 file, written in Python, in the project's own language of expressions."""

import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from autogemm.space import Expression, Parameter, parse_expression
from autogemm.space.expressions import (
    Column,
    Node,
    Operand,
    Operation,
    evaluate,
    integers,
    names_in,
)
from autogemm.support.errors import FamilyError

# Combinations of values over which a division is tried: more take too long.
MAX_COMBINATIONS = 2**20
# Where derived quantities are put in place a condition grows.
MAX_CHARS = 16_000

# Python writes these otherwise. Texts in quotes are left alone.
_TOKENS = re.compile(
    r"""(?P<text>'[^'\n]*'|"[^"\n]*") | (?P<divide>(?<!/)/(?!/)) | (?P<true>\bTrue\b)
    | (?P<false>\bFalse\b) | (?P<open>\[) | (?P<close>\])""",
    re.VERBOSE,
)
_HERE = {"divide": "//", "true": "1", "false": "0", "open": "(", "close": ")"}


def own_condition(text: str, parameters: Mapping[str, Parameter]) -> Expression:
    """The condition. Raises FamilyError for one that cannot be said here, or reads what is no
    parameter.

    Python's ``/`` gives fractions, which there are none of here: it is taken for ``//`` where it
    leaves no remainder for any values of the parameters, and refused elsewhere.
    """
    divides = False

    def here(match: re.Match[str]) -> str:
        nonlocal divides
        kind = str(match.lastgroup)
        divides = divides or kind == "divide"
        return _HERE.get(kind, match[0])

    own = " ".join(_TOKENS.sub(here, text).split())
    try:
        rule = parse_expression(own, max_length=MAX_CHARS)
        _check_kind(rule, parameters)
    except FamilyError as error:
        # The caller names the condition itself.
        raise FamilyError(str(error).split(f"{own!r}: ", 1)[-1]) from None
    if divides and not all(_is_exact(node, parameters) for node in _divisions(rule.root)):
        raise FamilyError("it divides with / where a remainder is left")
    return rule


def _check_kind(rule: Expression, parameters: Mapping[str, Parameter]) -> None:
    unknown = sorted(rule.names - parameters.keys())
    if unknown:
        raise FamilyError(f"it reads {unknown[0]!r}, which is not an imported parameter")
    kinds = {name: type(one.values[0]) for name, one in parameters.items()}
    if rule.kind(kinds) is not int:
        raise FamilyError("it is not a number")


def _divisions(node: Node) -> Iterator[Operation]:
    if isinstance(node, Operation):
        if node.op == "//":
            yield node
        for arg in node.args:
            yield from _divisions(arg)


def _is_exact(division: Operation, parameters: Mapping[str, Parameter]) -> bool:
    """Whether nothing is left over for any values of the parameters that it reads."""
    remainder = Operation("%", division.args)
    try:
        left = integers(evaluate(remainder, all_values(remainder, parameters)))
    except (ZeroDivisionError, OverflowError):
        return False
    return not np.any(left)


def all_values(node: Node, parameters: Mapping[str, Parameter]) -> dict[str, Operand]:
    """Every combination of the values of the parameters that are read, as columns.

    Raises FamilyError when these are too many.
    """
    columns = _columns(node, parameters)
    if math.prod(map(len, columns.values())) > MAX_COMBINATIONS:
        raise FamilyError("it divides with / and reads too many parameters to try all values")
    grid = np.meshgrid(*columns.values(), indexing="ij") if columns else []
    return {name: column.ravel() for name, column in zip(columns, grid, strict=True)}


def some_values(node: Node, parameters: Mapping[str, Parameter]) -> dict[str, Operand]:
    """Like `all_values`; of too many combinations, as many as can be tried, drawn at random."""
    try:
        return all_values(node, parameters)
    except FamilyError:
        draw, columns = np.random.default_rng(0), _columns(node, parameters)
        return {name: draw.choice(column, MAX_COMBINATIONS) for name, column in columns.items()}


def _columns(node: Node, parameters: Mapping[str, Parameter]) -> dict[str, Column]:
    return {name: np.array(parameters[name].values) for name in sorted(names_in(node))}
