"""Writes an expression's tree as C++ integer arithmetic, for the exported host code."""

from collections.abc import Mapping
from functools import reduce

from autogemm.model.config import Value
from autogemm.space.expressions.folding import folded
from autogemm.space.expressions.nodes import COMPARISONS, FUNCTIONS, Constant, Name, Node


def c_text(node: Node, constants: Mapping[str, Value]) -> str:
    """The text, with constants folded in. Raises TypeError where a text is left over."""
    return _c_text(folded(node, constants))


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
