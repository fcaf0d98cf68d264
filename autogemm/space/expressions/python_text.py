"""Writes an expression's tree as Python, for programs that read search spaces in that language."""

from collections.abc import Mapping

from autogemm.model.config import Value
from autogemm.space.expressions.folding import folded
from autogemm.space.expressions.nodes import COMPARISONS, FUNCTIONS, Constant, Name, Node, Operation


def python_text(node: Node, constants: Mapping[str, Value]) -> str:
    """The text, with constants folded in. It is also text of the project's own language.

    Raises ZeroDivisionError and OverflowError where folding goes wrong.
    """
    return _text(folded(node, constants))


# Precedence: higher binds tighter.
_CHOICE, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_BINARY = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(COMPARISONS, _COMPARE),
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "//", "%"), _PRODUCT),
}


def _text(node: Node, least: int = _CHOICE) -> str:
    """Text, in parentheses where it binds looser than ``least``."""
    text, precedence = _bare(node)
    return text if precedence >= least else f"({text})"


def _bare(node: Node) -> tuple[str, int]:
    if isinstance(node, Constant):
        return repr(node.value), _UNARY if isinstance(node.value, int) and node.value < 0 else _ATOM
    if isinstance(node, Name):
        return node.name, _ATOM
    return _operation(node)


def _operation(node: Operation) -> tuple[str, int]:
    if node.op == "if":
        condition, value, otherwise = node.args
        return f"{_text(value, _OR)} if {_text(condition, _OR)} else {_text(otherwise)}", _CHOICE
    if node.op == "ceil_div":
        over, under = node.args
        return f"-(-{_number(over, _UNARY)} // {_number(under, _UNARY)})", _UNARY
    if node.op in FUNCTIONS:
        return f"{node.op}({', '.join(_number(arg, _CHOICE) for arg in node.args)})", _ATOM
    first, *rest = node.args
    if node.op in ("not", "neg"):
        is_not = node.op == "not"
        return (
            (f"not {_text(first, _COMPARE)}", _NOT)
            if is_not
            else (f"-{_number(first, _UNARY)}", _UNARY)
        )
    precedence = _BINARY[node.op]
    if precedence <= _AND:
        texts = [_text(first, precedence), *(_text(arg, precedence + 1) for arg in rest)]
    else:
        # Python takes a < b < c for one comparison of three.
        least = precedence + (precedence == _COMPARE)
        texts = [_number(first, least), *(_number(arg, precedence + 1) for arg in rest)]
    return f" {node.op} ".join(texts), precedence


def _number(node: Node, least: int) -> str:
    """Text of what is computed with: ``a and b`` is 0 or 1 here, and one of the two in Python."""
    if isinstance(node, Operation) and node.op in ("and", "or"):
        return f"(1 if {_text(node, _OR)} else 0)"
    return _text(node, least)
