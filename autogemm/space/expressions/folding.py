"""Puts constants into an expression's tree and computes what then can be."""

from collections.abc import Mapping

import numpy as np

from autogemm.model.config import Value
from autogemm.space.expressions.evaluation import evaluate, integers
from autogemm.space.expressions.nodes import COMPARISONS, Constant, Name, Node, Operation

LOGICAL = {*COMPARISONS, "and", "or", "not"}


def folded(node: Node, constants: Mapping[str, Value]) -> Node:
    """The tree with the constants in place of their names; what can be computed is.

    Raises ZeroDivisionError and OverflowError where that goes wrong.
    """
    if isinstance(node, Constant):
        return node
    if isinstance(node, Name):
        return Constant(constants[node.name]) if node.name in constants else node
    if node.op in ("and", "or"):
        return _folded_junction(node, constants)
    first = folded(node.args[0], constants)
    if node.op == "if" and isinstance(first, Constant):
        return folded(node.args[1] if first.value else node.args[2], constants)
    args = (first, *(folded(arg, constants) for arg in node.args[1:]))
    operation = Operation(node.op, args)
    if all(isinstance(arg, Constant) for arg in args):
        value = integers(evaluate(operation, {}))
        assert not isinstance(value, np.ndarray)
        return Constant(value)
    return operation


def _folded_junction(node: Operation, constants: Mapping[str, Value]) -> Node:
    decided_by = node.op == "or"
    left: list[Node] = []
    for arg in node.args:
        value = folded(arg, constants)
        if not isinstance(value, Constant):
            left.append(value)
        elif bool(value.value) == decided_by:
            return Constant(int(decided_by))
    if not left:
        return Constant(int(not decided_by))
    if len(left) > 1:
        return Operation(node.op, tuple(left))
    only = left[0]
    if isinstance(only, Operation) and only.op in LOGICAL:
        return only
    return Operation("!=", (only, Constant(0)))
