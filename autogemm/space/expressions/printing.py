"""Prints an expression's tree, constants folded in: as C++ for exported host code, as Python for
programs that read search spaces in that language.
"""

from collections.abc import Mapping
from functools import reduce

import numpy as np

from autogemm.model.config import Value
from autogemm.space.expressions.evaluation import evaluate, integers
from autogemm.space.expressions.nodes import COMPARISONS, FUNCTIONS, Constant, Name, Node, Operation

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
    args = _without_single(node, args)
    operation = args[0] if node.op == "*" and len(args) == 1 else Operation(node.op, args)
    if all(isinstance(arg, Constant) for arg in args):
        value = integers(evaluate(operation, {}))
        assert not isinstance(value, np.ndarray)
        return Constant(value)
    return operation


def _without_single(node: Operation, args: tuple[Node, ...]) -> tuple[Node, ...]:
    """The operands, without the factor that a batch of a single product is."""
    if node.op != "*":
        return args
    pairs = zip(node.args, args, strict=True)
    kept = tuple(value for arg, value in pairs if (arg, value) != (Name("batch"), Constant(1)))
    return kept or args[:1]


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


def python_text(node: Node, constants: Mapping[str, Value]) -> str:
    """The text, with constants folded in. It is also text of the project's own language.

    Raises ZeroDivisionError and OverflowError where folding goes wrong.
    """
    return _python(folded(node, constants))


# Precedence: higher binds tighter.
_CHOICE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_BINARY = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(COMPARISONS, _COMPARE),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "//", "%"), _PRODUCT),
}


def _python(node: Node, least: int = _CHOICE) -> str:
    """Text, in parentheses where it binds looser than ``least``."""
    text, precedence = _python_bare(node)
    return text if precedence >= least else f"({text})"


def _python_bare(node: Node) -> tuple[str, int]:
    if isinstance(node, Constant):
        return repr(node.value), _UNARY if isinstance(node.value, int) and node.value < 0 else _ATOM
    if isinstance(node, Name):
        return node.name, _ATOM
    first, *rest = node.args
    match node.op:
        case "if":
            value, condition, otherwise = _python(rest[0], _OR), _python(first, _OR), rest[1]
            return f"{value} if {condition} else {_python(otherwise)}", _CHOICE
        case "not":
            return f"not {_python(first, _COMPARE)}", _NOT
        case "neg" | "ceil_div":
            number, *under = (_python_number(arg, _UNARY) for arg in node.args)
            return f"-(-{number} // {under[0]})" if under else f"-{number}", _UNARY
        case "min" | "max":
            precedence = _ATOM
            text = f"{node.op}({', '.join(_python_number(arg, _CHOICE) for arg in node.args)})"
        case _:
            precedence = _BINARY[node.op]
            printed = _python if precedence <= _AND else _python_number
            # Python takes a < b < c for one comparison of three.
            least = precedence + (precedence == _COMPARE)
            texts = [printed(first, least), *(printed(arg, precedence + 1) for arg in rest)]
            text = f" {node.op} ".join(texts)
    return text, precedence


def _python_number(node: Node, least: int) -> str:
    """Text of what is computed with: ``a and b`` is 0 or 1 here, and one of the two in Python."""
    if isinstance(node, Operation) and node.op in ("and", "or"):
        return f"(1 if {_python(node, _OR)} else 0)"
    return _python(node, least)
