"""Writes an expression's tree as C++ integer arithmetic, for the exported host code."""

from collections.abc import Mapping
from functools import reduce

import numpy as np

from autogemm.config import Value
from autogemm.space.evaluation import evaluate, integers
from autogemm.space.nodes import COMPARISONS, FUNCTIONS, Constant, Name, Node, Operation

_LOGICAL = {*COMPARISONS, "and", "or", "not"}


def c_text(node: Node, constants: Mapping[str, Value]) -> str:
    """The text, with constants folded in. Raises TypeError where a text is left over."""
    return _c_text(_folded(node, constants))


def _folded(node: Node, constants: Mapping[str, Value]) -> Node:
    """With the constants put in and everything computed that then can be."""
    if isinstance(node, Constant):
        return node
    if isinstance(node, Name):
        return Constant(constants[node.name]) if node.name in constants else node
    if node.op in ("and", "or"):
        return _folded_junction(node, constants)
    first = _folded(node.args[0], constants)
    if node.op == "if" and isinstance(first, Constant):
        return _folded(node.args[1] if first.value else node.args[2], constants)
    args = (first, *(_folded(arg, constants) for arg in node.args[1:]))
    folded = Operation(node.op, args)
    if all(isinstance(arg, Constant) for arg in args):
        value = integers(evaluate(folded, {}))
        assert not isinstance(value, np.ndarray)
        return Constant(value)
    return folded


def _folded_junction(node: Operation, constants: Mapping[str, Value]) -> Node:
    decided_by = node.op == "or"
    left: list[Node] = []
    for arg in node.args:
        folded = _folded(arg, constants)
        if not isinstance(folded, Constant):
            left.append(folded)
        elif bool(folded.value) == decided_by:
            return Constant(int(decided_by))
    if not left:
        return Constant(int(not decided_by))
    if len(left) > 1:
        return Operation(node.op, tuple(left))
    only = left[0]
    if isinstance(only, Operation) and only.op in _LOGICAL:
        return only
    return Operation("!=", (only, Constant(0)))


# C++ spelling and precedence (higher binds tighter).
_C_BINARY = {
    "or": ("||", 2), "and": ("&&", 3), "==": ("==", 4), "!=": ("!=", 4), "<": ("<", 5),
    "<=": ("<=", 5), ">": (">", 5), ">=": (">=", 5), "+": ("+", 6), "-": ("-", 6), "*": ("*", 7),
    "//": ("/", 7), "%": ("%", 7),
}  # fmt: skip
_C_UNARY = {"neg": "-", "not": "!"}


def _c_text(node: Node, least: int = 0) -> str:
    """C++ text, in parentheses where it binds looser than ``least``."""
    text, precedence = _c_bare(node)
    return text if precedence >= least else f"({text})"


def _c_bare(node: Node) -> tuple[str, int]:
    if isinstance(node, Constant):
        if isinstance(node.value, str):
            raise TypeError(f"the text {node.value!r} cannot be written as a C++ integer")
        return str(node.value), 9 if node.value >= 0 else 8
    if isinstance(node, Name):
        return node.name, 9
    if node.op == "if":
        condition, value, otherwise = node.args
        return f"{_c_text(condition, 2)} ? {_c_text(value, 2)} : {_c_text(otherwise, 2)}", 1
    if node.op in _C_UNARY:
        return _C_UNARY[node.op] + _c_text(node.args[0], 9), 8
    if node.op in FUNCTIONS:
        texts = [_c_text(arg) for arg in node.args]
        return reduce(lambda a, b: f"{node.op}({a}, {b})", texts), 9
    spelling, precedence = _C_BINARY[node.op]
    first_least, least = precedence, precedence + 1
    if node.op == "or" or node.op in COMPARISONS:
        # Legal without these parentheses, but compilers warn of && in || and of a < b < c.
        first_least = least = 4 if node.op == "or" else 6
    first, *rest = node.args
    texts = [_c_text(first, first_least), *(_c_text(arg, least) for arg in rest)]
    return f" {spelling} ".join(texts), precedence
